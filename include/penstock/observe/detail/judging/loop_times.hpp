// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>

#include <penstock/observe/loader_stats.hpp>
#include <penstock/observe/transfer_stats.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The times of one batch, and what the loop waited for, out of statistics.
struct loop_times {
  double batches = 0;
  double all = 0;        // seconds, from batch to batch
  double body = 0;       // of it in the loop's body
  double reading = 0;    // seconds of workers, or of the consumer
  double computing = 0;  // of it, processor time; at most `reading`
  double for_batches = 0;
  double for_copies = 0;
  double for_leases = 0;
  double throttled = 0;
  double behind_device = 0;  // share of the workers' idle time that waits for copies out of slots
  double tail = 1;           // how much longer than the median a slow read takes
  std::size_t workers = 0;
  double floor = 0;  // of a batch in a replay; 0: there was none
  double ahead = 0;  // copies that were queued after the batch that was handed out
  bool is_fed = false;
  std::uint64_t depth = 0;  // of the feed
  // By the device's clock; 0: not timed.
  double device_copy = 0;
  double device_step = 0;
  double device_idle = 0;
  ahead_stats told;      // what the dataset was told beforehand
  bool is_body = false;  // the step is the loop's body, which idles between two
};

[[nodiscard]] inline double seconds(std::chrono::nanoseconds time) noexcept {
  return std::chrono::duration<double>(time).count();
}

/// The workers that took part: those that a loader has spared slept all the time.
[[nodiscard]] inline std::size_t workers_with_seats(const loader_stats& loader) noexcept {
  if (loader.workers == 0 || loader.age.count() <= 0) return loader.workers;
  const auto spared = std::llround(seconds(loader.wait_for_seat.time) / seconds(loader.age));
  return loader.workers - (std::min)(loader.workers - 1, static_cast<std::size_t>(spared));
}

inline void add_reads(loop_times& times, const loader_stats& loader) {
  times.workers = workers_with_seats(loader);
  times.told = loader.ahead;
  times.reading = seconds(loader.read.busy) / times.batches;
  times.computing = loader.workers == 0
                        ? times.reading
                        : (std::min)(times.reading, seconds(loader.processor) / times.batches);
  times.throttled = seconds(loader.throttled.time) / times.batches;
  const double idle = seconds(loader.wait_for_slot.time) + seconds(loader.wait_for_copy.time) +
                      seconds(loader.wait_for_demand.time);
  times.behind_device = idle > 0 ? seconds(loader.wait_for_copy.time) / idle : 0;
  const double median = seconds(loader.read.times.quantile(0.5));
  times.tail = median > 0 ? seconds(loader.read.times.quantile(0.99)) / median : 1;
}

[[nodiscard]] inline loop_times times_of(const loader_stats& stats) {
  loop_times times;
  times.batches = static_cast<double>(stats.step.batches);
  if (stats.step.batches == 0) return times;
  add_reads(times, stats);
  times.body = seconds(stats.step.busy) / times.batches;
  times.for_leases = seconds(stats.wait_for_lease.time) / times.batches;
  times.for_batches = seconds(stats.wait_for_ready.time) / times.batches;
  if (stats.workers == 0) times.for_batches += times.reading;
  times.all = times.body + times.for_batches + times.for_leases;
  return times;
}

[[nodiscard]] inline loop_times times_of(const transfer_stats& stats) {
  loop_times times;
  times.batches = static_cast<double>(stats.step.batches);
  if (stats.step.batches == 0) return times;
  if (stats.loader) add_reads(times, *stats.loader);
  times.body = seconds(stats.step.busy) / times.batches;
  times.for_batches = seconds(stats.wait_for_batch.time) / times.batches;
  times.for_copies = seconds(stats.wait_for_copy.time) / times.batches;
  times.for_leases = seconds(stats.wait_for_slot.time) / times.batches;
  times.all = times.body + times.for_batches + times.for_copies + times.for_leases;
  times.ahead = stats.ahead.mean();
  times.is_fed = true;
  times.depth = stats.depth;
  if (stats.device.batches != 0) {
    const auto timed = static_cast<double>(stats.device.batches);
    times.device_copy = seconds(stats.device.copy) / timed;
    times.device_step = seconds(stats.device.step) / timed;
    times.device_idle = seconds(stats.device.idle) / timed;
    times.is_body = stats.is_body;
  }
  return times;
}

/// Seconds of a batch in replays; 0: there was none.
[[nodiscard]] inline double floor_of(const loader_stats&) noexcept { return 0; }
[[nodiscard]] inline double floor_of(const transfer_stats& stats) noexcept {
  if (stats.replay.batches == 0) return 0;
  return seconds(stats.replay.time) / static_cast<double>(stats.replay.batches);
}

/// The time of a batch with so many workers, at least 1: the slowest of the body, reading, all that
/// computes, shared by the cores, and handing a batch from one thread to another. (6 to 8 us, where
/// nothing else takes time: docs/tuning.md has the figures.)
[[nodiscard]] inline double time_with(const loop_times& times, std::size_t workers,
                                      std::size_t cores) noexcept {
  constexpr double hand_off = 7e-6;
  const double computing = (times.computing + times.body) / static_cast<double>(cores);
  return (std::max)(
      {times.body, times.reading / static_cast<double>(workers), computing, hand_off});
}

/// The fewest workers with which a batch takes at most 2 % longer than with any number of them.
[[nodiscard]] inline std::size_t enough_workers(const loop_times& times,
                                                std::size_t cores) noexcept {
  constexpr std::size_t most = 256;
  const double best = time_with(times, most, cores);
  std::size_t workers = 1;
  while (workers < most && time_with(times, workers, cores) > 1.02 * best) ++workers;
  return workers;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
