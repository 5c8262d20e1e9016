// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/blob/detail/ahead/blob_read_ahead.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/store/byte_store.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Tells a store which blobs are read far ahead, and takes it back in the end. `Blob` is a
/// `stored_blob`. From any thread.
template <byte_store Store, class Blob>
class planned_reads {
 public:
  /// Both must outlive it.
  planned_reads(const Store& store, const std::vector<Blob>& blobs) noexcept
      : store_(store), blobs_(blobs) {}
  planned_reads(const planned_reads&) = delete;
  planned_reads& operator=(const planned_reads&) = delete;
  ~planned_reads() {
    try {
      retract();
    } catch (...) {
      // What the store knows in excess costs speed at most.
    }
  }

  /// As `stored_blobs::access_plan`.
  void access_plan(std::span<const std::uint64_t> indices)
    requires planned_store<Store>
  {
    if (indices.empty()) return retract();
    std::vector<upcoming_range> ranges;
    for (const std::uint64_t index : indices) {
      if (index >= blobs_.size()) continue;
      const Blob& one = blobs_[static_cast<std::size_t>(index)];
      ranges.push_back({one.object, one.offset, one.length});
    }
    process_.store(::getpid(), std::memory_order_relaxed);
    store_.announce_reads(this, ranges);
  }
  /// As `stored_blobs::plan_capacity`.
  [[nodiscard]] std::uint64_t most() const
    requires planned_store<Store>
  {
    std::uint64_t bytes = 0;
    std::uint64_t known = 0;
    for (const Blob& one : blobs_) {
      if (one.length == Blob::to_end) continue;
      bytes += one.length;
      ++known;
    }
    const std::uint64_t most = store_.plan_capacity();
    if (known == 0) return most;
    const std::uint64_t mean = (std::max)(std::uint64_t{1}, bytes / known);
    return mean > most / most_blobs ? most : mean * most_blobs;
  }

 private:
  static constexpr std::uint64_t most_blobs = std::uint64_t{1} << 19;

  // In a child made by fork() the store's lock may be held.
  void retract() {
    if constexpr (planned_store<Store>) {
      if (process_.load(std::memory_order_relaxed) == ::getpid()) store_.retract(this);
    }
  }

  const Store& store_;
  const std::vector<Blob>& blobs_;
  // Of the last `access_plan`, or 0. Relaxed: a child has what was stored before the fork.
  std::atomic<::pid_t> process_{0};
};

}  // namespace detail

/// A blob that lies in an object of a store.
struct stored_blob {
  /// Of `length`: to the end of the object.
  static constexpr std::uint64_t to_end = (std::numeric_limits<std::uint64_t>::max)();

  std::string object;             ///< the object's name in its store
  std::uint64_t offset = 0;       ///< of the blob's first byte
  std::uint64_t length = to_end;  ///< in bytes
  std::int64_t label = 0;         ///< any number
  std::string key = {};           ///< names it for people; "": as the object
};

/// How `stored_blobs` reads.
struct stored_blobs_options {
  /// How many bytes of blobs are read before they are asked for, by `prefetch`; 0: none. Their
  /// memory is used again for blobs of about their size: up to 1.75 times as many bytes are taken.
  std::uint64_t read_ahead = std::uint64_t{32} << 20;
  /// How many threads do so at most, from 1 to 256. Each has up to 16 blobs under way. Two do for
  /// storage that is near; more of them start while reads take milliseconds and blobs wait.
  std::size_t threads = 16;
  /// The largest blob that is read, in bytes: `bytes` throws `file_format_error` for a larger one,
  /// before it takes memory.
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
};

/// What `prefetch` came to.
struct stored_blobs_stats {
  std::uint64_t ahead = 0;    ///< blobs that were read ahead, and asked for
  std::uint64_t ready = 0;    ///< those of them that were there: nobody had to wait
  std::uint64_t in_vain = 0;  ///< blobs that were read ahead, and dropped for others
};

/// Blobs in a store, from a list: a `blob_source`.
///
///     local_store disk{"/data"};
///     stored_blobs photos{disk, {{"a.jpg"}, {"shard.bin", 4096, 1000, 3, "cow 7"}}};
///
/// An lvalue store is referred to and must outlive it, an rvalue is moved in. Takes 100 bytes and
/// the names for a blob. What `prefetch` names is read by threads of its own, many at a time where
/// the store can, but for what a `warmable_store` has near; blobs are the same with and without.
/// Movable, not copyable. Reading is thread-safe. In a child made by fork() after a `prefetch`
/// nothing is read ahead.
template <byte_store Store>
class stored_blobs {
 public:
  /// Over `store`. Throws `option_error` for options that mean nothing.
  template <class From>
    requires std::is_constructible_v<Store, From>
  stored_blobs(From&& store, std::vector<stored_blob> blobs,
               const stored_blobs_options& options = {})
      : state_(std::make_unique<state>(std::forward<From>(store), std::move(blobs), options)) {}

  /// How many blobs there are.
  [[nodiscard]] std::uint64_t size() const noexcept { return state_->blobs.size(); }

  /// Blob `index`: in `buffer`, or where a `borrowable_store` has it, which `buffer` then holds.
  /// Throws `index_error`, `file_format_error` above `max_bytes`, `file_truncated` where the
  /// object ends before `offset`, and what the store throws.
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index, blob_buffer& buffer) const {
    const stored_blob& one = at(index);
    if (state_->reads_ahead()) {
      if (const auto found = state_->ahead->take(index, buffer)) return *found;
    }
    const std::uint64_t size = one.length == stored_blob::to_end ? rest_of(one) : one.length;
    if (size > state_->options.max_bytes) {
      throw file_format_error(
          one.object, one.offset,
          "at most " + std::to_string(state_->options.max_bytes) + " bytes (max_bytes)",
          std::to_string(size));
    }
    if constexpr (borrowable_store<Store>) {
      if (auto lent = state_->store.try_borrow({one.object, one.offset, size})) {
        buffer.hold(std::move(lent->owner));
        return lent->bytes;
      }
    }
    const std::span<std::byte> out = buffer.room_for(static_cast<std::size_t>(size));
    state_->store.read({one.object, one.offset, out});
    return out;
  }

  /// The label of blob `index`. Throws `index_error`.
  [[nodiscard]] std::int64_t label(std::uint64_t index) const { return at(index).label; }
  /// The key of blob `index`. Throws `index_error`.
  [[nodiscard]] std::string key(std::uint64_t index) const {
    const stored_blob& one = at(index);
    return one.key.empty() ? one.object : one.key;
  }

  /// Has the blobs `indices` read soon, as far as `read_ahead` allows. Those whose `length` was
  /// not given, those that are near, and those out of range are left alone. What fails fails
  /// where it is asked for.
  void prefetch(std::span<const std::uint64_t> indices) const noexcept {
    for (const std::uint64_t index : indices) prefetch(index);
  }
  /// Has one blob read soon.
  void prefetch(std::uint64_t index) const noexcept {
    if (!state_->reads_ahead() || index >= size() || !state_->ahead->is_in_own_process()) return;
    const stored_blob& one = state_->blobs[static_cast<std::size_t>(index)];
    if (one.length > state_->options.max_bytes) return;
    try {
      if constexpr (warmable_store<Store>) {
        if (state_->store.warm({one.object, one.offset, one.length})) return;
      }
      state_->ahead->want(index, one.length);
    } catch (...) {
      // Without memory it is read when it is asked for.
    }
  }

  /// The bytes of blob `index`; 0 where its `length` was not given, and out of range.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const noexcept {
    if (index >= size()) return 0;
    const std::uint64_t bytes = state_->blobs[static_cast<std::size_t>(index)].length;
    return bytes == stored_blob::to_end ? 0 : bytes;
  }
  /// How many bytes of blobs are kept ahead: `read_ahead`.
  [[nodiscard]] std::uint64_t prefetch_capacity() const noexcept {
    return state_->options.read_ahead;
  }

  /// Tells a store that wants to know it, as a `cached_store` does, that the blobs `indices` are
  /// read after those of earlier calls, each once; an empty list takes back what earlier calls
  /// said, as the source's end does. Those out of range are left alone. Throws what the store
  /// throws.
  void access_plan(std::span<const std::uint64_t> indices) const
    requires planned_store<Store>
  {
    state_->foreseen.access_plan(indices);
  }
  /// How many bytes of blobs it is of use to announce: as the store says, and no more than 2^19
  /// blobs of the mean length.
  [[nodiscard]] std::uint64_t plan_capacity() const
    requires planned_store<Store>
  {
    return state_->foreseen.most();
  }

  /// What `prefetch` came to so far. From any thread.
  [[nodiscard]] stored_blobs_stats stats() const {
    const auto came = state_->ahead->counted();
    return {came.used, came.ready, came.dropped};
  }

 private:
  struct state;
  // How blobs are read ahead.
  struct ranges_reader {
    const state* of;
    void operator()(std::span<const std::uint64_t> indices,
                    std::span<const std::span<std::byte>> out) const {
      std::vector<byte_range> ranges;
      for (std::size_t i = 0; i < indices.size(); ++i) {
        const stored_blob& one = of->blobs[static_cast<std::size_t>(indices[i])];
        ranges.push_back({one.object, one.offset, out[i]});
      }
      detail::read_ranges(of->store, std::span<const byte_range>{ranges});
    }
  };

  struct state {
    template <class From>
    state(From&& from, std::vector<stored_blob> list, const stored_blobs_options& wishes)
        : store(std::forward<From>(from)), blobs(std::move(list)), options(wishes) {
      if (options.threads < 1 || options.threads > 256) {
        throw option_error("threads", std::to_string(options.threads) + " is not from 1 to 256");
      }
    }
    [[nodiscard]] bool reads_ahead() const noexcept { return options.read_ahead > 0; }

    const Store store;
    const std::vector<stored_blob> blobs;
    const stored_blobs_options options;
    mutable detail::planned_reads<Store, stored_blob> foreseen{store, blobs};
    const ranges_reader reader{this};
    using read_ahead = detail::blob_read_ahead<ranges_reader>;
    const std::unique_ptr<read_ahead, detail::delete_unless_forked> ahead{
        new read_ahead{reader, options.read_ahead, options.threads}};
  };

  [[nodiscard]] const stored_blob& at(std::uint64_t index) const {
    if (index >= size()) throw index_error("stored_blobs", index, size());
    return state_->blobs[static_cast<std::size_t>(index)];
  }

  [[nodiscard]] std::uint64_t rest_of(const stored_blob& one) const {
    const std::uint64_t size = state_->store.size_of(one.object);
    if (one.offset <= size) return size - one.offset;
    throw file_truncated(one.object, size, "a blob from byte " + std::to_string(one.offset) + " on",
                         "the end of the object");
  }

  std::unique_ptr<state> state_;
};

/// Of a store that is referred to where it is an lvalue, and else moved in.
template <class Store>
stored_blobs(Store&&, std::vector<stored_blob>,
             const stored_blobs_options& = {}) -> stored_blobs<detail::kept_store<Store>>;

}  // namespace PENSTOCK_ABI
}  // namespace penstock
