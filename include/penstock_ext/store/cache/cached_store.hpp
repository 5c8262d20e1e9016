// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/cache/cached_store_options.hpp>
#include <penstock_ext/store/cache/detail/block_cache.hpp>
#include <penstock_ext/store/support/delete_unless_forked.hpp>
#include <penstock_ext/store/support/kept_store.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A `batching_store` over any store, which keeps blocks of objects in memory and on a local disk,
/// bounded in bytes:
///
///     cached_store near_by{bucket, {.folder = "/nvme/cache", .disk_bytes = 1 << 40}};
///
/// A loader with `ahead.bytes` tells it what comes, see `announce_reads`; else `will_use` may.
///
/// An lvalue store is referred to and must outlive it, an rvalue is moved in. A block is looked for
/// in memory, on the disk, and read from the store below; several threads that need one read it
/// once, and blocks that one call needs are read together, 16 MiB at a time. What goes when room is
/// needed is what is used last of all, or never again as far as that is known (Belady 1966), and of
/// that what was used longest ago.
///
/// Of a block on the disk that memory has no place for, only the part that is wanted is read. Files
/// there carry their block's name, length and sums, and one that is damaged is removed and read
/// anew. A disk that is full, or goes away, makes it slower and no read fail: `stats()` says why.
/// Movable, not copyable. Reading is thread-safe; no lock is held while anything is read or
/// written. A child made by fork() while no other thread waits in it or holds its lock reads anew
/// what others were reading then.
template <byte_store Store>
class cached_store {
 public:
  /// Over `store`. Throws `option_error` for options that mean nothing, and `file_unreadable` for a
  /// folder that can be neither made nor read.
  template <class From>
    requires(!std::same_as<std::remove_cvref_t<From>, cached_store> &&
             std::is_constructible_v<Store, From>)
  explicit cached_store(From&& store,  // NOLINT: hides no copy, see the condition
                        const cached_store_options& options = {})
      : cache_(new detail::block_cache<Store>(std::forward<From>(store), checked(options))) {}

  /// How many bytes `object` has: asked of the store below once, and kept. Throws what that throws.
  [[nodiscard]] std::uint64_t size_of(std::string_view object) const {
    return cache_->object(object).size;
  }

  /// That and the version, where the store below has versions: see `versioned_store`.
  [[nodiscard]] object_state state_of(std::string_view object) const
    requires versioned_store<Store>
  {
    const detail::known_object& known = cache_->object(object);
    return {known.size, known.version};
  }

  /// Reads a range. Throws as `read_many`.
  void read(const byte_range& range) const { cache_->read({&range, 1}); }

  /// Reads all of `ranges`. Throws what the store below throws, and `file_truncated` for a range
  /// that reaches beyond the end of its object.
  void read_many(std::span<const byte_range> ranges) const { cache_->read(ranges); }

  /// Lends a range that lies in one block, where that is in memory, and is at least a 64th of it:
  /// see `borrowable_store`. The block stays until the last copy of the owner is gone, beside what
  /// `memory_bytes` allows.
  [[nodiscard]] std::optional<borrowed_bytes> try_borrow(const upcoming_range& range) const {
    return cache_->try_borrow(range);
  }
  /// Whether `range`, which lies in one block of an object that was asked for, is in memory or on
  /// the disk as far as is known: see `warmable_store`. Of a block on the disk the system is asked
  /// to read what a read of the range needs, if it seems not to have that in memory.
  [[nodiscard]] bool warm(const upcoming_range& range) const { return cache_->warm(range); }

  /// Says which ranges are read from now on, in which order, in place of what was said before: an
  /// order is known before it is used. What is not named goes first, and what comes after 2^24
  /// blocks counts as not named. A wrong order costs hits and nothing else. A range that reaches
  /// beyond the end of its object ends there. Takes 80 bytes for a block of a range. While such
  /// ranges are to come, they go before what was foreseen; an empty order takes all back, and so do
  /// 2^17 uses of other blocks, one after the other. For a range of more than 4096 blocks the
  /// object's size is asked for, and it throws what the store below throws. From any thread, at
  /// best between two epochs.
  void will_use(std::span<const upcoming_range> ranges) const { cache_->will_use(ranges); }

  /// As `will_use`, for those that read through it and tell on what they will read: a loader with
  /// `ahead.bytes` does, over `stored_blobs`. See `planned_store`. Not noted while ranges are to
  /// come that `will_use` has named, nor beyond 2^20 uses of blocks, of 80 bytes each. A use that
  /// 2^17 later ones have overtaken counts as not coming. Where the size of an object is not known
  /// yet, a range of more than 4096 blocks counts as its first one: nothing is asked for.
  void announce_reads(const void* who, std::span<const upcoming_range> ranges) const {
    cache_->announce_reads(who, ranges);
  }
  /// Takes back what `who` foresaw.
  void retract(const void* who) const { cache_->retract(who); }
  /// How many bytes it is of use to announce: 2^19 blocks.
  [[nodiscard]] std::uint64_t plan_capacity() const noexcept {
    return cache_->options().block_bytes << 19U;
  }

  /// What was done so far, and what is held now. From any thread.
  [[nodiscard]] cached_store_stats stats() const { return cache_->stats(); }

 private:
  static const cached_store_options& checked(const cached_store_options& options) {
    constexpr std::uint64_t most = std::uint64_t{1} << 30;
    if (options.block_bytes < 1 || options.block_bytes > most) {
      throw option_error("block_bytes", std::to_string(options.block_bytes) + " is not from 1 to " +
                                            std::to_string(most));
    }
    return options;
  }

  std::unique_ptr<detail::block_cache<Store>, detail::delete_unless_forked> cache_;
};

/// Over a store that is referred to where it is an lvalue, and else moved in.
template <class Store>
cached_store(Store&&, const cached_store_options& = {}) -> cached_store<detail::kept_store<Store>>;

}  // namespace PENSTOCK_ABI
}  // namespace penstock
