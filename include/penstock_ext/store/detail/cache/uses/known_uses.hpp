// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/detail/cache/disk/block_disk.hpp>
#include <penstock_ext/store/detail/cache/memory_tier.hpp>
#include <penstock_ext/store/detail/cache/uses/foreseen_uses.hpp>
#include <penstock_ext/store/detail/cache/uses/next_uses.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What a cache knows of the blocks that are used next: what its user has told, and while none of
/// that is to come, what those foresee that read. Blocks that are held have the next uses that are
/// known. One thread at a time.
class known_uses {
 public:
  /// Of the blocks of both, which must outlive it.
  known_uses(memory_tier& memory, block_disk& disk) noexcept : memory_(&memory), disk_(&disk) {}

  /// The user's order, in place of all that is known.
  void tell(next_uses uses) {
    foreseen_ = foreseen_uses{};
    told_ = std::move(uses);
    rearrange();
  }
  /// See `foreseen_uses::append`; nothing is held while a use is to come that the user has told.
  void append(const void* who, std::span<const std::uint64_t> blocks) {
    if (is_told()) return;
    foreseen_.append(who, blocks);
    for (const std::uint64_t block : blocks) renew(block);
  }
  /// Takes back what `who` foresaw.
  void forget(const void* who) {
    foreseen_.forget(who);
    rearrange();
  }

  /// The place at which `block` is used next.
  [[nodiscard]] std::uint64_t of(std::uint64_t block) const {
    return is_told() ? told_.of(block) : foreseen_.of(block);
  }
  /// The place at which it is used after that.
  [[nodiscard]] std::uint64_t after(std::uint64_t block) const {
    return is_told() ? told_.after(block) : foreseen_.after(block);
  }
  /// `block` was used.
  void use(std::uint64_t block) {
    if (is_told()) {
      told_.use(block);
    } else {
      foreseen_.use(block, [&](std::uint64_t gone) { renew(gone); });
    }
  }
  /// How many uses are to come.
  [[nodiscard]] std::size_t size() const noexcept {
    return is_told() ? told_.size() : foreseen_.size();
  }

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
  next_uses told_;
  foreseen_uses foreseen_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
