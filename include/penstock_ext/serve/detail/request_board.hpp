// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/support/joined.hpp>
#include <penstock/core/version.hpp>
#include <penstock/threads/support/deadline.hpp>
#include <penstock_ext/serve/detail/consumer_signal.hpp>
#include <penstock_ext/serve/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The free slots of a `batcher`, in order of return. A slot that is returned with a copy in flight
/// becomes free at the end of the copy, which the memory tracks. Not thread-safe.
class free_requests {
 public:
  /// All of `count` slots are free.
  explicit free_requests(std::size_t count) : is_copied_(count) {
    free_.reserve(count);
    for (std::uint32_t slot = 0; slot < count; ++slot) free_.push_back(slot);
  }

  /// Whether it has no slots.
  [[nodiscard]] bool is_empty() const noexcept { return free_.empty(); }
  /// Returns a slot.
  void give(std::uint32_t slot, bool behind_copy) noexcept {
    is_copied_[slot] = behind_copy ? 1 : 0;
    free_.push_back(slot);
  }
  /// Takes the first slot that no copy is reading. Throws what the device throws.
  template <class Memory>
  [[nodiscard]] std::optional<std::uint32_t> take(Memory& memory) {
    for (auto at = free_.begin(); at != free_.end(); ++at) {
      const std::uint32_t slot = *at;
      if (is_copied_[slot] != 0 && !memory.is_drained(slot)) continue;
      if (is_copied_[slot] != 0) memory.renew(slot);
      free_.erase(at);
      return slot;
    }
    return std::nullopt;
  }

 private:
  std::vector<std::uint32_t> free_;
  std::vector<std::uint8_t> is_copied_;  // by slot
};

/// The batch in a slot of a `batcher`: the tags of its requests, and their progress. Not
/// thread-safe.
class request_slot {
 public:
  /// Room for `most` requests.
  explicit request_slot(std::size_t most) : tags_(most), is_hole_(most) {}

  deadline due;  ///< when the batch is handed out even if it is not full

  /// Begins an empty batch, which is due at `end`.
  void begin(deadline end) noexcept {
    count_ = 0;
    due = end;
  }
  /// Adds a request that is about to be written; returns its position.
  [[nodiscard]] std::size_t add(std::uint64_t tag) noexcept {
    tags_[count_] = tag;
    ++writing_;
    return count_++;
  }
  /// Notes that a request was written, or that its write has thrown.
  void note_end(std::size_t position, bool is_written) noexcept {
    is_hole_[position] = is_written ? 0 : 1;
    holes_ += is_written ? 0 : 1;
    --writing_;
  }

  [[nodiscard]] bool is_full() const noexcept { return count_ == tags_.size(); }
  [[nodiscard]] bool is_empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool is_being_written() const noexcept { return writing_ != 0; }
  [[nodiscard]] bool has_holes() const noexcept { return holes_ != 0; }
  /// The tags, one per request.
  [[nodiscard]] std::span<const std::uint64_t> tags() const noexcept {
    return {tags_.data(), count_};
  }

  /// Fills the holes of failed writes with the last requests: `move(from, to)`.
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
  std::vector<std::uint8_t> is_hole_;  // by position: its writer has thrown
  std::size_t count_ = 0;              // positions taken
  std::size_t writing_ = 0;            // of these, still being written
  std::size_t holes_ = 0;
};

/// Manages the slots of a `batcher`: which threads may use which slot, and when.
///
/// A slot is free, open (accepts requests), sealed (accepts no more; some are still being written),
/// ready, or out, and free again after the copy out of it, or lost. At most one is open.
///
/// One mutex guards everything. It is not held while a request is written, holes are filled, a copy
/// is waited for, or user code runs. No wake-up is lost: conditions are checked and changed under
/// the mutex, and notifications follow the change. A batch that becomes ready wakes one consumer,
/// as it is for one; the others know the due time of the open slot, since its opening has woken all
/// of them.
template <class Memory>
class request_board {
 public:
  /// The place of a request.
  struct place {
    std::uint32_t slot;
    std::size_t position;
  };

  /// Passes the remaining arguments to the memory.
  template <class... Arguments>
  explicit request_board(const batcher_options& options, const Arguments&... arguments)
      : memory_(arguments..., options.depth),
        options_(options),
        changed_(options.spin),
        slots_(options.depth, request_slot{options.most}),
        free_(options.depth) {
    ready_.reserve(options.depth);
  }
  request_board(request_board&&) = delete;

  [[nodiscard]] Memory& memory() noexcept { return memory_; }
  // For leases.
  [[nodiscard]] std::byte* data(std::uint32_t slot) const noexcept { return memory_.data(slot); }
  [[nodiscard]] const auto& layout() const noexcept { return memory_.layout(); }

  /// Waits for a place for a request; `std::nullopt` if there is none by `end`. Throws
  /// `batcher_closed`, `leases_exhausted` if all slots are lost, and what the device throws.
  [[nodiscard]] std::optional<place> reserve(std::uint64_t tag, deadline end) {
    std::unique_lock lock{mutex_};
    for (;;) {
      if (is_closed_) throw batcher_closed("batcher: it is closed, and takes no request any more");
      if (lost_ == slots_.size()) throw_slots_lost();
      if (!open_) open(free_.take(memory_));
      if (open_) return take_place(lock, tag);
      if (end == forever && free_.is_empty()) {
        room_.wait(lock);
      } else if (const auto now = clock::now(); now >= end) {
        return std::nullopt;
      } else {
        // The end of a copy wakes no one, so poll if only that is missing.
        room_.wait_until(lock, free_.is_empty() ? end : (std::min)(end, now + look_again));
      }
    }
  }

  /// Notes that the request at `at` was written, or that its write has thrown.
  void commit(const place& at, bool is_written) noexcept {
    std::unique_lock lock{mutex_};
    request_slot& in = slots_[at.slot];
    in.note_end(at.position, is_written);
    ++(is_written ? stats_.accepted : stats_.failed);
    if (is_written) ++stats_.waiting;
    if (!in.is_being_written() && open_ != at.slot) publish(lock, at.slot);
  }

  /// The slot and info of the next batch. `std::nullopt` at the end and, unless `waits`, while none
  /// is ready.
  [[nodiscard]] std::optional<std::pair<std::uint32_t, batch_info>> next(bool waits) noexcept {
    std::unique_lock lock{mutex_};
    for (;;) {
      if (!ready_.empty()) return hand_out();
      if (open_ && clock::now() >= slots_[*open_].due) {
        seal(lock);
      } else if (!waits || has_ended()) {
        return std::nullopt;
      } else if (open_) {
        changed_.wait_until(lock, slots_[*open_].due);
      } else {
        changed_.wait(lock);
      }
    }
  }

  /// The tags of a batch that is out, for its holder.
  [[nodiscard]] auto tags(std::uint32_t number) const noexcept { return slots_[number].tags(); }

  /// Returns a batch that was out: its slot is free now, or after the recorded copy.
  void give_back(std::uint32_t number, bool behind_copy) noexcept {
    const std::lock_guard lock{mutex_};
    if (!behind_copy) memory_.renew(number);
    add_free(number, behind_copy);
  }
  /// Returns a batch that was out: its slot is free once `stream` gets here. Throws what the device
  /// throws; the slot is returned then too, after a wait for the stream, or else it is lost.
  template <class Stream>
  void give_back_after(std::uint32_t number, const Stream& stream) {
    try {
      memory_.mark_copy(number, stream);
    } catch (...) {
      memory_.settle_copies(stream) ? give_back(number, false) : lose_slot();
      throw;
    }
    give_back(number, true);
  }
  /// Reports that a batch with these tags, which was handed out, has reached no consumer.
  void take_back(std::span<const std::uint64_t> tags) noexcept {
    {
      const std::lock_guard lock{mutex_};
      stats_.handed_out -= tags.size();
      stats_.returned += tags.size();
    }
    if (options_.on_unserved) options_.on_unserved(tags, unserved::not_handed_out);
  }

  /// Accepts no further requests. Existing ones are served, or returned if the batcher is
  /// abandoned; those being written as soon as they are complete.
  void close(bool abandons) noexcept {
    std::unique_lock lock{mutex_};
    is_closed_ = true;
    is_abandoned_ = is_abandoned_ || abandons;
    if (open_) seal(lock);
    while (is_abandoned_ && !ready_.empty()) {
      ++busy_;
      return_unserved(lock, take_ready());
      --busy_;
    }
    room_.notify_all();
    changed_.notify_all();
  }

  [[nodiscard]] bool is_at_end() const noexcept {
    const std::lock_guard lock{mutex_};
    return has_ended();
  }
  [[nodiscard]] bool was_closed() const noexcept {
    const std::lock_guard lock{mutex_};
    return is_closed_;
  }
  [[nodiscard]] batcher_stats stats() const noexcept {
    const std::lock_guard lock{mutex_};
    return stats_;
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr deadline forever = (deadline::max)();
  static constexpr std::chrono::microseconds look_again{100};

  void open(std::optional<std::uint32_t> number) noexcept {
    if (!number) return;
    open_ = number;
    slots_[*number].begin(deadline_in(options_.fill));
    room_.notify_all();
    changed_.notify_all();
  }
  place take_place(std::unique_lock<std::mutex>& lock, std::uint64_t tag) noexcept {
    request_slot& to = slots_[*open_];
    const place mine{*open_, to.add(tag)};
    if (to.is_full()) seal(lock);
    return mine;
  }
  /// Seals the open slot.
  void seal(std::unique_lock<std::mutex>& lock) noexcept {
    const std::uint32_t number = *open_;
    open_.reset();
    ++busy_;
    if (!slots_[number].is_being_written()) publish(lock, number);
  }
  /// Publishes a sealed slot whose requests are all written; the caller has exclusive access.
  void publish(std::unique_lock<std::mutex>& lock, std::uint32_t number) noexcept {
    request_slot& full = slots_[number];
    if (full.has_holes()) {
      lock.unlock();
      full.close_up(
          [&](std::size_t from, std::size_t to) { memory_.move_sample(number, from, to); });
      lock.lock();
    }
    if (full.is_empty()) {
      add_free(number, false);
    } else if (is_abandoned_) {
      return_unserved(lock, number);
    } else {
      ready_.push_back(number);
    }
    --busy_;
    is_closed_ ? changed_.notify_all() : changed_.notify_one();  // all: maybe the last one
  }
  /// Returns the requests of an abandoned batch; the caller has exclusive access.
  void return_unserved(std::unique_lock<std::mutex>& lock, std::uint32_t number) noexcept {
    stats_.returned += tags(number).size();
    stats_.waiting -= tags(number).size();
    lock.unlock();
    if (options_.on_unserved) options_.on_unserved(tags(number), unserved::abandoned);
    lock.lock();
    add_free(number, false);
  }

  std::uint32_t take_ready() noexcept {
    const std::uint32_t number = ready_.front();
    ready_.erase(ready_.begin());
    return number;
  }
  std::pair<std::uint32_t, batch_info> hand_out() noexcept {
    const std::uint32_t number = take_ready();
    const std::size_t size = tags(number).size();
    stats_.handed_out += size;
    stats_.waiting -= size;
    const batch_info out{.epoch = 0, .batch = stats_.batches++, .size = size, .valid_size = size};
    memory_.name_batch(number, out);
    return {number, out};
  }
  void add_free(std::uint32_t number, bool behind_copy) noexcept {
    free_.give(number, behind_copy);
    room_.notify_all();
  }
  /// A slot that was out is never used again.
  void lose_slot() noexcept {
    const std::lock_guard lock{mutex_};
    ++lost_;
    room_.notify_all();  // if it was the last one, threads wait in vain
  }
  [[noreturn, gnu::cold]] void throw_slots_lost() const {
    throw leases_exhausted(
        joined({"batcher: all ", lost_, " slots are lost: the device refused to say when the ",
                "copies out of them end. End no lease while its stream is being captured; make ",
                "the batcher anew"}));
  }
  bool has_ended() const noexcept { return is_closed_ && !open_ && busy_ == 0 && ready_.empty(); }

  Memory memory_;
  batcher_options options_;
  mutable std::mutex mutex_;      // guards all below, except slots owned by one thread
  std::condition_variable room_;  // for submitters
  consumer_signal<> changed_;     // for consumers
  std::vector<request_slot> slots_;
  free_requests free_;
  std::vector<std::uint32_t> ready_;  // in order of completion
  std::optional<std::uint32_t> open_;
  std::size_t busy_ = 0;  // sealed slots that are not ready yet
  std::size_t lost_ = 0;  // slots that are never used again
  bool is_closed_ = false;
  bool is_abandoned_ = false;
  batcher_stats stats_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
