// SPDX-License-Identifier: BSL-1.0
#pragma once

/// What is no batch: weights, tables, checkpoints of any size, to the device and back. Tensors with
/// names: `bulk/safetensors/safetensors.hpp` (`penstock::safetensors`).

#include <penstock_ext/bulk/bulk_copier.hpp>
#include <penstock_ext/bulk/bulk_file.hpp>
