// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/observe/support/clocks.hpp>
#include <penstock/observe/trace_target.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/shared_value.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A ring buffer of a thread's latest events, in which a new event overwrites the oldest event.
/// Only one thread at a time may add events, which needs no locks or locked instructions. Any
/// thread may copy the events concurrently without blocking the writer. The constructor allocates
/// all memory.
///
/// `Event` must be trivially copyable and have a member `number`, which the ring sets to the number
/// of earlier events.
template <class Event, class Atomics = std_atomics>
class trace_ring {
 public:
  /// Creates a ring for `capacity` events, a power of two.
  explicit trace_ring(std::size_t capacity) : mask_(capacity - 1), events_(capacity) {}
  trace_ring(trace_ring&&) = delete;

  /// Adds an event. Only one thread at a time may call this.
  void add(Event event) noexcept {
    const std::uint64_t number = count_.load(std::memory_order_relaxed);
    event.number = number;
    events_[place_of(number)].store(event);
    count_.store(number + 1, std::memory_order_release);
  }

  /// Replaces the content of `all` with the latest events, oldest first and without gaps. If an
  /// event is overwritten during the copy, omits that event and all earlier events. Returns the
  /// number of the first event, or of the next event if the ring is empty. Any thread may call
  /// this.
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
  std::vector<place> events_;  // event n is at index n modulo capacity
  // Invariant: all events with a number less than the count were stored before the count (release,
  // with acquire in readers). If an element does not contain its event, a later event has
  // overwritten it or is overwriting it.
  typename Atomics::template atomic<std::uint64_t> count_{0};
};

/// An event in a ring: one cache line, including its sequence number.
struct traced_event {
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  std::uint64_t number = none;  ///< sequence number in the ring
  std::uint64_t begin = 0;      ///< in ticks
  std::uint64_t end = 0;        ///< in ticks
  std::uint64_t epoch = 0;      ///< epoch of the batch; for a setting, the number of workers
  std::uint64_t batch = none;   ///< index of the batch in its epoch, or `none`
  /// Number of samples; for a setting, the prefetch; for a depth, the number of slots.
  std::uint64_t samples = 0;
  std::uint64_t stage = 0;  ///< a `trace_stage`
};

/// Writes the trace track of one thread, or of the threads that hold a slot's leases one after
/// another. Buffers waits until their batch is known.
class alignas(cache_line) trace_writer : public trace_sink {
 public:
  /// Creates a track named `name`. `flow` distinguishes the batches of this loader from those of
  /// other loaders. The clock must outlive the writer.
  trace_writer(std::string name, std::uint64_t flow, std::size_t capacity, const tick_clock& clock)
      : trace_sink(table), name_(std::move(name)), flow_(flow), clock_(&clock), ring_(capacity) {}

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::uint64_t flow() const noexcept { return flow_; }
  [[nodiscard]] const trace_ring<traced_event>& ring() const noexcept { return ring_; }

  /// @name Only one thread at a time may call these members
  /// @{
  [[nodiscard]] std::uint64_t now() const noexcept { return clock_->now(); }
  /// Adds a finished stage of a batch.
  void add(trace_stage stage, std::uint64_t begin, std::uint64_t end, const batch_info& batch,
           std::uint64_t samples) noexcept {
    ring_.add({0, begin, end, batch.epoch, batch.batch, samples, number_of(stage)});
  }
  /// Adds a setting that a loader has used. For a transfer, `prefetch` is the number of device
  /// slots, and `workers` is 0.
  void add_setting(trace_stage stage, std::uint64_t begin, std::uint64_t end, std::uint64_t workers,
                   std::uint64_t prefetch) noexcept {
    ring_.add({0, begin, end, workers, traced_event::none, prefetch, number_of(stage)});
  }
  /// Adds a finished wait for the batch passed to the next `work_on`. Merges consecutive waits of
  /// the same stage, because they are one wait that was interrupted for a check.
  void record_wait(trace_stage stage, std::uint64_t begin, std::uint64_t end) noexcept {
    if (count_ != 0 && waits_[count_ - 1].stage == number_of(stage)) {
      waits_[count_ - 1].end = end;
      return;
    }
    if (count_ == waits_.size()) leave();
    waits_[count_++] = {0, begin, end, 0, traced_event::none, 0, number_of(stage)};
  }
  /// Assigns the buffered waits and all following events to `batch`. Returns the current time.
  std::uint64_t work_on(const batch_info& batch) noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      waits_[i].epoch = batch.epoch;
      waits_[i].batch = batch.batch;
    }
    leave();
    return now();
  }
  /// Adds the buffered waits without a batch.
  void leave() noexcept {
    for (std::size_t i = 0; i < count_; ++i) ring_.add(waits_[i]);
    count_ = 0;
  }
  /// @}

 private:
  [[nodiscard]] static std::uint64_t number_of(trace_stage stage) noexcept {
    return static_cast<std::uint64_t>(stage);
  }
  [[nodiscard]] static trace_writer& from(trace_sink& sink) noexcept {
    return static_cast<trace_writer&>(sink);
  }

  static const functions table;  // implementation of the `trace_sink` functions

  std::string name_;
  std::uint64_t flow_;
  const tick_clock* clock_;
  std::array<traced_event, 8> waits_{};
  std::size_t count_ = 0;
  trace_ring<traced_event> ring_;
};

inline constexpr trace_sink::functions trace_writer::table{
    [](const trace_sink& sink) noexcept { return static_cast<const trace_writer&>(sink).now(); },
    [](trace_sink& sink, trace_stage stage, std::uint64_t begin, const batch_info& batch,
       std::uint64_t samples) noexcept {
      from(sink).add(stage, begin, from(sink).now(), batch, samples);
    },
    [](trace_sink& sink, trace_stage stage, std::uint64_t begin, std::uint64_t end,
       std::uint64_t workers, std::uint64_t prefetch) noexcept {
      from(sink).add_setting(stage, begin, end, workers, prefetch);
    },
    [](trace_sink& sink, trace_stage stage, std::uint64_t begin, std::uint64_t end) noexcept {
      from(sink).record_wait(stage, begin, end);
    },
    [](trace_sink& sink, const batch_info& batch) noexcept { return from(sink).work_on(batch); },
    [](trace_sink& sink) noexcept { from(sink).leave(); }};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
