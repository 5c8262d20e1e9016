// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Bulk transfers of data other than batches between the host and the device, such as weights,
/// tables and checkpoints of any size. Named tensors are in `bulk/safetensors/safetensors.hpp`
/// (`penstock::safetensors`).

#include <penstock_ext/bulk/bulk_copier.hpp>
#include <penstock_ext/bulk/bulk_file.hpp>
#include <penstock_ext/bulk/open_file_sink.hpp>
