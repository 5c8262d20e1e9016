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

/// When blocks are used next, as those say it that know what they will read: each of them may go
/// on, and take back what it said. Blocks are known by a number each, and a use by its place in the
/// order in which they were said. One thread at a time.
class announced_uses {
 public:
  /// How many later uses may come before one that is said to come: then it does not come any more,
  /// as that of a sample which is never read. As many as may be read ahead before one that is near.
  static constexpr std::size_t most_overtaken = std::size_t{1} << 17U;

  /// Holds at most `most` uses, of 80 bytes each; what is said beyond that is not held.
  explicit announced_uses(std::size_t most = std::size_t{1} << 20U) : most_(most) {}

  /// `who` uses these blocks after all that was said, in order. Without memory it throws, and
  /// holds those before.
  void append(const void* who, std::span<const std::uint64_t> blocks) {
    for (const std::uint64_t block : blocks) {
      if (uses_.size() >= most_) return;
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
  /// `who` takes back what it said. Without memory it throws, and nothing is taken back.
  void retract(const void* who) {
    announced_uses others{most_};
    others.first_ = first_ + uses_.size();
    for (const one_use& one : uses_) {
      if (!one.is_over && one.who != who) others.append(one.who, {&one.block, 1});
    }
    *this = std::move(others);
  }

  /// The place at which `block` is used next.
  [[nodiscard]] std::uint64_t of(std::uint64_t block) const {
    const auto found = places_.find(block);
    return found == places_.end() ? never : found->second.first;
  }
  /// The place at which it is used after that.
  [[nodiscard]] std::uint64_t after(std::uint64_t block) const {
    const auto found = places_.find(block);
    if (found == places_.end()) return never;
    return uses_[static_cast<std::size_t>(found->second.first - first_)].next;
  }
  /// How many uses are held.
  [[nodiscard]] std::size_t size() const noexcept { return uses_.size() - over_; }

  /// `block` was used: its next use is the one after. Calls `given_up(block)` for those whose next
  /// use does not come any more.
  template <class GivenUp>
  void use(std::uint64_t block, const GivenUp& given_up) {
    if (!places_.contains(block)) return;
    end_first_of(block);
    while (!uses_.empty() && (uses_.front().is_over || over_ > most_overtaken)) {
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
    std::uint64_t next = never;  // the place of the block's next one
    bool is_over = false;
  };
  struct ends {  // places of a block's uses
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

  std::size_t most_;
  // Invariant: `places_` has the first and the last of a block's uses that are not over, which are
  // a list by `next`, in the order of their places.
  std::deque<one_use> uses_;
  std::uint64_t first_ = 0;  // the place of the first of them
  std::size_t over_ = 0;     // of `uses_`
  std::unordered_map<std::uint64_t, ends> places_;
};

/// What a cache knows of the blocks that are used next: what its user has told, and while none of
/// that is to come, what those that read have announced. Blocks that are held have the next uses
/// that are known. One thread at a time.
class planned_uses {
 public:
  /// Of the blocks of both, which must outlive it.
  planned_uses(memory_tier& memory, block_disk& disk) noexcept : memory_(&memory), disk_(&disk) {}

  /// The user's order, in place of all that is known.
  void tell(announced_uses uses) {
    foreseen_ = announced_uses{};
    told_ = std::move(uses);
    unnamed_ = 0;
    rearrange();
  }
  /// See `announced_uses::append`; nothing is held while a use is to come that the user has told.
  void append(const void* who, std::span<const std::uint64_t> blocks) {
    if (is_told()) return;
    foreseen_.append(who, blocks);
    for (const std::uint64_t block : blocks) renew(block);
  }
  /// Takes back what `who` foresaw.
  void retract(const void* who) {
    foreseen_.retract(who);
    rearrange();
  }

  /// The place at which `block` is used next.
  [[nodiscard]] std::uint64_t of(std::uint64_t block) const {
    return (is_told() ? told_ : foreseen_).of(block);
  }
  /// The place at which it is used after that.
  [[nodiscard]] std::uint64_t after(std::uint64_t block) const {
    return (is_told() ? told_ : foreseen_).after(block);
  }
  /// `block` was used. An order that the user has told, and of which nothing is used for long, is
  /// forgotten.
  void use(std::uint64_t block) {
    unnamed_ = is_told() && told_.of(block) == never ? unnamed_ + 1 : 0;
    if (unnamed_ > announced_uses::most_overtaken) tell(announced_uses{});
    (is_told() ? told_ : foreseen_).use(block, [&](std::uint64_t gone) { renew(gone); });
  }
  /// How many uses are to come.
  [[nodiscard]] std::size_t size() const noexcept { return (is_told() ? told_ : foreseen_).size(); }

 private:
  [[nodiscard]] bool is_told() const noexcept { return told_.size() != 0; }

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
  announced_uses told_;
  announced_uses foreseen_;
  std::size_t unnamed_ = 0;  // uses of blocks that are not in `told_`, one after the other
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
