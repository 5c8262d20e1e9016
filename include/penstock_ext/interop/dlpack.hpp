// SPDX-License-Identifier: BSL-1.0
#pragma once

/// @file
/// Tensors of other array libraries, by DLPack and without a copy: batches as tensors (`to_dlpack`)
/// and tensors as datasets (`from_dlpack`, `tensor_dataset`). Needs no library.

#include <penstock_ext/interop/dlpack_abi.hpp>
#include <penstock_ext/interop/imported_tensor.hpp>
#include <penstock_ext/interop/shared_batch.hpp>
#include <penstock_ext/interop/tensor_dataset.hpp>
#include <penstock_ext/interop/to_dlpack.hpp>
