// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include <penstock/core/batch.hpp>
#include <penstock/core/tensor_view.hpp>

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

/// Whether `delay` takes the time that it is given: not on the double.
[[nodiscard]] bool delay_takes_time();

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

/// A batch with two ragged fields, as a kernel gets it.
struct ragged_batch {
  penstock::ragged_view<const std::uint16_t> tokens;
  penstock::tensor_view<const std::uint32_t, penstock::dyn> labels;
  penstock::ragged_view<const float> weights;

  /// Of all values of a sample, of their places, and of how many there are.
  [[nodiscard]] GPU_TESTS_BOTH std::uint64_t digest(std::size_t n) const {
    std::uint64_t sum = labels(n);
    const auto of_tokens = tokens[n];
    for (std::size_t i = 0; i < of_tokens.size(); ++i) sum = sum * 31 + of_tokens(i);
    const auto of_weights = weights[n];
    for (std::size_t i = 0; i < of_weights.size(); ++i) {
      sum = sum * 31 + static_cast<std::uint64_t>(of_weights(i));
    }
    return (sum * 31 + of_tokens.size()) * 31 + of_weights.size();
  }
};

/// Puts the digest of every sample of a batch into `digests`.
void digest(cudaStream_t stream, const ragged_batch& batch, std::uint64_t* digests);

/// Adds 1 to every `stride`th byte from `data` on, `count` of them; in any memory that kernels
/// reach.
void add_one(cudaStream_t stream, std::uint8_t* data, std::size_t count, std::size_t stride);

/// A kernel that writes where there is no memory: the context is lost.
void fault(cudaStream_t stream);

}  // namespace gpu
