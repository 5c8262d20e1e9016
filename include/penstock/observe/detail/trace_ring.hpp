// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/shared_value.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A ring buffer of a thread's latest events; each new event overwrites the oldest. One thread at a
/// time adds events, without locks or locked instructions; any thread may copy them concurrently
/// without stopping the writer. Memory is taken at construction.
///
/// `Event` is trivially copyable and has a `number`, which the ring sets: the count of earlier
/// events.
template <class Event, class Atomics = std_atomics>
class trace_ring {
 public:
  /// For `capacity` events, a power of two.
  explicit trace_ring(std::size_t capacity) : mask_(capacity - 1), events_(capacity) {}
  trace_ring(trace_ring&&) = delete;

  /// Adds an event. One thread at a time.
  void add(Event event) noexcept {
    const std::uint64_t number = count_.load(std::memory_order_relaxed);
    event.number = number;
    events_[place_of(number)].store(event);
    count_.store(number + 1, std::memory_order_release);
  }

  /// Replaces `all` by the latest events, oldest first and without gaps: events that are
  /// overwritten meanwhile are left out, with all earlier ones. Returns the number of the first
  /// event, or of the next one if there are none. From any thread.
  std::uint64_t copy_to(std::vector<Event>& all) const {
    const std::uint64_t end = count_.load(std::memory_order_acquire);
    std::uint64_t first = end > events_.size() ? end - events_.size() : 0;
    all.clear();
    all.reserve(static_cast<std::size_t>(end - first));
    for (std::uint64_t number = first; number != end; ++number) {
      Event event;
      if (events_[place_of(number)].try_load(event) && event.number == number) {
        all.push_back(event);
      } else {
        all.clear();
        first = number + 1;
      }
    }
    return first;
  }

 private:
  using place = shared_value<Event, Atomics>;

  [[nodiscard]] std::size_t place_of(std::uint64_t number) const noexcept {
    return static_cast<std::size_t>(number) & mask_;
  }

  std::size_t mask_;
  std::vector<place> events_;  // event n at n modulo capacity
  // Invariant: events below the count were stored before it (release; readers acquire). So a place
  // that does not hold its event has been, or is being, overwritten by a later one.
  typename Atomics::template atomic<std::uint64_t> count_{0};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
