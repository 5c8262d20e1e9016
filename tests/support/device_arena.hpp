// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <iterator>
#include <map>
#include <mutex>

#include "support/catch.hpp"

namespace test {

/// A pool of device memory as a program may have, in one block of `cudaMalloc`. Counts its calls.
/// The destructor checks that all memory was returned, with the arguments of its allocation.
class device_arena {
 public:
  static constexpr std::size_t capacity = std::size_t{4} << 20;

  device_arena() { REQUIRE(cudaMalloc(&block_, capacity) == cudaSuccess); }
  device_arena(device_arena&&) = delete;
  ~device_arena() {
    CHECK(live_.empty());
    CHECK(bad_returns == 0);
    CHECK(cudaFree(block_) == cudaSuccess);
  }

  /// Returns a null pointer if no gap is large enough.
  void* allocate(std::size_t bytes, std::size_t alignment) {
    const std::lock_guard lock{mutex_};
    ++allocations;
    alignments[alignment] += 1;
    std::size_t at = 0;
    for (const auto& [begin, length] : live_) {
      if (at + bytes <= begin) break;
      at = (begin + length + alignment - 1) / alignment * alignment;
    }
    if (at + bytes > capacity) return nullptr;
    live_[at] = bytes;
    return static_cast<std::byte*>(block_) + at;
  }
  void deallocate(void* data, std::size_t bytes, std::size_t alignment) {
    const std::lock_guard lock{mutex_};
    const auto at = static_cast<std::size_t>(
        std::distance(static_cast<std::byte*>(block_), static_cast<std::byte*>(data)));
    const auto found = live_.find(at);
    const bool is_right = found != live_.end() && found->second == bytes && alignment == 256;
    if (!is_right) ++bad_returns;
    if (found != live_.end()) live_.erase(found);
  }

  /// Returns the number of bytes that are allocated now.
  [[nodiscard]] std::size_t bytes() {
    const std::lock_guard lock{mutex_};
    std::size_t sum = 0;
    for (const auto& [begin, length] : live_) sum += length;
    return sum;
  }

  std::size_t allocations = 0;
  std::size_t bad_returns = 0;
  std::map<std::size_t, std::size_t> alignments;  ///< number of allocations with each alignment

 private:
  std::mutex mutex_;  // guards all members
  void* block_ = nullptr;
  std::map<std::size_t, std::size_t> live_;  // offset and size
};

}  // namespace test
