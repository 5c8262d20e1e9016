// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/cache/detail/block_disk.hpp>
#include <penstock_ext/store/cache/detail/memory_tier.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The future uses of blocks, as announced by readers. Each reader can append and withdraw uses. A
/// block is identified by its number, and a use by its position in announcement order. Not
/// thread-safe.
class announced_uses {
 public:
  /// Maximum number of later uses before an announced use that has not happened is dropped, for
  /// example because its sample is never read. Readers may read out of order by up to this number
  /// of uses.
  static constexpr std::size_t max_overtaken = std::size_t{1} << 17U;

  /// Stores at most `max` uses of 80 bytes each. Further uses are ignored.
  explicit announced_uses(std::size_t max = std::size_t{1} << 20U) : max_(max) {}

  /// Appends uses of `blocks` by `who`, in order, after all previous uses. If an allocation fails,
  /// throws and keeps the uses that were already appended.
  void append(const void* who, std::span<const std::uint64_t> blocks) {
    for (const std::uint64_t block : blocks) {
      if (uses_.size() >= max_) return;
      const std::uint64_t place = first_ + uses_.size();
      uses_.push_back({block, who});
      try {
        chain(block, place);
      } catch (...) {
        uses_.pop_back();
        throw;
      }
    }
  }
  /// Withdraws all uses that `who` announced. If an allocation fails, throws and leaves the uses
  /// unchanged.
  void retract(const void* who) {
    announced_uses others{max_};
    others.first_ = first_ + uses_.size();
    for (const one_use& one : uses_) {
      if (!one.is_over && one.who != who) others.append(one.who, {&one.block, 1});
    }
    *this = std::move(others);
  }

  /// Returns the position of the next use of `block`, or `never`.
  [[nodiscard]] std::uint64_t of(std::uint64_t block) const {
    const auto found = places_.find(block);
    return found == places_.end() ? never : found->second.first;
  }
  /// Returns the position of the second future use of `block`, or `never`.
  [[nodiscard]] std::uint64_t after(std::uint64_t block) const {
    const auto found = places_.find(block);
    if (found == places_.end()) return never;
    return uses_[static_cast<std::size_t>(found->second.first - first_)].next;
  }
  /// Returns the number of future uses.
  [[nodiscard]] std::size_t size() const noexcept { return uses_.size() - over_; }

  /// Records a use of `block` and advances its next use. Calls `given_up(block)` for each block
  /// whose next use is dropped.
  template <class GivenUp>
  void use(std::uint64_t block, const GivenUp& given_up) {
    if (!places_.contains(block)) return;
    end_first_of(block);
    while (!uses_.empty() && (uses_.front().is_over || over_ > max_overtaken)) {
      if (!uses_.front().is_over) {
        const std::uint64_t gone = uses_.front().block;
        end_first_of(gone);
        given_up(gone);
      }
      uses_.pop_front();
      ++first_;
      --over_;
    }
  }

 private:
  struct one_use {
    std::uint64_t block;
    const void* who;
    std::uint64_t next = never;  // position of the block's next use
    bool is_over = false;
  };
  struct ends {  // positions of a block's first and last future use
    std::uint64_t first;
    std::uint64_t last;
  };

  one_use& at(std::uint64_t place) { return uses_[static_cast<std::size_t>(place - first_)]; }

  void chain(std::uint64_t block, std::uint64_t place) {
    const auto [found, is_new] = places_.try_emplace(block, ends{place, place});
    if (is_new) return;
    at(found->second.last).next = place;
    found->second.last = place;
  }
  void end_first_of(std::uint64_t block) {
    const auto found = places_.find(block);
    one_use& one = at(found->second.first);
    one.is_over = true;
    ++over_;
    if (one.next == never) {
      places_.erase(found);
    } else {
      found->second.first = one.next;
    }
  }

  std::size_t max_;
  // Invariant: for each block, `places_` contains the first and the last future use. `next` links
  // these uses in position order.
  std::deque<one_use> uses_;
  std::uint64_t first_ = 0;  // position of the first element
  std::size_t over_ = 0;     // number of elements in `uses_` that are over
  std::unordered_map<std::uint64_t, ends> places_;
};

/// The future uses of blocks: the plan set by `will_use`, or the announcements of readers if no
/// planned use remains. Updates the eviction order of cached blocks. Not thread-safe.
class planned_uses {
 public:
  /// References `memory` and `disk`, which must outlive this object.
  planned_uses(memory_tier& memory, block_disk& disk) noexcept : memory_(&memory), disk_(&disk) {}

  /// Replaces all known uses with the plan `uses`.
  void tell(announced_uses uses) {
    foreseen_ = announced_uses{};
    planned_ = std::move(uses);
    unnamed_ = 0;
    rearrange();
  }
  /// Appends announced uses (see `announced_uses::append`). Ignored while planned uses remain.
  void append(const void* who, std::span<const std::uint64_t> blocks) {
    if (has_plan()) return;
    foreseen_.append(who, blocks);
    for (const std::uint64_t block : blocks) renew(block);
  }
  /// Withdraws the uses announced by `who`.
  void retract(const void* who) {
    foreseen_.retract(who);
    rearrange();
  }

  /// Returns the position of the next use of `block`, or `never`.
  [[nodiscard]] std::uint64_t of(std::uint64_t block) const {
    return (has_plan() ? planned_ : foreseen_).of(block);
  }
  /// Returns the position of the second future use of `block`, or `never`.
  [[nodiscard]] std::uint64_t after(std::uint64_t block) const {
    return (has_plan() ? planned_ : foreseen_).after(block);
  }
  /// Records a use of `block`. Drops the plan after more than `announced_uses::max_overtaken`
  /// consecutive uses of blocks without a planned use.
  void use(std::uint64_t block) {
    unnamed_ = has_plan() && planned_.of(block) == never ? unnamed_ + 1 : 0;
    if (unnamed_ > announced_uses::max_overtaken) tell(announced_uses{});
    (has_plan() ? planned_ : foreseen_).use(block, [&](std::uint64_t gone) { renew(gone); });
  }
  /// Returns the number of future uses.
  [[nodiscard]] std::size_t size() const noexcept {
    return (has_plan() ? planned_ : foreseen_).size();
  }

 private:
  [[nodiscard]] bool has_plan() const noexcept { return planned_.size() != 0; }

  void renew(std::uint64_t block) {
    memory_->order().renew(block, of(block));
    disk_->renew(block, of(block));
  }
  void rearrange() {
    const auto next_use = [this](std::uint64_t block) { return of(block); };
    memory_->order().rearrange(next_use);
    disk_->rearrange(next_use);
  }

  memory_tier* memory_;
  block_disk* disk_;
  announced_uses planned_;
  announced_uses foreseen_;
  std::size_t unnamed_ = 0;  // number of consecutive uses of blocks that are not in `planned_`
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
