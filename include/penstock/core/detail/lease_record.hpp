// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/version.hpp>

#if PENSTOCK_CHECKED

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Reports a misuse that a checked build has found: writes one line to stderr and aborts. A good
/// place for a breakpoint.
[[noreturn, gnu::noinline]] inline void checked_failure(const char* message) noexcept {
  std::fprintf(stderr, "penstock, checked build: %s\n", message);
  std::fflush(stderr);
  std::abort();
}

namespace detail {

/// Whether the calling thread belongs to a CPU stream.
[[nodiscard, gnu::visibility("default")]] inline bool& runs_a_stream() noexcept {
  thread_local bool runs = false;
  return runs;
}
/// Marks the calling thread as a CPU stream's.
inline void mark_stream_thread() noexcept { runs_a_stream() = true; }

/// The number of the calling thread, unique in the process and never 0. Visible, so that shared
/// libraries with hidden symbols share one counter.
[[nodiscard, gnu::visibility("default")]] inline std::uint64_t this_thread() noexcept {
  static std::atomic<std::uint64_t> threads{0};
  thread_local const std::uint64_t number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
  return number;
}

/// The state of a lease, as its views read it. Records are never freed, only reused for other
/// leases, so that a stale view may read one at any time; hence all members are atomic.
class lease_record {
 public:
  /// Begins lease `serial`, a number new in the process, of this batch.
  void begin(std::uint64_t serial, std::uint64_t epoch, std::uint64_t index) noexcept {
    named_.store(0, std::memory_order_relaxed);
    epoch_.store(epoch, std::memory_order_relaxed);
    index_.store(index, std::memory_order_relaxed);
    user_.store(0, std::memory_order_relaxed);
    ended_by_.store(0, std::memory_order_relaxed);
    seen_in_body_.store(false, std::memory_order_relaxed);
    named_.store(serial, std::memory_order_release);
    alive_.store(serial, std::memory_order_release);
  }

  /// Marks the data of lease `serial` as complete: at once, or after its copy. A late call for an
  /// earlier lease has no effect.
  void arrive(std::uint64_t serial) noexcept {
    std::uint64_t last = arrived_.load(std::memory_order_relaxed);
    while (last < serial && !arrived_.compare_exchange_weak(last, serial, std::memory_order_release,
                                                            std::memory_order_relaxed)) {
    }
  }

  /// Whether a thread that runs no stream's work has taken the data.
  [[nodiscard]] bool was_seen_in_body() const noexcept {
    return seen_in_body_.load(std::memory_order_relaxed);
  }

  /// Called when a view of lease `serial` is used.
  void require_alive(std::uint64_t serial) const noexcept {
    if (alive_.load(std::memory_order_acquire) == serial &&
        ended_by_.load(std::memory_order_relaxed) != this_thread()) {
      return;
    }
    fail(serial,
         "a view was used after its lease had ended. Keep the lease as long as its views are used "
         "(move it out of the loop), or copy the data out");
  }

  /// Called when an element is accessed: the copy must be complete.
  void require_data(std::uint64_t serial) const noexcept {
    note_address(serial);
    if (arrived_.load(std::memory_order_acquire) >= serial) return;
    fail(serial,
         "a view was looked at before the batch's copy was complete. The feed was given a stream: "
         "look at it in that stream's work, synchronise first, or leave the stream out (transfer "
         "feed{loader}) where the loop's body is the step");
  }

  /// Called when the address of its data is taken, perhaps for work on a stream.
  void note_address(std::uint64_t serial) const noexcept {
    require_alive(serial);
    if (!runs_a_stream() && !was_seen_in_body()) {
      seen_in_body_.store(true, std::memory_order_relaxed);
    }
  }

  /// Called when the calling thread uses the lease.
  void require_one_user(std::uint64_t serial) noexcept {
    std::uint64_t user = 0;
    if (user_.compare_exchange_strong(user, this_thread(), std::memory_order_relaxed) ||
        user == this_thread()) {
      return;
    }
    fail(serial,
         "two threads use its lease. Work on a stream captures the view, `x = "
         "ps::get<\"x\">(batch)`, "
         "and not the batch; threads share views that one of them took, or the lease is moved to "
         "the "
         "thread that goes on with it");
  }

  /// Called when the lease is moved: the next thread that uses it is its user.
  void pass_on() noexcept { user_.store(0, std::memory_order_relaxed); }

  /// Ends the lease; no view may be used any more.
  void end() noexcept { alive_.store(0, std::memory_order_release); }

  /// Ends the lease on the host; queued work of `streams` streams may still use its views. So may
  /// work on the calling thread, if that is a stream's: it may have been queued before.
  void end_behind(std::size_t streams) noexcept {
    streams_.store(streams, std::memory_order_relaxed);
    if (!runs_a_stream()) ended_by_.store(this_thread(), std::memory_order_relaxed);
  }
  /// Called when one of them has passed the end of the lease. True for the last one, which sees the
  /// effects of all.
  [[nodiscard]] bool is_behind_last_stream() noexcept {
    return streams_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  /// Reports a misuse of lease `serial`.
  [[noreturn]] void fail(std::uint64_t serial, const char* what) const noexcept {
    // Acquire: the serial number that these belong to is read after them.
    const std::uint64_t epoch = epoch_.load(std::memory_order_acquire);
    const std::uint64_t index = index_.load(std::memory_order_acquire);
    std::string message = "a batch of long ago: ";
    if (named_.load(std::memory_order_relaxed) == serial) {
      message = "batch " + std::to_string(index) + " of epoch " + std::to_string(epoch) + ": ";
    }
    checked_failure((message + what).c_str());
  }

 private:
  std::atomic<std::uint64_t> alive_{0};  // number of the lease whose views may be used; 0: none
  std::atomic<std::uint64_t> named_{0};  // number of the lease that the next two belong to
  std::atomic<std::uint64_t> epoch_{0};
  std::atomic<std::uint64_t> index_{0};
  std::atomic<std::uint64_t> user_{0};  // the thread that uses the lease; 0: none since its move
  std::atomic<std::uint64_t> ended_by_{0};  // the thread of no stream that ended a device lease
  std::atomic<std::uint64_t> arrived_{0};   // number of the newest lease whose data is complete
  mutable std::atomic<bool> seen_in_body_{false};  // a thread of no stream has taken the data
  std::atomic<std::size_t> streams_{0};  // whose work may still use the views of an ended lease

  friend class lease_records;
  lease_record* next_at_rest_ = nullptr;  // of `lease_records`, under its lock
};

/// All records of the process. A record is reused only after a thousand other leases, so that a
/// stale view can still name its batch.
class lease_records {
 public:
  /// Shared by all libraries of the program, as `this_thread`. Never destroyed, since views may be
  /// used until the process ends.
  [[nodiscard, gnu::visibility("default")]] static lease_records& all() {
    static auto* const records = new lease_records;
    return *records;
  }

  /// Begins a lease of this batch: its record and its number. May throw std::bad_alloc; `give_back`
  /// never allocates.
  [[nodiscard]] std::pair<lease_record*, std::uint64_t> take(std::uint64_t epoch,
                                                             std::uint64_t index) {
    const std::lock_guard lock{mutex_};
    lease_record* record = nullptr;
    if (resting_ > at_rest) {
      record = std::exchange(first_, first_->next_at_rest_);
      --resting_;
    } else {
      record = &records_.emplace_back();
    }
    record->begin(++serial_, epoch, index);
    return {record, serial_};
  }

  /// Returns the record of a lease that is over.
  void give_back(lease_record* record) noexcept {
    const std::lock_guard lock{mutex_};
    record->next_at_rest_ = nullptr;
    (resting_++ == 0 ? first_ : last_->next_at_rest_) = record;
    last_ = record;
  }

 private:
  static constexpr std::size_t at_rest = 1024;

  std::mutex mutex_;  // guards the rest
  std::deque<lease_record> records_;
  lease_record* first_ = nullptr;  // list of idle records: the one idle for longest,
  lease_record* last_ = nullptr;   // and for shortest; unspecified while the list is empty
  std::size_t resting_ = 0;
  std::uint64_t serial_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock

#endif
