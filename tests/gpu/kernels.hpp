// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#if defined(__CUDACC__)
#define GPU_TESTS_BOTH __host__ __device__
#else
#define GPU_TESTS_BOTH
#endif

/// What the tests put on a GPU's streams. Compiled by nvcc in kernels.cu; throws `cuda_error`.
namespace gpu {

/// Puts work on a stream that runs on the host, in stream order, and may block: a kernel waits for
/// it. Other streams go on meanwhile, which they need not with `cudaLaunchHostFunc`.
void launch(cudaStream_t stream, std::function<void()> work);

/// Keeps the stream's part of the GPU busy for about this long, so that what does not wait
/// overtakes.
void delay(cudaStream_t stream, std::uint64_t nanoseconds);

/// Images whose every byte tells sample and place.
[[nodiscard]] GPU_TESTS_BOTH constexpr std::uint8_t pixel(std::uint64_t sample, std::size_t i) {
  return static_cast<std::uint8_t>(sample * 31 + i * 7 + i / 28);
}

/// What `check` finds and goes by; in device memory.
struct findings {
  unsigned long long position = 0;  ///< samples seen: the next batch begins there in the order
  unsigned long long wrong = 0;     ///< bytes
};

/// Compares a batch with what `order[found->position]` and those after it say: images of 784 bytes
/// and labels of one. Advances the position, so that the same launch can be replayed for the next
/// batch.
void check(cudaStream_t stream, const std::uint8_t* images, const std::uint8_t* labels,
           std::size_t samples, const std::uint64_t* order, findings* found);

/// A kernel that writes where there is no memory: the context is lost.
void fault(cudaStream_t stream);

}  // namespace gpu
