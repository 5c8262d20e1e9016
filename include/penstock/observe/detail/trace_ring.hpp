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

/// The latest events of one thread, in a ring whose oldest event each new one overwrites. One
/// thread at a time adds, without a lock and without a locked instruction; any thread takes a copy
/// meanwhile, and stops nobody. Memory is taken at construction.
///
/// `Event` is trivially copyable and has a `number`, which the ring sets: how many came before it.
template <class Event, class Atomics = std_atomics>
class trace_ring {
 public:
  /// For `capacity` events, a power of two.
  explicit trace_ring(std::size_t capacity) : mask_(capacity - 1), events_(capacity) {}
  trace_ring(trace_ring&&) = delete;

  /// One thread at a time.
  void add(Event event) noexcept {
    const std::uint64_t number = count_.load(std::memory_order_relaxed);
    event.number = number;
    events_[place_of(number)].store(event);
    count_.store(number + 1, std::memory_order_release);
  }

  /// Replaces `all` by the latest events, oldest first and without a gap: what is overwritten
  /// meanwhile is left out, with all before it. Returns the number of the first one, or of the next
  /// event where there is none. From any thread.
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
  // Invariant: events below it were stored before it was: with release, and acquired by readers. So
  // a place that does not hold its event has been given to a later one, or is being so.
  typename Atomics::template atomic<std::uint64_t> count_{0};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
