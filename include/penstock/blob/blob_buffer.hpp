// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Memory that one thread reads blobs into, one after another. Grows and is not cleared, so that
/// reading allocates nothing once the largest blob has been there.
class blob_buffer {
 public:
  blob_buffer() = default;
  /// Takes the memory of `other`, which is empty then.
  blob_buffer(blob_buffer&& other) noexcept
      : memory_(std::move(other.memory_)), capacity_(std::exchange(other.capacity_, 0)) {}
  /// Takes the memory of `other`, which is empty then; its own is freed.
  blob_buffer& operator=(blob_buffer&& other) noexcept {
    memory_ = std::move(other.memory_);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
  }

  /// `bytes` of memory with unspecified content; what an earlier call returned is gone. Throws
  /// std::bad_alloc and leaves an empty buffer then.
  [[nodiscard]] std::span<std::byte> room_for(std::size_t bytes) {
    if (bytes > capacity_) {
      // Grows by half at least; the old content is of no use, so it is freed first.
      const std::size_t grown = capacity_ + capacity_ / 2;
      const std::size_t wanted = bytes > grown ? bytes : grown;
      memory_.reset();
      capacity_ = 0;
      memory_ = std::make_unique_for_overwrite<std::byte[]>(wanted);
      capacity_ = wanted;
    }
    return {memory_.get(), bytes};
  }

  /// How many bytes it holds without growing.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
