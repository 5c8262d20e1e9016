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
/// reading allocates nothing once the largest blob has been there. A source that has a blob in
/// memory hands out that instead, see `hold`.
class blob_buffer {
 public:
  blob_buffer() = default;
  /// Takes the memory of `other`, which is empty then.
  blob_buffer(blob_buffer&& other) noexcept
      : memory_(std::move(other.memory_)),
        capacity_(std::exchange(other.capacity_, 0)),
        held_(std::move(other.held_)) {}
  /// Takes the memory of `other`, which is empty then; its own is freed.
  blob_buffer& operator=(blob_buffer&& other) noexcept {
    memory_ = std::move(other.memory_);
    capacity_ = std::exchange(other.capacity_, 0);
    held_ = std::move(other.held_);
    return *this;
  }

  /// `bytes` of memory with unspecified content; what an earlier call returned is gone, and so is
  /// what was held. Throws std::bad_alloc and leaves an empty buffer then.
  [[nodiscard]] std::span<std::byte> room_for(std::size_t bytes) {
    held_.reset();
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

  /// Shares in `owner`, of a blob that is handed out from memory of its own, until the next blob is
  /// read. What was held is let go.
  void hold(std::shared_ptr<const void> owner) noexcept { held_ = std::move(owner); }

  /// How many bytes it holds without growing.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
  std::shared_ptr<const void> held_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
