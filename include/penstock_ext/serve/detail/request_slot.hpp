// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock/threads/support/deadline.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What is known of the batch in a slot of a `batcher`: its requests' tags, and how far they are.
/// No thread-safety of its own.
class request_slot {
 public:
  /// Room for `most` requests.
  explicit request_slot(std::size_t most) : tags_(most), is_hole_(most) {}

  deadline due;  ///< when the batch goes out even if it is not full

  /// An empty batch, which goes out at `end` at the latest.
  void begin(deadline end) noexcept {
    count_ = 0;
    due = end;
  }
  /// A place for a request, whose writing begins.
  [[nodiscard]] std::size_t add(std::uint64_t tag) noexcept {
    tags_[count_] = tag;
    ++writing_;
    return count_++;
  }
  /// Its writing ends, by an exception or not.
  void note_end(std::size_t position, bool is_written) noexcept {
    is_hole_[position] = is_written ? 0 : 1;
    holes_ += is_written ? 0 : 1;
    --writing_;
  }

  [[nodiscard]] bool is_full() const noexcept { return count_ == tags_.size(); }
  [[nodiscard]] bool is_empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool is_being_written() const noexcept { return writing_ != 0; }
  [[nodiscard]] bool has_holes() const noexcept { return holes_ != 0; }
  /// One for each request.
  [[nodiscard]] std::span<const std::uint64_t> tags() const noexcept {
    return {tags_.data(), count_};
  }

  /// Puts the last requests into the places of those that are not there: `move(from, to)`.
  template <class Move>
  void close_up(Move move) noexcept {
    std::size_t end = count_;
    for (std::size_t at = 0; at < end; ++at) {
      if (is_hole_[at] == 0) continue;
      do {
        --end;
      } while (end > at && is_hole_[end] != 0);
      if (end == at) break;
      move(end, at);
      tags_[at] = tags_[end];
    }
    count_ = end;
    holes_ = 0;
  }

 private:
  std::vector<std::uint64_t> tags_;
  std::vector<std::uint8_t> is_hole_;  // by place: its writer has thrown
  std::size_t count_ = 0;              // places given
  std::size_t writing_ = 0;            // of them, still being written
  std::size_t holes_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
