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
#include <penstock/core/version.hpp>
#include <penstock/threads/support/deadline.hpp>
#include <penstock_ext/serve/detail/consumer_signal.hpp>
#include <penstock_ext/serve/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The free slots of a `batcher`, in the order in which they came back. One that comes back with a
/// copy out of it under way is free at the end of that, which the memory knows. No thread-safety of
/// its own.
class free_requests {
 public:
  /// All of `count` slots are free.
  explicit free_requests(std::size_t count) : is_copied_(count) {
    free_.reserve(count);
    for (std::uint32_t slot = 0; slot < count; ++slot) free_.push_back(slot);
  }

  /// Whether none has come back.
  [[nodiscard]] bool is_empty() const noexcept { return free_.empty(); }
  /// A slot comes back.
  void give(std::uint32_t slot, bool behind_copy) noexcept {
    is_copied_[slot] = behind_copy ? 1 : 0;
    free_.push_back(slot);
  }
  /// Takes the first slot that nothing reads any more. Throws what the device throws.
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

/// Which threads may use which slot of the memory of a `batcher`, and what they wait for.
///
/// A slot is free, open (requests get places in it), sealed (no more of them; some are still being
/// written), ready, or out, and free again once the copy out of it has ended. One is open at most.
///
/// One mutex guards all of it; nobody holds it while a request is written, a batch is closed up, a
/// copy is waited for or the program is called. No wake-up is lost: a thread looks at what it waits
/// for under the mutex that the wait gives up, and each change is made under it, before those are
/// notified that may wait for it. A batch that gets ready wakes one consumer, since it is for one:
/// the others know the moment of the open slot, because its opening has woken all.
template <class Memory>
class request_board {
 public:
  /// A request's place.
  struct place {
    std::uint32_t slot;
    std::size_t position;
  };

  /// The rest of the arguments goes to the memory.
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
  [[nodiscard]] const Memory& memory() const noexcept { return memory_; }
  // As a lease asks for them.
  [[nodiscard]] std::byte* data(std::uint32_t slot) const noexcept { return memory_.data(slot); }
  [[nodiscard]] const auto& layout() const noexcept { return memory_.layout(); }

  /// A place for a request, once there is one; nothing if there is none by `end`. Throws
  /// `batcher_closed`, and what the device throws.
  [[nodiscard]] std::optional<place> reserve(std::uint64_t tag, deadline end) {
    std::unique_lock lock{mutex_};
    for (;;) {
      if (is_closed_) throw batcher_closed("batcher: it is closed, and takes no request any more");
      if (!open_) open(free_.take(memory_));
      if (open_) return take_place(lock, tag);
      if (end == forever && free_.is_empty()) {
        room_.wait(lock);
      } else if (const auto now = clock::now(); now >= end) {
        return std::nullopt;
      } else {
        // The end of a copy wakes nobody: where it is all that is missing, look again.
        room_.wait_until(lock, free_.is_empty() ? end : (std::min)(end, now + look_again));
      }
    }
  }

  /// The request at `at` is written, or its writer has thrown.
  void commit(const place& at, bool is_written) noexcept {
    std::unique_lock lock{mutex_};
    request_slot& in = slots_[at.slot];
    in.note_end(at.position, is_written);
    ++(is_written ? stats_.accepted : stats_.failed);
    if (is_written) ++stats_.waiting;
    if (!in.is_being_written() && open_ != at.slot) publish(lock, at.slot);
  }

  /// The next batch: its slot, and what is known of it. Nothing at the end, and, unless it `waits`,
  /// while none is ready.
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

  /// The tags of a batch that is out, for whoever has it.
  [[nodiscard]] auto tags(std::uint32_t number) const noexcept { return slots_[number].tags(); }

  /// A batch that was out is over: its slot is free, or will be after the copy that is marked.
  void give_back(std::uint32_t number, bool behind_copy) noexcept {
    const std::lock_guard lock{mutex_};
    if (!behind_copy) memory_.renew(number);
    add_free(number, behind_copy);
  }
  /// A batch with these tags, which was handed out, has reached no consumer.
  void take_back(std::span<const std::uint64_t> tags) noexcept {
    {
      const std::lock_guard lock{mutex_};
      stats_.handed_out -= tags.size();
      stats_.returned += tags.size();
    }
    if (options_.on_unserved) options_.on_unserved(tags, unserved::not_handed_out);
  }

  /// No more requests. Those that are there go out, or back, where the batcher is abandoned: those
  /// that are still being written as soon as they are.
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
  /// The open slot gets no more requests.
  void seal(std::unique_lock<std::mutex>& lock) noexcept {
    const std::uint32_t number = *open_;
    open_.reset();
    ++busy_;
    if (!slots_[number].is_being_written()) publish(lock, number);
  }
  /// All of a sealed slot's requests are written; the caller has it alone.
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
    is_closed_ ? changed_.notify_all() : changed_.notify_one();  // all: it may be the last one
  }
  /// A batch that nobody will get; the caller has it alone.
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
  bool has_ended() const noexcept { return is_closed_ && !open_ && busy_ == 0 && ready_.empty(); }

  Memory memory_;
  batcher_options options_;
  mutable std::mutex mutex_;      // guards all below, but for slots that one thread has alone
  std::condition_variable room_;  // for submitters
  consumer_signal<> changed_;     // for consumers
  std::vector<request_slot> slots_;
  free_requests free_;
  std::vector<std::uint32_t> ready_;  // in the order in which they got so
  std::optional<std::uint32_t> open_;
  std::size_t busy_ = 0;  // sealed ones that are not ready yet
  bool is_closed_ = false;
  bool is_abandoned_ = false;
  batcher_stats stats_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
