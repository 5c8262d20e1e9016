// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include <penstock/core/tensor_view.hpp>

/// Functions that use views of batches in device memory with CCCL. nvcc compiles them in
/// tensors.cu.
namespace gpu {

using images_view = penstock::tensor_view<const std::uint8_t, penstock::dyn, 28, 28>;

/// Adds the last row of each image to `*sum` in a kernel. The kernel accepts the view as a
/// `cuda::std::mdspan`.
void add_last_rows(cudaStream_t stream, const images_view& images, unsigned long long* sum);

/// Adds all elements to `*sum` with Thrust, using the address of the view.
void add_all(cudaStream_t stream, const images_view& images, unsigned long long* sum);

}  // namespace gpu
