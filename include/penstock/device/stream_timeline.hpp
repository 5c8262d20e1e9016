// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <bit>
#include <chrono>
#include <concepts>
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

// There are two ways to find out when the device no longer uses memory. `stream_timeline` is for
// memory that is used by a single stream: a point in the work of the stream is a number, and a
// single event marks the point for any number of slots. `record_end` is for memory whose release is
// ordered by an arbitrary stream: each slot owns an event. If the device fails to record, both use
// `record_or_wait`.

/// The result of an attempt to record the end of queued work in an event.
struct recorded_end {
  std::exception_ptr error{};  ///< null if the event marks the end; otherwise, a wait replaced it
  bool is_lost = false;        ///< true if the wait has failed, too

  /// Throws the device's error if recording failed.
  void rethrow_error() const {
    if (error) std::rethrow_exception(error);
  }
};

/// Calls `record()`, which records the end of queued work in events. If that throws, calls
/// `wait()`, which waits for the same work instead and returns true if the work has ended. If
/// `wait` returns false, it is impossible to find out when the work ends: the caller must not use
/// the memory of the work again, and may free the memory only after all work of the device
/// (`synchronize_before_free(device)`). `wait` must not synchronize the whole device, because that
/// would invalidate a stream capture. Always inlined, so that the result costs nothing if the
/// record succeeds.
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

/// Selects whether recording an event first checks that the stream is not being captured. An event
/// recorded during capture becomes part of the program's graph and marks no point.
enum class capture_check {
  needed,  ///< check
  done,    ///< the caller has just checked, or the stream is the library's own
};

/// Records in `event` the end of all work that is queued on `stream`. If the device fails, or if
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

/// A lock that does nothing, for timelines whose callers already serialize calls to `mark`.
struct no_lock {
  /// Does nothing.
  void lock() noexcept {}
  /// Does nothing.
  void unlock() noexcept {}
};

/// Points in the work of a stream. A point is reached when the stream has finished all work that
/// was queued before `mark` returned the point.
///
/// Points are numbers, and a ring of events marks the newest points. The work of a stream ends in
/// order, so a later point implies every earlier point. Therefore an event is recorded again when
/// its turn comes: a thread or stream that still waits for the old record may wait longer than
/// necessary, but never less. If the host waits for each slot before it marks the slot again, one
/// more event than there are slots is enough: an event is recorded again only after its previous
/// point is known to be reached. A device may poll in `synchronize(event)` and miss that moment, so
/// a timeline that threads wait for has a few times as many events.
///
/// Any number of threads may wait at the same time, even while another thread marks. Several
/// threads may mark at the same time, unless the lock is `no_lock`. A thread that receives a point
/// from the thread that marked it needs synchronization that makes the mark visible. The timeline
/// may outlive its stream if nobody marks after the stream is gone.
template <device Device, class Lock = std::mutex>
class stream_timeline {
 public:
  using stream_ref = typename Device::stream_ref;
  using event_type = typename Device::event_type;
  /// The number of a point. Point 0 is reached from the start.
  using point = std::uint64_t;
  /// The point of a lost mark. No thread or stream may wait for this point.
  static constexpr point never = ~point{0};

  /// The result of `mark`. The timeline does not keep the error of a failed record: the caller
  /// throws the error or passes it on.
  struct marked : recorded_end {
    /// The point that was marked. After an error, the value is 0, a point that is always reached,
    /// or `never` if the mark is lost.
    point at = 0;
  };

  /// Makes a timeline of `stream` with at least `events` events, a number above 0 that is rounded
  /// up to a power of two. `waits` specifies what waits for the events. Use `by_host` if any thread
  /// waits. Propagates errors from the device.
  stream_timeline(const Device& device, stream_ref stream, std::size_t events, event_wait waits)
      : device_(device), stream_(stream), last_event_(std::bit_ceil(events) - 1) {
    events_.reserve(last_event_ + 1);
    while (events_.size() <= last_event_) events_.push_back(device.make_event(waits));
  }
  stream_timeline(stream_timeline&&) = delete;

  /// Marks the end of all work that is currently queued on the stream. Records one event. If the
  /// device fails, or the stream is being captured, waits for the stream instead. A failed mark
  /// does not end the timeline: the next mark tries again.
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
        });  // does not hold the lock, because the work may take long
    if (end.is_lost) at = never;
    return {std::move(end), at};
  }

  /// Returns true if the stream has reached `at`. Queries at most one event. Propagates errors from
  /// the device.
  [[nodiscard]] bool reached(point at) const {
    if (is_known(at)) return true;
    if (!device_.is_complete(event_of(at))) return false;
    record_reached(at);
    return true;
  }

  /// Blocks the calling thread until the stream has reached `at`. Makes at most one call to the
  /// device. Propagates errors from the device.
  void wait(point at) const {
    if (is_known(at)) return;
    device_.synchronize(event_of(at));
    record_reached(at);
  }

  /// Blocks the calling thread until the stream has reached `at`. A device that polls calls
  /// `nap(time)` instead of sleeping for that time. Propagates errors from the device and from
  /// `nap`.
  template <std::invocable<std::chrono::microseconds> Nap>
  void wait(point at, const Nap& nap) const {
    if constexpr (requires { device_.synchronize(event_of(at), nap); }) {
      if (is_known(at)) return;
      device_.synchronize(event_of(at), nap);
      record_reached(at);
    } else {
      wait(at);
    }
  }

  /// Makes later work of `other` wait until this stream has reached `at`. Makes at most one call to
  /// the device, and no call if the point is known to be reached. Propagates errors from the
  /// device.
  void wait(point at, stream_ref other) const {
    if (!is_known(at)) device_.wait(other, event_of(at));
  }

  /// Makes later work of `other` wait until this stream has reached `at`, unless `other` already
  /// waits for that point. `known` is the newest point that this function has made `other` wait
  /// for, initially 0. The caller keeps such a number for each waiting stream, and only one thread
  /// at a time uses it. Propagates errors from the device.
  void wait(point at, stream_ref other, point& known) const {
    if (at <= known) return;
    wait(at, other);
    known = at;
  }

  /// Returns the stream.
  [[nodiscard]] stream_ref stream() const noexcept { return stream_; }

  /// Waits for `at`, so that the caller can free the memory of the work before that point. Returns
  /// false if the device cannot wait, in which case the caller must leak the memory.
  [[nodiscard]] bool try_synchronize(point at) const noexcept {
    return is_known(at) || synchronize_before_free(device_, event_of(at));
  }

 private:
  // Points use the events in rotation. The number of events is a power of two, because a division
  // would be slower.
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
      // Another thread has stored a different point in the meantime.
    }
  }

  Device device_;
  stream_ref stream_;
  std::size_t last_event_;  // one less than a power of two
  std::vector<event_type> events_;
  Lock marking_;      // guards newest_, and keeps the records in the order of points
  point newest_ = 0;  // the newest mark
  // Invariant: the stream has reached this point, which only grows. A thread that has observed this
  // stores the point with release, and other threads load it with acquire: the results of the
  // stream's work are visible to a thread that skips its wait.
  mutable std::atomic<point> reached_{0};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
