// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/support/clocks.hpp>
#include <penstock/observe/support/trace_writer.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A stage of a batch, or a wait of a thread.
enum class trace_stage : std::uint8_t {
  read,             ///< a worker (without workers, the consumer) reads a chunk
  wait_for_demand,  ///< a worker waits until another batch is wanted
  wait_for_slot,    ///< a worker waits for a free host slot; the loop: for a slot for its results
  wait_for_copy,    ///< a worker: for the copy out of a slot; the consumer: for the batch's copy; a
                    ///< worker of `results`: for the copy of what it consumes next
  wait_for_opener,  ///< a worker waits until another one has opened the batch
  wait_while_inactive,  ///< an inactive worker sleeps, see `automatic`
  wait_for_batch,       ///< the consumer waits for the batch to be complete
  wait_for_lease,       ///< the consumer waits for a lease to end
  copy,                 ///< the consumer's thread queues the copy, and the transform; a worker of
                        ///< `results` that of a batch's results
  transform,            ///< the consumer's thread queues the transform, within `copy`
  step,                 ///< the loop's body: from the batch's hand-out to the next `++`
  lease,                ///< a slot is leased, from hand-out to release
  setting,              ///< the loader runs with these workers and this prefetch, see `automatic`
  depth,                ///< the transfer runs with so many device slots, see `automatic`
  consume,              ///< a worker of `results` consumes a batch's results
};

/// The stage in words, such as "wait for slot"; empty for an invalid value.
[[nodiscard]] constexpr std::string_view name_of(trace_stage stage) noexcept {
  constexpr std::array<std::string_view, 15> names{
      "read",     "wait for demand", "wait for slot",  "wait for copy", "wait for opener",
      "inactive", "wait for batch",  "wait for lease", "copy",          "transform",
      "step",     "lease",           "setting",        "depth",         "consume"};
  static_assert(names.size() == static_cast<std::size_t>(trace_stage::consume) + 1);
  const auto place = static_cast<std::size_t>(stage);
  return place < names.size() ? names[place] : std::string_view{};
}

/// A finished stage. Times are of the steady clock (CLOCK_MONOTONIC).
struct trace_event {
  trace_stage stage = trace_stage::read;  ///< which
  std::chrono::nanoseconds begin{0};      ///< since the steady clock's epoch
  std::chrono::nanoseconds end{0};        ///< not before `begin`
  /// The batch; for a wait, the batch waited for; `std::nullopt` if none came.
  std::optional<batch_position> batch = {};
  std::uint64_t samples = 0;   ///< of the batch or the chunk; 0 for waits
  std::uint64_t workers = 0;   ///< of a setting: the active workers; else 0
  std::uint64_t prefetch = 0;  ///< of a setting: the batches read ahead; else 0
  std::uint64_t depth = 0;     ///< of a depth: the device slots in use; else 0
};

/// The events of one thread, or the leases of one slot.
struct trace_track {
  std::string name;  ///< "penstock worker 0", "penstock consumer", "penstock transfer",
      ///< "penstock tuning", "penstock depth", "penstock results", "penstock results worker 0",
      ///< "host slot 0", "device slot 0"; with " (2)" for a second loader, and so for `results`
  std::uint64_t flow = 0;           ///< equal for a loader and the transfer over it: same batches
  std::uint64_t lost = 0;           ///< older events that were overwritten
  std::vector<trace_event> events;  ///< the latest ones, without gaps, by end
};

/// A snapshot of a recorder.
struct trace_snapshot {
  std::vector<trace_track> tracks;          ///< in the order in which they were made
  std::chrono::nanoseconds taken{0};        ///< when, by the steady clock
  stats_clock clock = stats_clock::steady;  ///< the clock of all times
  bool clock_has_stepped = false;           ///< times are wrong: see `loader_stats`
};

/// The options of a `trace_recorder`. Bad values throw `option_error` at construction.
struct trace_options {
  /// The capacity in events of each thread, and in total of the slots of a ring: a power of two
  /// from 16 to 2^24, at 64 bytes each. The default holds more than an epoch of MNIST in batches of
  /// 64, where a thread has at most eight events per batch.
  std::size_t capacity = 8192;
};

/// Records the life of each batch: reads, waits, copy, step and release, by thread and time. Made
/// by the program, and given to loaders and transfers in their options:
///
///     ps::trace_recorder recorder;
///     ps::loader loader{digits, ps::shuffled{.seed = 1}, {.observe = {.trace = &recorder}}};
///     ps::transfer feed{loader, stream, {.observe = {.trace = &recorder}}};
///     for (auto& batch : feed.epoch(0)) train_step(batch, stream);
///     ps::write_chrome_trace(recorder, "epoch.json");
///
/// It must exist when they are made; after its destruction nothing is recorded. Each worker, the
/// consumer at the loader and at the transfer, and each slot has a ring buffer, which is allocated
/// when loader or transfer is made and freed with the last of them, including leases. An event
/// costs two clock readings and one cache line, without lock, allocation or system call. The newest
/// events are kept.
class trace_recorder {
 public:
  /// Throws `option_error`.
  explicit trace_recorder(const trace_options& options = {})
      : capacity_(options.capacity), log_(std::make_shared<log>()) {
    constexpr std::size_t least = 16;
    constexpr std::size_t most = std::size_t{1} << 24;
    if (!std::has_single_bit(capacity_) || capacity_ < least || capacity_ > most) {
      detail::refuse_option("capacity", {capacity_, " is no power of two in ", least, "..", most});
    }
  }
  trace_recorder(trace_recorder&&) = delete;

  /// The capacity in events per thread.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  /// A copy of the recorded events that are still kept. From any thread, also while loops run,
  /// without stopping them; only the construction of loaders and transfers waits. May throw
  /// std::bad_alloc.
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
  // For loaders and transfers under construction: a number that distinguishes their batches.
  [[nodiscard]] std::uint64_t new_flow() {
    const std::lock_guard lock{log_->mutex};
    return ++log_->flows;
  }
  // And a track, with one writer at a time, that keeps alive what it needs.
  [[nodiscard]] std::shared_ptr<detail::trace_writer> add_track(std::string name,
                                                                std::uint64_t flow,
                                                                std::size_t capacity) {
    if (flow > 1) name = detail::joined({name, " (", flow, ")"});
    auto made =
        std::make_unique<detail::trace_writer>(std::move(name), flow, capacity, log_->clock);
    const std::lock_guard lock{log_->mutex};
    log_->tracks.push_back(std::move(made));
    return {log_, log_->tracks.back().get()};
  }
  /// @endcond

 private:
  using look = detail::tick_clock::reading;

  /// State shared by the recorder, loaders, transfers and leases: a read that was given up may
  /// return after all of them are gone.
  struct log {
    detail::tick_clock clock;
    std::mutex mutex;  // guards the next two members, which recording threads do not use
    std::uint64_t flows = 0;
    std::vector<std::unique_ptr<detail::trace_writer>> tracks;
  };

  [[nodiscard]] static std::chrono::nanoseconds time_of(std::uint64_t ticks, const look& at) {
    const auto since = static_cast<std::int64_t>(ticks - at.ticks);  // before the look: negative
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

}  // namespace PENSTOCK_ABI
}  // namespace penstock
