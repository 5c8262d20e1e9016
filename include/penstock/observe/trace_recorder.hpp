// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/support/clocks.hpp>
#include <penstock/observe/support/trace_writer.hpp>
#include <penstock/observe/trace_stage.hpp>
#include <penstock/observe/trace_target.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A finished stage. All times are steady clock times (CLOCK_MONOTONIC).
struct trace_event {
  trace_stage stage = trace_stage::read;  ///< the stage
  std::chrono::nanoseconds begin{0};      ///< start time since the epoch of the steady clock
  std::chrono::nanoseconds end{0};        ///< end time, not before `begin`
  /// The batch. For a wait, the batch that the thread waited for, or `std::nullopt` if no batch
  /// followed.
  std::optional<batch_position> batch = {};
  std::uint64_t samples = 0;   ///< number of samples in the batch or chunk; 0 for waits
  std::uint64_t workers = 0;   ///< number of active workers for a `setting`, otherwise 0
  std::uint64_t prefetch = 0;  ///< number of batches read ahead for a `setting`, otherwise 0
  std::uint64_t depth = 0;     ///< number of device slots in use for a `depth`, otherwise 0
};

/// The events of one thread, or the leases of one slot.
struct trace_track {
  std::string name;  ///< "penstock worker 0", "penstock consumer", "penstock transfer",
      ///< "penstock tuning", "penstock depth", "penstock results", "penstock results worker 0",
      ///< "host slot 0", "device slot 0"; a second loader or `results` appends " (2)"
  std::uint64_t flow = 0;           ///< equal for a loader and its transfer
  std::uint64_t lost = 0;           ///< number of older events that were overwritten
  std::vector<trace_event> events;  ///< latest events without gaps, sorted by end time
};

/// A snapshot of a recorder.
struct trace_snapshot {
  std::vector<trace_track> tracks;          ///< in order of creation
  std::chrono::nanoseconds taken{0};        ///< steady clock time of the snapshot
  stats_clock clock = stats_clock::steady;  ///< clock of all times
  bool clock_has_stepped = false;           ///< true if times are wrong (see `loader_stats`)
};

/// Options of a `trace_recorder`. Invalid values cause `option_error` at construction.
struct trace_options {
  /// Capacity in events of 64 bytes each, a power of two from 16 to 2^24. The capacity applies to
  /// each thread, and to all slots of a ring together. The default suffices for more than an epoch
  /// of MNIST in batches of 64, in which a thread has at most eight events for each batch.
  std::size_t capacity = 8192;
};

/// Records the stages of each batch (reads, waits, copy, step and release) with their threads and
/// times. The program creates the recorder and passes it to loaders and transfers in their options:
///
///     ps::trace_recorder recorder;
///     ps::loader loader{digits, ps::shuffled{.seed = 1},
///                       {.instrumentation = {.trace = &recorder}}};
///     ps::transfer feed{loader, stream, {.instrumentation = {.trace = &recorder}}};
///     for (auto& batch : feed.epoch(0)) train_step(batch, stream);
///     ps::write_chrome_trace(recorder, "epoch.json");
///
/// Create the recorder before the loaders and transfers. After its destruction, nothing is
/// recorded. Each worker and each slot has a ring buffer. The consumer has one in the loader and
/// one in the transfer. A buffer is allocated when the loader or transfer is constructed, and freed
/// when the last object that uses it is destroyed, including leases. An event costs two clock
/// readings and one cache line, without locks, allocations or system calls. The buffers keep the
/// newest events.
class trace_recorder {
 public:
  /// Creates a recorder. Throws `option_error` if the capacity is invalid.
  explicit trace_recorder(const trace_options& options = {})
      : capacity_(options.capacity), log_(std::make_shared<log>()) {
    constexpr std::size_t min = 16;
    constexpr std::size_t max = std::size_t{1} << 24;
    if (!std::has_single_bit(capacity_) || capacity_ < min || capacity_ > max) {
      detail::throw_option_error("capacity",
                                 {capacity_, " is not a power of two in ", min, "..", max});
    }
  }
  trace_recorder(trace_recorder&&) = delete;

  /// Returns the capacity in events for each thread.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  /// Returns a copy of the buffered events. Any thread may call this, even while loops run. Loops
  /// never wait for it, but constructing loaders and transfers does. May throw std::bad_alloc.
  [[nodiscard]] trace_snapshot snapshot() const {
    const std::lock_guard lock{log_->mutex};
    const auto at = log_->clock.look();
    trace_snapshot all;
    all.taken = at.steady;
    all.clock = log_->clock.source();
    all.clock_has_stepped = at.has_stepped;
    all.tracks.reserve(log_->tracks.size());
    std::vector<detail::traced_event> events;
    for (const auto& one : log_->tracks) {
      trace_track track{one->name(), one->flow(), one->ring().copy_to(events), {}};
      track.events.reserve(events.size());
      for (const auto& event : events) track.events.push_back(readable(event, at));
      all.tracks.push_back(std::move(track));
    }
    return all;
  }

  /// @cond internal
  // Returns a number that distinguishes the batches of a loader or transfer under construction.
  [[nodiscard]] std::uint64_t new_flow() {
    const std::lock_guard lock{log_->mutex};
    return ++log_->flows;
  }
  // Adds a track. Only one thread at a time may write to it. The track keeps all required objects
  // alive. The track name ends in `number` unless `number` is `unnumbered`.
  [[nodiscard]] std::shared_ptr<detail::trace_writer> add_track(std::uint64_t flow,
                                                                std::string name,
                                                                std::size_t number,
                                                                std::size_t capacity) {
    if (number != detail::tracing::unnumbered) name = detail::str_cat({name, " ", number});
    if (flow > 1) name = detail::str_cat({name, " (", flow, ")"});
    auto made =
        std::make_unique<detail::trace_writer>(std::move(name), flow, capacity, log_->clock);
    const std::lock_guard lock{log_->mutex};
    log_->tracks.push_back(std::move(made));
    return {log_, log_->tracks.back().get()};
  }
  /// @endcond

 private:
  using look = detail::tick_clock::reading;

  /// State shared by the recorder, loaders, transfers and leases. An abandoned read may return
  /// after all of them have been destroyed.
  struct log {
    detail::tick_clock clock;
    std::mutex mutex;  // guards flows and tracks; not used by recording threads
    std::uint64_t flows = 0;
    std::vector<std::unique_ptr<detail::trace_writer>> tracks;
  };

  [[nodiscard]] static std::chrono::nanoseconds time_of(std::uint64_t ticks, const look& at) {
    const auto since = static_cast<std::int64_t>(ticks - at.ticks);  // may be negative
    return at.steady + detail::time_of(static_cast<double>(since), at.nanoseconds_per_tick);
  }
  [[nodiscard]] static trace_event readable(const detail::traced_event& event, const look& at) {
    const auto begin = time_of(event.begin, at);
    trace_event all{static_cast<trace_stage>(event.stage), begin,
                    (std::max)(begin, time_of(event.end, at)), std::nullopt, event.samples};
    if (all.stage == trace_stage::setting) {
      all.workers = event.epoch;
      all.prefetch = std::exchange(all.samples, 0);
    }
    if (all.stage == trace_stage::depth) all.depth = std::exchange(all.samples, 0);
    if (event.batch != detail::traced_event::none) {
      all.batch = batch_position{event.epoch, event.batch};
    }
    return all;
  }

  std::size_t capacity_;
  std::shared_ptr<log> log_;
};

namespace detail {

/// The tracks of a slot ring. Each slot has a track with its leases. A lease may end on any thread,
/// but a slot has only one lease at a time. The synchronization between two leases of a slot also
/// orders their writes, so each track has one writer at a time.
class recorded_leases : public lease_sink {
 public:
  /// Creates `count` tracks with the name `name` and a slot number.
  recorded_leases(trace_recorder& recorder, std::uint64_t flow, const char* name, std::size_t count)
      : lease_sink{&begin_one, &end_one} {
    tracks_.reserve(count);
    const std::size_t each = std::max<std::size_t>(16, recorder.capacity() / std::bit_floor(count));
    for (std::size_t slot = 0; slot < count; ++slot) {
      tracks_.push_back({recorder.add_track(flow, name, slot, each), 0});
    }
  }

 private:
  struct track {
    std::shared_ptr<trace_writer> writer;
    std::uint64_t begin;
  };

  static void begin_one(lease_sink& all, std::size_t slot) noexcept {
    track& one = static_cast<recorded_leases&>(all).tracks_[slot];
    one.begin = one.writer->now();
  }
  static void end_one(lease_sink& all, std::size_t slot, const batch_info& batch) noexcept {
    const track& one = static_cast<recorded_leases&>(all).tracks_[slot];
    one.writer->add(trace_stage::lease, one.begin, one.writer->now(), batch, batch.size);
  }

  std::vector<track> tracks_;  // indexed by slot
};

inline constexpr tracing tracing::code{
    [](trace_recorder& recorder) { return recorder.new_flow(); },
    [](trace_recorder& recorder, std::uint64_t flow, const char* name,
       std::size_t number) -> std::shared_ptr<trace_sink> {
      return recorder.add_track(flow, name, number, recorder.capacity());
    },
    [](trace_recorder& recorder, std::uint64_t flow, const char* name,
       std::size_t count) -> std::shared_ptr<lease_sink> {
      return std::make_shared<recorded_leases>(recorder, flow, name, count);
    }};

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
