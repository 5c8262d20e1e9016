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

/// The work that the tests queue on GPU streams, compiled by nvcc in kernels.cu. All functions
/// throw `cuda_error`.
namespace gpu {

/// Queues host work on a stream. The work runs in stream order and may block, because a kernel
/// waits for it. Other streams continue in the meantime, which `cudaLaunchHostFunc` does not
/// guarantee.
void launch(cudaStream_t stream, std::function<void()> work);

/// Keeps the stream busy for about `nanoseconds`, so that work without a wait overtakes it.
void delay(cudaStream_t stream, std::uint64_t nanoseconds);

/// Returns true if `delay` takes the given time. On the fake CUDA runtime, it takes no time.
[[nodiscard]] bool delay_takes_time();

/// Returns a pixel whose value depends on the sample and the position.
[[nodiscard]] GPU_TESTS_BOTH constexpr std::uint8_t pixel(std::uint64_t sample, std::size_t i) {
  return static_cast<std::uint8_t>(sample * 31 + i * 7 + i / 28);
}

/// The position and the results of `check`. The object is in device memory.
struct findings {
  unsigned long long position = 0;  ///< number of checked samples, and index of the next sample
  unsigned long long wrong = 0;     ///< number of wrong bytes
};

/// Compares a batch with the samples starting at `order[found->position]`. Images have 784 bytes
/// and labels have one byte. Advances the position, so that the same launch can be replayed for the
/// next batch.
void check(cudaStream_t stream, const std::uint8_t* images, const std::uint8_t* labels,
           std::size_t samples, const std::uint64_t* order, findings* found);

/// A batch with two ragged fields, as passed to a kernel.
struct ragged_batch {
  penstock::ragged_view<const std::uint16_t> tokens;
  penstock::tensor_view<const std::uint32_t, penstock::dyn> labels;
  penstock::ragged_view<const float> weights;

  /// Returns a digest of a sample's values, their positions, and their number.
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

/// Writes the digest of each sample of a batch to `digests`.
void digest(cudaStream_t stream, const ragged_batch& batch, std::uint64_t* digests);

/// Adds 1 to `count` bytes that start at `data` and are `stride` bytes apart. Works in any memory
/// that kernels can access.
void add_one(cudaStream_t stream, std::uint8_t* data, std::size_t count, std::size_t stride);

/// Launches a kernel that writes to an invalid address. The context is then lost.
void fault(cudaStream_t stream);

}  // namespace gpu
