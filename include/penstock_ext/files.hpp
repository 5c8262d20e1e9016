// SPDX-License-Identifier: BSL-1.0
#pragma once

/// File datasets (IDX, CIFAR, npy, npz, fixed-size records), and loader states in files.
/// Compression is in `files/gzip/gzip.hpp` (`penstock::gzip`) and `files/zstd/zstd.hpp`
/// (`penstock::zstd`).

#include <penstock_ext/files/cifar_dataset.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>
#include <penstock_ext/files/glob.hpp>
#include <penstock_ext/files/hidden_path.hpp>
#include <penstock_ext/files/idx_dataset.hpp>
#include <penstock_ext/files/mapped_file.hpp>
#include <penstock_ext/files/npy_dataset.hpp>
#include <penstock_ext/files/raw_records.hpp>
#include <penstock_ext/files/state_file.hpp>
