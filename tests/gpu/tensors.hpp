// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include <penstock/core/tensor_view.hpp>

/// What CCCL makes of a view of a batch in device memory. Compiled by nvcc in tensors.cu.
namespace gpu {

using images_view = penstock::tensor_view<const std::uint8_t, penstock::dyn, 28, 28>;

/// Adds the last row of each image to `*sum`, by a kernel that takes the view for a
/// `cuda::std::mdspan`.
void add_last_rows(cudaStream_t stream, const images_view& images, unsigned long long* sum);

/// Adds all elements to `*sum`, by Thrust over the view's address.
void add_all(cudaStream_t stream, const images_view& images, unsigned long long* sum);

}  // namespace gpu
