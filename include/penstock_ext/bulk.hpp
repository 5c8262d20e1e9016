// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Bulk transfers of data other than batches, to the device and back: weights, tables, checkpoints
/// of any size. Tensors with names: `bulk/safetensors/safetensors.hpp` (`penstock::safetensors`).

#include <penstock_ext/bulk/bulk_copier.hpp>
#include <penstock_ext/bulk/bulk_file.hpp>
#include <penstock_ext/bulk/open_file_sink.hpp>
