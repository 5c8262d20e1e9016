// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <penstock/observe/duration_stats.hpp>
#include <penstock/observe/stage_stats.hpp>
#include <penstock/observe/stats_clock.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What a loader has done, from its construction to the snapshot, or between two snapshots. Made by
/// `loader::stats()`; read as a table by `to_text`, by programs as JSON by `to_json`:
///
///     const auto before = loader.stats();
///     for (auto& batch : loader.epoch(1)) ...
///     std::cout << loader.stats() - before;
///
/// Numbers of different threads are not of one moment while these run: a sample may be counted, and
/// its batch not yet.
struct loader_stats {
  std::uint64_t loader = 0;                 ///< names the loader; of a sum, all of them
  std::chrono::nanoseconds age{0};          ///< the time that this is about
  std::size_t workers = 0;                  ///< threads that read samples; of a sum, of all
  stats_clock clock = stats_clock::steady;  ///< what times are measured by
  /// Whether that clock ran at another rate for a while than the steady clock: times are wrong
  /// then.
  bool clock_has_stepped = false;

  read_stats read;         ///< the work of the workers, or of the consumer where there are none
  duration_stats batches;  ///< complete ones, from the moment that a slot was bound to each

  wait_stats wait_for_slot;    ///< workers: every slot is full or leased
  wait_stats wait_for_copy;    ///< workers: the slot is free after a copy out of it
  wait_stats wait_for_demand;  ///< workers: the consumer has asked for no more batches
  wait_stats wait_for_opener;  ///< workers: another one waits for one of these, or makes an order

  /// Workers: more than the loop needs, see `loader_options::workers = automatic`.
  wait_stats wait_for_seat;

  wait_stats wait_for_ready;  ///< the consumer: no batch is complete
  wait_stats wait_for_lease;  ///< the consumer, which reads itself: every slot is leased
  depth_stats ready;          ///< complete batches after the one that the consumer took, sampled
  step_stats step;            ///< what the consumer got

  ahead_stats ahead;  ///< what the dataset was told of beforehand

  std::chrono::nanoseconds processor{0};  ///< the workers' processor time, some 10 ms late
  std::uint64_t minor_faults = 0;         ///< their page faults that needed no disk
  std::uint64_t major_faults = 0;         ///< those that waited for a disk
  /// The container had used up its quota of processor time. The kernel adds up all cores, so the
  /// time may exceed `age`.
  wait_stats throttled;
};

/// What came between two snapshots of one loader, or of the same sum of loaders. Throws
/// `stats_mismatch`.
[[nodiscard]] inline loader_stats operator-(const loader_stats& later,
                                            const loader_stats& earlier) {
  using detail::difference;
  using detail::grown;
  detail::require_later("loader_stats", later.loader, earlier.loader, later.age, earlier.age);
  loader_stats between = later;
  between.age -= earlier.age;
  between.read = difference(later.read, earlier.read);
  between.batches = later.batches - earlier.batches;
  for (const auto wait :
       {&loader_stats::wait_for_slot, &loader_stats::wait_for_copy, &loader_stats::wait_for_demand,
        &loader_stats::wait_for_opener, &loader_stats::wait_for_seat, &loader_stats::wait_for_ready,
        &loader_stats::wait_for_lease, &loader_stats::throttled}) {
    between.*wait = difference(later.*wait, earlier.*wait);
  }
  between.ready = difference(later.ready, earlier.ready);
  between.step = difference(later.step, earlier.step);
  for (const auto count :
       {&ahead_stats::samples, &ahead_stats::bytes, &ahead_stats::late, &ahead_stats::failed}) {
    between.ahead.*count = grown(later.ahead.*count, earlier.ahead.*count);
  }
  between.processor = grown(later.processor, earlier.processor);
  between.minor_faults = grown(later.minor_faults, earlier.minor_faults);
  between.major_faults = grown(later.major_faults, earlier.major_faults);
  return between;
}

/// What several loaders have done together; what is the container's stays as it is. Throws
/// `stats_mismatch` where they were measured by different clocks.
[[nodiscard]] inline loader_stats operator+(const loader_stats& a, const loader_stats& b) {
  using detail::sum;
  detail::require_one_clock("loader_stats", a.clock == b.clock);
  loader_stats both = a;
  both.loader += b.loader;
  both.age = (std::max)(a.age, b.age);
  both.workers += b.workers;
  both.clock_has_stepped = a.clock_has_stepped || b.clock_has_stepped;
  both.read = sum(a.read, b.read);
  both.batches = a.batches + b.batches;
  for (const auto wait :
       {&loader_stats::wait_for_slot, &loader_stats::wait_for_copy, &loader_stats::wait_for_demand,
        &loader_stats::wait_for_opener, &loader_stats::wait_for_seat, &loader_stats::wait_for_ready,
        &loader_stats::wait_for_lease}) {
    both.*wait = sum(a.*wait, b.*wait);
  }
  both.ready = sum(a.ready, b.ready);
  both.step = sum(a.step, b.step);
  for (const auto count : {&ahead_stats::most_bytes, &ahead_stats::samples, &ahead_stats::bytes,
                           &ahead_stats::bytes_now, &ahead_stats::late, &ahead_stats::failed}) {
    both.ahead.*count += b.ahead.*count;
  }
  // It may be all that 64 bits count.
  both.ahead.source_bytes = (std::max)(a.ahead.source_bytes, b.ahead.source_bytes);
  both.processor += b.processor;
  both.minor_faults += b.minor_faults;
  both.major_faults += b.major_faults;
  if (b.throttled.time > a.throttled.time) both.throttled = b.throttled;
  return both;
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
