// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock_ext/blob/blob_buffer.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Buffers of blobs that were used, for those that are read next: the system need not map and clear
/// new pages for each. Bounded in bytes and in number, and allocates nothing. One thread at a time.
class spare_buffers {
 public:
  /// As many as are kept at most.
  static constexpr std::size_t most_buffers = 64;

  /// Keeps buffers of at most `most_bytes` together.
  explicit spare_buffers(std::uint64_t most_bytes) noexcept : most_bytes_(most_bytes) {}

  /// The smallest buffer that has room for `bytes`, if that is not more than half as much again;
  /// else an empty one.
  [[nodiscard]] blob_buffer take(std::size_t bytes) noexcept {
    blob_buffer* best = nullptr;
    for (blob_buffer& one : buffers_) {
      const std::size_t room = one.capacity();
      if (room < bytes || room - bytes > bytes / 2 || room == 0) continue;
      if (best == nullptr || room < best->capacity()) best = &one;
    }
    if (best == nullptr) return {};
    bytes_ -= best->capacity();
    return std::move(*best);
  }

  /// Keeps `buffer`, and gives up others where there is no room; leaves it where it is larger than
  /// all that may be kept.
  void keep(blob_buffer& buffer) noexcept {
    const std::size_t room = buffer.capacity();
    if (room == 0 || room > most_bytes_) return;
    while (bytes_ + room > most_bytes_) drop_next();
    auto place = std::find_if(buffers_.begin(), buffers_.end(),
                              [](const blob_buffer& one) { return one.capacity() == 0; });
    if (place == buffers_.end()) place = drop_next();
    *place = std::move(buffer);
    bytes_ += room;
  }

  /// Of all that are kept.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  using places = std::array<blob_buffer, most_buffers>;

  // Each in turn, so that sizes that are not asked for any more do not stay.
  places::iterator drop_next() noexcept {
    const auto place = buffers_.begin() + static_cast<std::ptrdiff_t>(next_);
    next_ = (next_ + 1) % most_buffers;
    bytes_ -= place->capacity();
    *place = {};
    return place;
  }

  std::uint64_t most_bytes_;
  std::uint64_t bytes_ = 0;  // of `buffers_`, which are empty where none is kept
  std::size_t next_ = 0;     // the place that is emptied next
  places buffers_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
