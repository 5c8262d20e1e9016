// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/threads/support/exit_handler.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/store/byte_store.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A blob within an object in a store.
struct stored_blob {
  /// Value of `length` for a blob that extends to the end of the object.
  static constexpr std::uint64_t to_end = (std::numeric_limits<std::uint64_t>::max)();

  std::string object;             ///< Object name in the store.
  std::uint64_t offset = 0;       ///< Offset of the first byte in the object.
  std::uint64_t length = to_end;  ///< Length in bytes.
  std::int64_t label = 0;         ///< Class of the sample.
  std::string key = {};           ///< Name for messages. If empty, the object name is used.
};

/// Options of `stored_blobs`.
struct stored_blobs_options {
  /// Maximum total size in bytes of blobs that `prefetch` reads in advance. 0 disables prefetching.
  /// Memory is reused for blobs of similar size, so up to 1.75 times this size is allocated.
  std::uint64_t read_ahead = std::uint64_t{32} << 20;
  /// Maximum number of prefetch threads, from 1 to 256. Each thread has up to 16 blobs in flight.
  /// Two threads suffice for nearby storage. More threads start if reads take milliseconds and
  /// blobs are queued.
  std::size_t threads = 16;
  /// Maximum blob size in bytes. For a larger blob, `bytes` throws `file_format_error` before it
  /// allocates memory.
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
};

/// Prefetch counters.
struct stored_blobs_stats {
  std::uint64_t ahead = 0;    ///< Number of requested blobs that had been prefetched.
  std::uint64_t ready = 0;    ///< Number of requested blobs that were available without waiting.
  std::uint64_t in_vain = 0;  ///< Number of prefetched blobs that were dropped unused to make room.
};

namespace detail {

/// A pool of used buffers. Reuse avoids mapping and clearing new pages for each blob. The number of
/// buffers and their total size are limited. Never allocates. Not thread-safe.
class spare_buffers {
 public:
  /// Maximum number of buffers.
  static constexpr std::size_t max_buffers = 64;

  /// Creates a pool of up to `max_bytes` bytes.
  explicit spare_buffers(std::uint64_t max_bytes) noexcept : max_bytes_(max_bytes) {}

  /// Removes and returns the smallest buffer with a capacity between `bytes` and 1.5 times `bytes`.
  /// Returns an empty buffer if none matches.
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

  /// Moves `buffer` into the pool and drops other buffers to make room. If `buffer` exceeds the
  /// limit, leaves it unchanged.
  void keep(blob_buffer& buffer) noexcept {
    const std::size_t room = buffer.capacity();
    if (room == 0 || room > max_bytes_) return;
    while (bytes_ + room > max_bytes_) drop_next();
    auto place = std::find_if(buffers_.begin(), buffers_.end(),
                              [](const blob_buffer& one) { return one.capacity() == 0; });
    if (place == buffers_.end()) place = drop_next();
    *place = std::move(buffer);
    bytes_ += room;
  }

  /// Returns the total size of the pooled buffers in bytes.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  using places = std::array<blob_buffer, max_buffers>;

  // Drops buffers in round-robin order, so that buffers of unused sizes eventually disappear.
  places::iterator drop_next() noexcept {
    const auto place = buffers_.begin() + static_cast<std::ptrdiff_t>(next_);
    next_ = (next_ + 1) % max_buffers;
    bytes_ -= place->capacity();
    *place = {};
    return place;
  }

  std::uint64_t max_bytes_;
  std::uint64_t bytes_ = 0;  // total size of `buffers_`; moved-from buffers are empty
  std::size_t next_ = 0;     // the next buffer to drop
  places buffers_;
};

/// Prefetches blobs on background threads, up to a total size. Thread-safe.
///
/// The threads call
/// `read(std::span<const std::uint64_t> indices, std::span<const std::span<std::byte>> out)`.
/// `read` must outlive this object. A child created by fork() does not have the threads, and any
/// lock may be held forever there. Therefore the child prefetches nothing, and
/// `delete_unless_forked` does not destroy the object. `Clock` measures the duration of reads and
/// can be replaced in tests.
template <class Read, class Clock = std::chrono::steady_clock>
class blob_read_ahead {
 public:
  /// Creates a prefetcher that holds up to `max_bytes` of queued, in-flight and ready blobs. The
  /// first blob starts two threads. If reads are slow and blobs are queued, more threads start, up
  /// to `threads`.
  blob_read_ahead(const Read& read, std::uint64_t max_bytes, std::size_t threads)
      : read_(read), max_bytes_(max_bytes), max_threads_(threads), spares_(max_bytes / 4) {}
  blob_read_ahead(const blob_read_ahead&) = delete;
  blob_read_ahead& operator=(const blob_read_ahead&) = delete;
  ~blob_read_ahead() {
    {
      const std::lock_guard lock{mutex_};
      ends_ = true;
    }
    wanted_.notify_all();
    for (std::thread& one : threads_) join_unless_caller(one);
  }

  /// Queues a read of blob `index`, which has `bytes` bytes. Drops the oldest unrequested ready
  /// blobs to make room. Does nothing if there is still no room. A blob that is already queued or
  /// read becomes the youngest.
  void want(std::uint64_t index, std::uint64_t bytes) {
    if (!is_in_own_process()) return;
    const std::lock_guard lock{mutex_};
    if (bytes > max_bytes_ || is_renewed(index) || !start()) return;
    while (bytes_ + bytes > max_bytes_) {
      const auto oldest = std::find_if(blobs_.begin(), blobs_.end(), [](const blob& one) {
        return one.state == blob_state::ready;
      });
      if (oldest == blobs_.end()) return;
      ++stats_.in_vain;
      erase(oldest);
    }
    // All operations that may throw precede the first modification.
    if (queue_.size() == queue_.capacity()) queue_.reserve(2 * queue_.size() + max_together);
    blobs_by_age made;
    made.push_back({index, bytes});
    places_.emplace(index, made.begin());
    blobs_.splice(blobs_.end(), made);
    bytes_ += bytes;
    queue_.push_back(std::prev(blobs_.end()));
    wanted_.notify_one();
  }

  /// If blob `index` was prefetched, moves it into `buffer` and pools the buffer's old memory.
  /// Waits if the blob is being read. Returns nothing if no thread reads the blob or the read
  /// failed. The caller must then read the blob.
  [[nodiscard]] std::optional<std::span<const std::byte>> take(std::uint64_t index,
                                                               blob_buffer& buffer) {
    if (is_in_child()) return std::nullopt;
    buffer.hold(nullptr);  // a pooled buffer must not keep an owner alive
    std::unique_lock lock{mutex_};
    for (bool waited = false;; waited = true) {
      const auto found = places_.find(index);
      if (found == places_.end()) return std::nullopt;
      const auto one = found->second;
      if (one->state == blob_state::queued) {
        std::erase(queue_, one);
        erase(one);
        return std::nullopt;
      }
      if (one->state == blob_state::ready) {
        blob_buffer spare = std::exchange(buffer, std::move(one->memory));
        const auto size = static_cast<std::size_t>(one->bytes);
        ++stats_.ahead;
        stats_.ready += waited ? 0U : 1U;
        erase(one);
        spares_.keep(spare);
        lock.unlock();  // so that `spare` is destroyed without the lock
        return buffer.room_for(size);
      }
      ended_.wait(lock);
    }
  }

  /// Returns true if the calling process owns the prefetch threads. The first caller becomes the
  /// owner.
  [[nodiscard]] bool is_in_own_process() noexcept {
    ::pid_t none = 0;
    process_.compare_exchange_strong(none, ::getpid(), std::memory_order_relaxed);
    return !is_in_child();
  }
  /// Returns true in a child process of the process that owns the prefetch threads.
  [[nodiscard]] bool is_in_child() const noexcept {
    const ::pid_t process = process_.load(std::memory_order_relaxed);
    return process != 0 && process != ::getpid();
  }

  /// Returns the current counters, or zeros in a child process.
  [[nodiscard]] stored_blobs_stats stats() const {
    if (is_in_child()) return {};
    const std::lock_guard lock{mutex_};
    return stats_;
  }

 private:
  enum class blob_state : std::uint8_t { queued, reading, ready };
  struct blob {
    std::uint64_t index;
    std::uint64_t bytes;
    blob_state state = blob_state::queued;
    blob_buffer memory = {};
  };
  using blobs_by_age = std::list<blob>;
  using place = typename blobs_by_age::iterator;

  // Maximum number of blobs in one read call, which become ready together.
  static constexpr std::size_t max_together = 16;
  static constexpr std::size_t first_threads = 2;  // enough for nearby storage
  static constexpr std::chrono::milliseconds long_call{2};

  // Returns true if blob `index` is queued or read, and makes it the youngest. The caller of this
  // function and of the functions below must hold the mutex.
  bool is_renewed(std::uint64_t index) {
    const auto found = places_.find(index);
    if (found == places_.end()) return false;
    blobs_.splice(blobs_.end(), blobs_, found->second);
    return true;
  }

  bool start() {  // starts the first threads; returns true if at least one thread runs
    while (threads_.size() < (std::min)(first_threads, max_threads_) && add_thread()) {
    }
    return !threads_.empty();
  }

  bool add_thread() noexcept {
    try {
      threads_.emplace_back([this] { work(); });
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  void erase(place one) {
    bytes_ -= one->bytes;
    places_.erase(one->index);
    blobs_.erase(one);
  }

  void work() {
    std::unique_lock lock{mutex_};
    std::array<place, max_together> places;
    while (true) {
      wanted_.wait(lock, [&] { return ends_ || !queue_.empty(); });
      if (ends_) return;
      const auto claimed = std::span{places}.first((std::min)(max_together, queue_.size()));
      const auto end = queue_.begin() + std::ssize(claimed);
      std::copy(queue_.begin(), end, claimed.begin());
      queue_.erase(queue_.begin(), end);
      for (const place one : claimed) {
        one->state = blob_state::reading;  // only this thread uses the memory until the blob is
                                           // ready
        one->memory = spares_.take(static_cast<std::size_t>(one->bytes));
      }
      lock.unlock();
      const auto called = Clock::now();
      const bool is_read = try_read(claimed);
      const bool is_long = Clock::now() - called >= long_call;
      lock.lock();
      finish(claimed, is_read);
      // After the destructor has taken the lock, no thread may start, because the destructor joins
      // only existing threads.
      if (is_long && !ends_ && !queue_.empty() && threads_.size() < max_threads_) add_thread();
    }
  }

  // Marks the blobs of a read call as ready if `are_read` is true, otherwise erases them. Wakes all
  // waiting threads.
  void finish(std::span<const place> blobs, bool are_read) noexcept {
    for (const place one : blobs) {
      if (are_read) {
        one->state = blob_state::ready;
      } else {
        erase(one);
      }
    }
    ended_.notify_all();
  }

  bool try_read(std::span<const place> blobs) noexcept {
    const exit_handler handler{[&] {
      const std::lock_guard lock{mutex_};
      finish(blobs, false);
    }};
    try {
      std::vector<std::uint64_t> indices;
      std::vector<std::span<std::byte>> out;
      for (const place one : blobs) {
        indices.push_back(one->index);
        out.push_back(one->memory.room_for(static_cast<std::size_t>(one->bytes)));
      }
      read_(std::span<const std::uint64_t>{indices}, std::span<const std::span<std::byte>>{out});
      return true;
    } catch (...) {
      return false;  // the thread that requests the blob repeats the read and reports the error
    }
  }

  const Read& read_;
  const std::uint64_t max_bytes_;
  const std::size_t max_threads_;
  // The first process that called `is_in_own_process`, or 0. Relaxed ordering suffices, because a
  // child process sees values stored before the fork.
  std::atomic<::pid_t> process_{0};
  mutable std::mutex mutex_;  // guards the members below; not held during reads
  std::condition_variable wanted_;
  std::condition_variable ended_;
  std::vector<std::thread> threads_;
  bool ends_ = false;
  blobs_by_age blobs_;  // oldest first
  // Position of each blob in `blobs_`, by blob index.
  std::unordered_map<std::uint64_t, place> places_;
  std::vector<place> queue_;
  std::uint64_t bytes_ = 0;  // total size of `blobs_`
  spare_buffers spares_;
  stored_blobs_stats stats_;
};

/// Announces future reads of blobs to a store. The destructor withdraws the announcements.
/// Thread-safe.
template <byte_store Store>
class planned_reads {
 public:
  /// References `store` and `blobs`, which must outlive this object.
  planned_reads(const Store& store, const std::vector<stored_blob>& blobs) noexcept
      : store_(store), blobs_(blobs) {}
  planned_reads(const planned_reads&) = delete;
  planned_reads& operator=(const planned_reads&) = delete;
  ~planned_reads() {
    try {
      retract();
    } catch (...) {
      // A remaining announcement affects only performance.
    }
  }

  /// Implements `stored_blobs::access_plan`.
  void access_plan(std::span<const std::uint64_t> indices)
    requires planned_store<Store>
  {
    if (indices.empty()) return retract();
    std::vector<upcoming_range> ranges;
    for (const std::uint64_t index : indices) {
      if (index >= blobs_.size()) continue;
      const stored_blob& one = blobs_[static_cast<std::size_t>(index)];
      ranges.push_back({one.object, one.offset, one.length});
    }
    process_.store(::getpid(), std::memory_order_relaxed);
    store_.announce_reads(this, ranges);
  }
  /// Implements `stored_blobs::plan_capacity`.
  [[nodiscard]] std::uint64_t capacity() const
    requires planned_store<Store>
  {
    std::uint64_t bytes = 0;
    std::uint64_t known = 0;
    for (const stored_blob& one : blobs_) {
      if (one.length == stored_blob::to_end) continue;
      bytes += one.length;
      ++known;
    }
    const std::uint64_t max = store_.plan_capacity();
    if (known == 0) return max;
    const std::uint64_t mean = (std::max)(std::uint64_t{1}, bytes / known);
    return mean > max / max_blobs ? max : mean * max_blobs;
  }

 private:
  static constexpr std::uint64_t max_blobs = std::uint64_t{1} << 19;

  // In a child created by fork(), the store's lock may be held forever.
  void retract() {
    if constexpr (planned_store<Store>) {
      if (process_.load(std::memory_order_relaxed) == ::getpid()) store_.retract(this);
    }
  }

  const Store& store_;
  const std::vector<stored_blob>& blobs_;
  // The process that last called `access_plan`, or 0. Relaxed ordering suffices, because a child
  // process sees values stored before the fork.
  std::atomic<::pid_t> process_{0};
};

}  // namespace detail

/// A `blob_source` of byte ranges in a store:
///
///     local_store disk{"/data"};
///     stored_blobs photos{disk, {{"a.jpg"}, {"shard.bin", 4096, 1000, 3, "cow 7"}}};
///
/// An lvalue store is referenced and must outlive this object; an rvalue is moved in. Each blob
/// occupies 100 bytes plus its names. Background threads read the blobs that `prefetch` requests,
/// in batches if the store supports them. The threads skip blobs that a `warmable_store` already
/// has nearby. Prefetching has no effect on the content of blobs.
///
/// Movable, not copyable. Reading is thread-safe. A child created by fork() after a `prefetch` does
/// not prefetch.
template <byte_store Store>
class stored_blobs {
 public:
  /// Creates a source of `blobs` in `store`. Throws `option_error` if an option is out of range.
  template <class From>
    requires std::is_constructible_v<Store, From>
  stored_blobs(From&& store, std::vector<stored_blob> blobs,
               const stored_blobs_options& options = {})
      : state_(std::make_unique<state>(std::forward<From>(store), std::move(blobs), options)) {}

  /// Returns the number of blobs.
  [[nodiscard]] std::uint64_t size() const noexcept { return state_->blobs.size(); }

  /// Returns blob `index`, read into `buffer`. If a `borrowable_store` returns its own memory,
  /// `buffer` holds the owner. Throws `index_error`, `file_format_error` if the blob exceeds
  /// `max_bytes`, `file_truncated` if the object ends before `offset`, and errors from the store.
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index, blob_buffer& buffer) const {
    const stored_blob& one = at(index);
    if (state_->reads_ahead()) {
      if (const auto found = state_->ahead->take(index, buffer)) return *found;
    }
    const std::uint64_t size = one.length == stored_blob::to_end ? rest_of(one) : one.length;
    if (size > state_->options.max_bytes) {
      detail::throw_blob_too_large(one.object, one.offset, state_->options.max_bytes, size);
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

  /// Returns the label of blob `index`. Throws `index_error` if `index` is out of range.
  [[nodiscard]] std::int64_t label(std::uint64_t index) const { return at(index).label; }
  /// Returns the key of blob `index`. Throws `index_error` if `index` is out of range.
  [[nodiscard]] std::string key(std::uint64_t index) const {
    const stored_blob& one = at(index);
    return one.key.empty() ? one.object : one.key;
  }

  /// Queues the blobs `indices` for prefetching, up to `read_ahead` bytes. Ignores blobs without a
  /// `length`, blobs that the store has nearby, and indices out of range. If a prefetch fails, the
  /// later call to `bytes` throws the error.
  void prefetch(std::span<const std::uint64_t> indices) const noexcept {
    for (const std::uint64_t index : indices) prefetch(index);
  }
  /// Queues one blob for prefetching.
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
      // If memory runs out, `bytes` reads the blob later.
    }
  }

  /// Returns the size of blob `index` in bytes, or 0 if its `length` was not specified or the index
  /// is out of range.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const noexcept {
    if (index >= size()) return 0;
    const std::uint64_t bytes = state_->blobs[static_cast<std::size_t>(index)].length;
    return bytes == stored_blob::to_end ? 0 : bytes;
  }
  /// Returns `read_ahead`, the maximum total size of prefetched blobs in bytes.
  [[nodiscard]] std::uint64_t prefetch_capacity() const noexcept {
    return state_->options.read_ahead;
  }

  /// Announces to a `planned_store`, such as a `cached_store`, that the blobs `indices` will each
  /// be read once, after the blobs of earlier calls. An empty list and the destructor withdraw all
  /// announcements. Ignores indices out of range. Propagates errors from the store.
  void access_plan(std::span<const std::uint64_t> indices) const
    requires planned_store<Store>
  {
    state_->foreseen.access_plan(indices);
  }
  /// Returns the maximum total size in bytes of blobs worth announcing: the store's
  /// `plan_capacity`, limited to 2^19 blobs of mean length.
  [[nodiscard]] std::uint64_t plan_capacity() const
    requires planned_store<Store>
  {
    return state_->foreseen.capacity();
  }

  /// Returns the current prefetch counters. Any thread may call this.
  [[nodiscard]] stored_blobs_stats stats() const { return state_->ahead->stats(); }

 private:
  struct state {
    template <class From>
    state(From&& from, std::vector<stored_blob> list, const stored_blobs_options& requested)
        : store(std::forward<From>(from)), blobs(std::move(list)), options(requested) {
      if (options.threads < 1 || options.threads > 256) {
        throw option_error("threads", std::to_string(options.threads) + " is not from 1 to 256");
      }
    }
    [[nodiscard]] bool reads_ahead() const noexcept { return options.read_ahead > 0; }
    // Reads blobs for the prefetch threads.
    void operator()(std::span<const std::uint64_t> indices,
                    std::span<const std::span<std::byte>> out) const {
      std::vector<byte_range> ranges;
      for (std::size_t i = 0; i < indices.size(); ++i) {
        const stored_blob& one = blobs[static_cast<std::size_t>(indices[i])];
        ranges.push_back({one.object, one.offset, out[i]});
      }
      detail::read_ranges(store, std::span<const byte_range>{ranges});
    }

    const Store store;
    const std::vector<stored_blob> blobs;
    const stored_blobs_options options;
    mutable detail::planned_reads<Store> foreseen{store, blobs};
    using read_ahead = detail::blob_read_ahead<state>;
    const std::unique_ptr<read_ahead, detail::delete_unless_forked> ahead{
        new read_ahead{*this, options.read_ahead, options.threads}};
  };

  [[nodiscard]] const stored_blob& at(std::uint64_t index) const {
    if (index >= size()) throw index_error("stored_blobs", index, size());
    return state_->blobs[static_cast<std::size_t>(index)];
  }

  [[nodiscard]] std::uint64_t rest_of(const stored_blob& one) const {
    const std::uint64_t size = state_->store.size_of(one.object);
    if (one.offset <= size) return size - one.offset;
    throw file_truncated(one.object, size,
                         "a blob that starts at byte " + std::to_string(one.offset),
                         "the end of the object");
  }

  std::unique_ptr<state> state_;
};

/// Deduces a reference for an lvalue store and a value for an rvalue store.
template <class Store>
stored_blobs(Store&&, std::vector<stored_blob>,
             const stored_blobs_options& = {}) -> stored_blobs<detail::store_member<Store>>;

}  // namespace PENSTOCK_ABI
}  // namespace penstock
