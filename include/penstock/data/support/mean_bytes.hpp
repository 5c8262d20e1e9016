// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The mean size of the samples read so far: an estimate for samples of unknown size. From any
/// thread.
class mean_bytes {
 public:
  /// Adds `samples` samples of `bytes` bytes in total.
  void add(std::uint64_t bytes, std::uint64_t samples = 1) noexcept {
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    samples_.fetch_add(samples, std::memory_order_release);
  }
  /// The mean, at least 1 so that no sample is free; 0 before the first sample.
  [[nodiscard]] std::uint64_t value() const noexcept {
    const std::uint64_t samples = samples_.load(std::memory_order_acquire);
    if (samples == 0) return 0;
    return (std::max)(std::uint64_t{1}, bytes_.load(std::memory_order_relaxed) / samples);
  }

 private:
  // Invariant: `bytes_` includes all samples that `samples_` counts, so that the first mean is not
  // too small. The release pairs with the acquire.
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> samples_{0};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
