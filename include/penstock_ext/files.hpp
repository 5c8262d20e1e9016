// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Datasets in files: IDX, CIFAR, npy and npz, and records of fixed size. Saves and loads the state
/// of a loader. Compressed files are in `files/gzip/gzip.hpp` (`penstock::gzip`) and
/// `files/zstd/zstd.hpp` (`penstock::zstd`).

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
