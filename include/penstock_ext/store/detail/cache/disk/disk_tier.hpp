// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/detail/cache/disk/block_folder.hpp>
#include <penstock_ext/store/detail/cache/eviction_order.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Which blocks are on the disk, as far as this process knows, and which of them go when room is
/// needed. It touches no file. One thread at a time.
class disk_tier {
 public:
  /// Keeps up to `most` bytes of files.
  explicit disk_tier(std::uint64_t most) : most_(most) {}

  /// Whether file `number` of so many bytes is to be written; then it counts as being there. What
  /// has to go for it is appended to `gone`.
  [[nodiscard]] bool admit(std::uint64_t number, std::uint64_t bytes, std::uint64_t next_use,
                           std::vector<std::uint64_t>& gone) {
    if (bytes > most_) return false;
    if (writes_to_skip_ > 0) {
      --writes_to_skip_;
      return false;
    }
    order_.hold(number, bytes, next_use);
    evict(gone);
    return order_.holds(number);
  }

  /// File `number` was written, or found. What has to go for it is appended to `gone`.
  void is_there(std::uint64_t number, std::uint64_t bytes, std::uint64_t next_use,
                std::vector<std::uint64_t>& gone) {
    order_.hold(number, bytes, next_use);
    evict(gone);
  }
  /// File `number` is used next at `next_use`, if it is there. Whether it is.
  bool use(std::uint64_t number, std::uint64_t bytes, std::uint64_t next_use) {
    if (!order_.holds(number)) return false;
    order_.hold(number, bytes, next_use);
    return true;
  }
  /// A file of so many bytes was written: whether it is time to look what others have.
  [[nodiscard]] bool wrote(std::uint64_t bytes) {
    skips_ = first_skips;  // the disk is well again
    written_since_look_ += bytes;
    if (written_since_look_ <= most_ / 16) return false;
    written_since_look_ = 0;
    return true;
  }
  /// A file could not be written. The next ones are not tried, twice as many each time: a disk that
  /// is full is so for a while.
  void failed(std::uint64_t number) {
    order_.drop(number);
    writes_to_skip_ = skips_;
    skips_ = std::min<std::uint64_t>(2 * skips_, 1024);
  }
  /// What was found in the folder takes the place of what was known; what has to go is appended to
  /// `gone`. `next_use(number)` says when a block is used next.
  template <class NextUse>
  void look(std::vector<listed_block> found, const NextUse& next_use,
            std::vector<std::uint64_t>& gone) {
    std::sort(found.begin(), found.end(),
              [](const listed_block& a, const listed_block& b) { return a.number < b.number; });
    std::vector<std::uint64_t> missing;
    order_.each([&](std::uint64_t number) {
      const auto at = std::lower_bound(
          found.begin(), found.end(), number,
          [](const listed_block& one, std::uint64_t value) { return one.number < value; });
      if (at == found.end() || at->number != number) missing.push_back(number);
    });
    for (const std::uint64_t number : missing) order_.drop(number);
    // What others wrote is older than what was used here, the last written the youngest.
    std::stable_sort(found.begin(), found.end(), [](const listed_block& a, const listed_block& b) {
      return a.changed > b.changed;
    });
    for (const listed_block& one : found) {
      if (!order_.holds(one.number)) {
        order_.hold_as_oldest(one.number, one.bytes, next_use(one.number));
      }
    }
    evict(gone);
  }

  /// What is there, in the order in which it goes.
  [[nodiscard]] eviction_order& order() noexcept { return order_; }

 private:
  static constexpr std::uint64_t first_skips = 8;

  void evict(std::vector<std::uint64_t>& gone) {
    while (order_.bytes() > most_) {
      gone.push_back(order_.first_to_go());
      order_.drop(gone.back());
    }
  }

  std::uint64_t most_;
  eviction_order order_;
  std::uint64_t written_since_look_ = 0;
  std::uint64_t writes_to_skip_ = 0;
  std::uint64_t skips_ = first_skips;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
