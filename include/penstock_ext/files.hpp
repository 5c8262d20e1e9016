// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Datasets in files: IDX, CIFAR, npy and npz, records of fixed size; files of bulk transfers.
/// Compressed files: `files/gzip/gzip.hpp` (`penstock::gzip`), `files/zstd/zstd.hpp`
/// (`penstock::zstd`). Weights: `files/safetensors/safetensors.hpp` (`penstock::safetensors`).

#include <penstock_ext/files/bulk_file.hpp>
#include <penstock_ext/files/cifar_dataset.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>
#include <penstock_ext/files/idx_dataset.hpp>
#include <penstock_ext/files/npy_dataset.hpp>
#include <penstock_ext/files/raw_records.hpp>
