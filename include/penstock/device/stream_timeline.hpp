// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock/device/device.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

// This header determines when the device has finished with memory, in two ways. `stream_timeline`
// is for memory that a single stream uses: a point in its work is a number, and a single event
// marks the point for any number of slots. `record_end` is for memory that is released behind an
// arbitrary stream: each slot owns an event. Both rely on `record_or_wait` if the device refuses.

/// The result of an attempt to record the end of queued work in an event.
struct recorded_end {
  std::exception_ptr refusal{};  ///< null: the event marks the end; else the work was waited for
  bool is_lost = false;          ///< after a refusal: the device has refused to wait as well

  /// Throws the error of the device if it has refused to record.
  void rethrow_refusal() const {
    if (refusal) std::rethrow_exception(refusal);
  }
};

/// Calls `record()`, which records the end of queued work in events. If that throws, calls
/// `wait()`, which waits for the same work instead and returns true if the work has ended. If it
/// has not, the end of the work can never be known: the caller must not use its memory again, and
/// may free the memory only after all work of the device (`synchronize_before_free(device)`).
/// `wait` must not synchronize the whole device, because that would invalidate a stream capture.
/// Always inlined, so that the result costs nothing where the record succeeds.
template <class Record, class Wait>
[[nodiscard, gnu::always_inline]] inline recorded_end record_or_wait(const Record& record,
                                                                     const Wait& wait) noexcept {
  try {
    record();
    return {};
  } catch (...) {
    recorded_end end{std::current_exception(), false};
    end.is_lost = !wait();
    return end;
  }
}

/// Specifies if a record first checks that its stream is not being captured. A captured record
/// becomes part of the program's graph and marks nothing.
enum class capture_check {
  needed,  ///< check
  done,    ///< the caller has just checked, or the stream is the library's own
};

/// Records in `event` the end of all work that is queued on `stream`. If the device refuses, or if
/// the stream is being captured, waits for the stream.
template <class Device>
[[nodiscard]] recorded_end record_end(const Device& device, typename Device::event_type& event,
                                      typename Device::stream_ref stream,
                                      capture_check check = capture_check::needed) noexcept {
  return record_or_wait(
      [&] {
        if (check == capture_check::needed) require_still_usable(device, stream);
        device.record(event, stream);
      },
      [&] { return try_synchronize(device, stream); });
}

/// The lock of a timeline whose calls of `mark` are ordered by the caller.
struct no_lock {
  /// Does nothing.
  void lock() noexcept {}
  /// Does nothing.
  void unlock() noexcept {}
};

/// Points in the work of a stream. A point is reached when the stream has done everything that was
/// queued before `mark` returned the point.
///
/// Points are numbers, and a ring of events marks the newest points. The work of a stream ends in
/// order, so a later point implies every earlier point. Therefore an event is recorded again
/// whenever its turn comes: a thread or stream that still waits for the old record may wait longer
/// than it must, but never too short. If the host waits for each slot before the slot is marked
/// again, a timeline of one event more than there are slots records an event again only after its
/// previous point is known to be reached. A device may poll in `synchronize(event)` and miss that
/// moment, so a timeline for which threads wait has a few times as many events.
///
/// Any threads may wait at once, and while another thread marks. Several threads may mark at once,
/// unless the lock is `no_lock`. A thread gets a point from the thread that marked it, by
/// synchronization that makes the mark visible. The timeline may outlive its stream if nobody marks
/// after the stream is gone.
template <device Device, class Lock = std::mutex>
class stream_timeline {
 public:
  using stream_ref = typename Device::stream_ref;
  using event_type = typename Device::event_type;
  /// The number of a point. Point 0 is reached from the start.
  using point = std::uint64_t;
  /// The point of a lost mark. Nobody may wait for this point.
  static constexpr point never = ~point{0};

  /// The result of `mark`. The timeline does not keep the error of a refused record: the caller
  /// throws it or passes it on.
  struct marked : recorded_end {
    /// The point. After a refusal: 0, which is reached, or `never` if the mark is lost.
    point at = 0;
  };

  /// A timeline of `stream`, with `events` events, at least one, that are waited for as `waits`
  /// specifies: `by_host` if any thread waits. The number is rounded up to a power of two. Throws
  /// what the device throws.
  stream_timeline(const Device& device, stream_ref stream, std::size_t events, event_wait waits)
      : device_(device), stream_(stream), last_event_(std::bit_ceil(events) - 1) {
    events_.reserve(last_event_ + 1);
    while (events_.size() <= last_event_) events_.push_back(device.make_event(waits));
  }
  stream_timeline(stream_timeline&&) = delete;

  /// Marks the end of all work that is queued on the stream by now. One record; if the device
  /// refuses it, or the stream is being captured, one wait for the stream. A refused mark does not
  /// end the timeline: the next mark tries again.
  [[nodiscard, gnu::always_inline]] marked mark(
      capture_check check = capture_check::needed) noexcept {
    point at = 0;
    recorded_end end = record_or_wait(
        [&]() __attribute__((always_inline)) {
          if (check == capture_check::needed) require_still_usable(device_, stream_);
          const std::lock_guard lock{marking_};
          const point next = newest_ + 1;
          device_.record(event_of(next), stream_);
          newest_ = at = next;
        },
        [&] {
          return detail::try_synchronize(device_, stream_);
        });  // without the lock: the work may take long
    if (end.is_lost) at = never;
    return {std::move(end), at};
  }

  /// Returns true if the stream has reached `at`. At most one query of an event. Throws what the
  /// device throws.
  [[nodiscard]] bool reached(point at) const {
    if (is_known(at)) return true;
    if (!device_.is_complete(event_of(at))) return false;
    record_reached(at);
    return true;
  }

  /// Blocks the calling thread until the stream has reached `at`. At most one call of the device.
  /// Throws what the device throws.
  void wait(point at) const {
    if (is_known(at)) return;
    device_.synchronize(event_of(at));
    record_reached(at);
  }

  /// Makes later work of `other` wait until this stream has reached `at`. At most one call of the
  /// device, and none if a thread knows that the point is reached. Throws what the device throws.
  void wait(point at, stream_ref other) const {
    if (!is_known(at)) device_.wait(other, event_of(at));
  }

  /// Makes later work of `other` wait until this stream has reached `at`, unless `other` already
  /// waits for that: `known` is the newest point for which this function has made `other` wait, or
  /// 0 at first. The caller keeps such a number for each waiting stream, and one thread at a time
  /// uses it. Throws what the device throws.
  void wait(point at, stream_ref other, point& known) const {
    if (at <= known) return;
    wait(at, other);
    known = at;
  }

  /// The stream.
  [[nodiscard]] stream_ref stream() const noexcept { return stream_; }

  /// Waits for `at`, because the memory of that work is freed next. Returns false if the device
  /// refuses: the caller must leak the memory.
  [[nodiscard]] bool try_synchronize(point at) const noexcept {
    return is_known(at) || synchronize_before_free(device_, event_of(at));
  }

 private:
  // Points take turns: the number of events is a power of two, since a division costs more.
  [[nodiscard]] event_type& event_of(point at) noexcept { return events_[at & last_event_]; }
  [[nodiscard]] const event_type& event_of(point at) const noexcept {
    return events_[at & last_event_];
  }
  [[nodiscard]] bool is_known(point at) const noexcept {
    return at <= reached_.load(std::memory_order_acquire);
  }
  void record_reached(point at) const noexcept {
    point before = reached_.load(std::memory_order_relaxed);
    while (before < at && !reached_.compare_exchange_strong(before, at, std::memory_order_release,
                                                            std::memory_order_relaxed)) {
      // Another thread has stored another point.
    }
  }

  Device device_;
  stream_ref stream_;
  std::size_t last_event_;  // one less than a power of two
  std::vector<event_type> events_;
  Lock marking_;      // guards the next member, and makes the records come in the order of points
  point newest_ = 0;  // the newest mark
  // Invariant: the stream has reached this point, which only grows. A thread that has seen that
  // stores it with release, and others load it with acquire: the results of the stream's work are
  // visible to a thread that skips its wait.
  mutable std::atomic<point> reached_{0};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
