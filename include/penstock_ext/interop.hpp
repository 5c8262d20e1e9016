// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Interoperability with tensor libraries: DLPack, and batches with shared ownership. libtorch
/// tensors are in `interop/torch/torch.hpp` (`penstock::torch`).

#include <penstock_ext/interop/dlpack_abi.hpp>
#include <penstock_ext/interop/shared_batch.hpp>
#include <penstock_ext/interop/tensor_dataset.hpp>
#include <penstock_ext/interop/to_dlpack.hpp>
