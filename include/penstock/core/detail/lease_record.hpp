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

/// Where a checked build ends that was used wrongly: a place for a breakpoint. Writes one line to
/// stderr and aborts.
[[noreturn, gnu::noinline]] inline void checked_failure(const char* message) noexcept {
  std::fprintf(stderr, "penstock, checked build: %s\n", message);
  std::fflush(stderr);
  std::abort();
}

namespace detail {

/// Whether the calling thread is a CPU stream's.
[[nodiscard, gnu::visibility("default")]] inline bool& runs_a_stream() noexcept {
  thread_local bool runs = false;
  return runs;
}
/// It is.
inline void mark_stream_thread() noexcept { runs_a_stream() = true; }

/// A number for each thread of the process's life; never 0. Visible, so that shared libraries which
/// hide their symbols still count threads in one place.
[[nodiscard, gnu::visibility("default")]] inline std::uint64_t this_thread() noexcept {
  static std::atomic<std::uint64_t> threads{0};
  thread_local const std::uint64_t number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
  return number;
}

/// What is known of a lease, for its views to look at. Never freed, only used again for another
/// lease, so a view may look at any time; atomic throughout, since one that is stale looks at any
/// time.
class lease_record {
 public:
  /// A lease with this number, new in the process, of the batch with these numbers.
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

  /// The data of the lease with this number is complete: at once, or after its copy. A late call
  /// for a lease of long ago changes nothing.
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

  /// A view of the lease with this number is used.
  void require_alive(std::uint64_t serial) const noexcept {
    if (alive_.load(std::memory_order_acquire) == serial &&
        ended_by_.load(std::memory_order_relaxed) != this_thread()) {
      return;
    }
    fail(serial,
         "a view was used after its lease had ended. Keep the lease as long as its views are used "
         "(move it out of the loop), or copy the data out");
  }

  /// An element of it is: its copy has to be complete.
  void require_data(std::uint64_t serial) const noexcept {
    note_address(serial);
    if (arrived_.load(std::memory_order_acquire) >= serial) return;
    fail(serial,
         "a view was looked at before the batch's copy was complete. The feed was given a stream: "
         "look at it in that stream's work, synchronise first, or leave the stream out (transfer "
         "feed{loader}) where the loop's body is the step");
  }

  /// The address of its data is taken, perhaps for work on a stream.
  void note_address(std::uint64_t serial) const noexcept {
    require_alive(serial);
    if (!runs_a_stream() && !was_seen_in_body()) {
      seen_in_body_.store(true, std::memory_order_relaxed);
    }
  }

  /// The lease is used by the calling thread.
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

  /// The lease was moved: whoever uses it next is its user.
  void pass_on() noexcept { user_.store(0, std::memory_order_relaxed); }

  /// The lease ends, and nothing may use a view any more.
  void end() noexcept { alive_.store(0, std::memory_order_release); }

  /// The lease ends here, and the work of so many streams may still use its views.
  void end_behind(std::size_t streams) noexcept {
    streams_.store(streams, std::memory_order_relaxed);
    ended_by_.store(this_thread(), std::memory_order_relaxed);
  }
  /// One of them is past it; true for the last one, which sees what all of them have done.
  [[nodiscard]] bool is_behind_last_stream() noexcept {
    return streams_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  /// Reports what was done wrong with the lease with this number.
  [[noreturn]] void fail(std::uint64_t serial, const char* what) const noexcept {
    // Acquire: whose they are is read after these.
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
  std::atomic<std::uint64_t> ended_by_{0};  // the thread that ended a device lease; 0: not ended
  std::atomic<std::uint64_t> arrived_{0};   // number of the newest lease whose data is complete
  mutable std::atomic<bool> seen_in_body_{false};  // a thread of no stream has taken the data
  std::atomic<std::size_t> streams_{0};  // whose work may still use the views of an ended lease

  friend class lease_records;
  lease_record* next_at_rest_ = nullptr;  // of `lease_records`, under its lock
};

/// All records of the process. A record rests for a thousand leases, so that a stale view can tell
/// the name of its batch.
class lease_records {
 public:
  /// One for all shared libraries of the program, as `this_thread`. Never destroyed: views may be
  /// looked at until the process ends.
  [[nodiscard, gnu::visibility("default")]] static lease_records& all() {
    static auto* const records = new lease_records;
    return *records;
  }

  /// A record for a lease of the batch with these numbers, and the lease's number. May throw
  /// std::bad_alloc; giving back takes no memory.
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

  /// The lease is over.
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
  lease_record* first_ = nullptr;  // of those at rest, in a list: the longest at rest
  lease_record* last_ = nullptr;   // and the shortest; means nothing while there is none
  std::size_t resting_ = 0;
  std::uint64_t serial_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock

#endif
