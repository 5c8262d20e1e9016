// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Converts ticks to a time, rounded to the nearest nanosecond.
[[nodiscard]] inline std::chrono::nanoseconds time_of(double ticks,
                                                      double nanoseconds_per_tick) noexcept {
  return std::chrono::nanoseconds{__builtin_llround(ticks * nanoseconds_per_tick)};
}

/// Buckets of a histogram of times, with eight buckets of equal width for each power of two. The
/// middle of a bucket differs from its values by at most 1/16. Numbers below eight have their own
/// buckets. Numbers of 2^44 and above, which are hours in CPU ticks, share the last bucket.
struct log_buckets {
  /// Number of buckets.
  static constexpr std::size_t count = 336;

  /// Returns the bucket that contains `value`.
  [[nodiscard]] static constexpr std::size_t of(std::uint64_t value) noexcept {
    if (value < each) return static_cast<std::size_t>(value);
    const auto power = static_cast<unsigned>(std::bit_width(value)) - 1;
    if (power >= top) return count - 1;
    const std::uint64_t place = (value >> (power - bits)) & (each - 1);
    return static_cast<std::size_t>((power - bits + 1) * each + place);
  }
  /// Returns the smallest number in a bucket.
  [[nodiscard]] static constexpr std::uint64_t first(std::size_t bucket) noexcept {
    if (bucket < each) return bucket;
    const std::size_t power = bucket / each - 1;
    return (each + bucket % each) << power;
  }
  /// Returns the largest number in a bucket. The last bucket is treated as if it had the usual
  /// width.
  [[nodiscard]] static constexpr std::uint64_t last(std::size_t bucket) noexcept {
    return first(bucket + 1) - 1;
  }

 private:
  static constexpr unsigned bits = 3;
  static constexpr std::uint64_t each = std::uint64_t{1} << bits;
  static constexpr unsigned top = 44;
  static_assert(count == (top - bits + 1) * each);
};

}  // namespace detail

/// A histogram of durations in clock ticks. `quantile` is accurate to 1/16.
struct duration_stats {
  /// Counts, indexed by `detail::log_buckets`.
  std::array<std::uint64_t, detail::log_buckets::count> counts{};
  std::uint64_t total_ticks = 0;    ///< sum of all durations
  std::uint64_t longest_ticks = 0;  ///< longest duration
  double nanoseconds_per_tick = 1;  ///< length of a tick

  /// Returns the number of durations.
  [[nodiscard]] std::uint64_t count() const noexcept {
    std::uint64_t all = 0;
    for (const std::uint64_t some : counts) all += some;
    return all;
  }
  /// Returns the sum of the durations.
  [[nodiscard]] std::chrono::nanoseconds total() const noexcept {
    return time_of(static_cast<double>(total_ticks));
  }
  /// Returns the longest duration. After a subtraction, the value may be up to 1/8 too large.
  [[nodiscard]] std::chrono::nanoseconds longest() const noexcept {
    return time_of(static_cast<double>(longest_ticks));
  }
  /// Returns the duration that the fraction `share` of durations does not exceed. `quantile(0.5)`
  /// is the median. Returns 0 if the histogram is empty.
  [[nodiscard]] std::chrono::nanoseconds quantile(double share) const noexcept {
    const double rank = std::clamp(share, 0.0, 1.0) * static_cast<double>(count());
    std::uint64_t sum = 0;
    for (std::size_t bucket = 0; bucket < counts.size(); ++bucket) {
      sum += counts[bucket];
      if (sum == 0 || static_cast<double>(sum) < rank) continue;
      const auto first = static_cast<double>(detail::log_buckets::first(bucket));
      const auto last = static_cast<double>(detail::log_buckets::last(bucket));
      return time_of((std::min)((first + last) / 2, static_cast<double>(longest_ticks)));
    }
    return std::chrono::nanoseconds{0};
  }

  /// Returns the difference of two snapshots of the same histogram.
  [[nodiscard]] friend duration_stats operator-(duration_stats later,
                                                const duration_stats& earlier) noexcept {
    std::size_t top = 0;
    for (std::size_t bucket = 0; bucket < later.counts.size(); ++bucket) {
      later.counts[bucket] -= (std::min)(later.counts[bucket], earlier.counts[bucket]);
      if (later.counts[bucket] != 0) top = bucket;
    }
    later.total_ticks -= (std::min)(later.total_ticks, earlier.total_ticks);
    // In the difference of two snapshots, only the bucket of the longest duration is known.
    const std::uint64_t max = later.counts[top] != 0 ? detail::log_buckets::last(top) : 0;
    if (detail::log_buckets::of(later.longest_ticks) != top || max == 0) later.longest_ticks = max;
    return later;
  }
  /// Returns the sum in ticks of `a`.
  [[nodiscard]] friend duration_stats operator+(duration_stats a,
                                                const duration_stats& b) noexcept {
    for (std::size_t bucket = 0; bucket < a.counts.size(); ++bucket)
      a.counts[bucket] += b.counts[bucket];
    a.total_ticks += b.total_ticks;
    a.longest_ticks = (std::max)(a.longest_ticks, b.longest_ticks);
    return a;
  }

 private:
  [[nodiscard]] std::chrono::nanoseconds time_of(double ticks) const noexcept {
    return detail::time_of(ticks, nanoseconds_per_tick);
  }
};

/// Thrown if two snapshots are from different loaders, in the wrong order, or measured by different
/// clocks.
class [[gnu::visibility("default")]] stats_mismatch : public error {
 public:
  using error::error;
};

/// Number and total time of waits of one kind, including waits in progress at the time of the
/// snapshot.
struct wait_stats {
  std::uint64_t count = 0;           ///< number of waits that have begun
  std::chrono::nanoseconds time{0};  ///< total time
};

/// Depth of a queue, sampled whenever a thread removes an element.
struct depth_stats {
  std::uint64_t looks = 0;  ///< number of samples
  std::uint64_t sum = 0;    ///< sum of the sampled depths

  /// Returns the mean depth, or 0 if the queue was never sampled.
  [[nodiscard]] double mean() const noexcept {
    return looks == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(looks);
  }
};

/// A slow sample and its read time. The entry is empty if the time is 0.
struct slow_sample {
  std::uint64_t index = 0;           ///< index in the loader's dataset
  std::chrono::nanoseconds time{0};  ///< longest timed read of the sample
  friend bool operator==(const slow_sample&, const slow_sample&) = default;
};

/// Statistics of a loader's workers.
struct read_stats {
  std::uint64_t chunks = 0;   ///< number of chunks read
  std::uint64_t samples = 0;  ///< number of samples read
  /// Size of the samples read in bytes, as stored in batches. Ragged values are counted when their
  /// batch is complete.
  std::uint64_t bytes = 0;
  /// Total time in which workers did not wait. Includes reads, `map` functions, and the small cost
  /// of claiming work. If the loader has no workers, the total time of the batches.
  std::chrono::nanoseconds busy{0};
  std::uint64_t timed = 0;  ///< number of timed samples: all slow samples and some fast samples
  std::chrono::nanoseconds timed_chunks{0};  ///< total time of the timed chunks
  /// Time spent in `map` functions and decoders in the timed chunks.
  std::chrono::nanoseconds timed_transforms{0};
  duration_stats times;  ///< sample times; samples that are read together share their time
  /// The ten slowest samples, slowest first. Samples that are read together are represented by the
  /// first of them. In a difference, the list contains samples read between the snapshots.
  std::array<slow_sample, 10> slowest{};

  /// Returns the fraction of `busy` spent in `map` functions and decoders, from 0 to 1, estimated
  /// from the timed chunks.
  [[nodiscard]] double transforming() const noexcept {
    return timed_chunks.count() == 0 ? 0.0
                                     : static_cast<double>(timed_transforms.count()) /
                                           static_cast<double>(timed_chunks.count());
  }
};

/// Statistics of the prefetch hints that a loader sends to its dataset (see
/// `loader_options::lookahead_bytes`).
struct ahead_stats {
  /// Limit on prefetched bytes: the minimum of the option and the dataset's capacity. If 0, the
  /// loader sends no hints.
  std::uint64_t max_bytes = 0;
  std::uint64_t samples = 0;    ///< number of hinted samples
  std::uint64_t bytes = 0;      ///< total size of the hinted samples in bytes
  std::uint64_t bytes_now = 0;  ///< bytes of hinted samples that have not been read yet, sampled
  std::uint64_t late = 0;       ///< number of samples whose batch was opened before the hint
  std::uint64_t failed = 0;     ///< number of exceptions of the dataset or sampler during lookahead
  /// Capacity of the dataset for prefetched bytes. If 0, the dataset does not accept hints.
  std::uint64_t source_bytes = 0;
};

/// Statistics of the batches that the consumer received from a loader or transfer, and the time of
/// the loop body.
struct step_stats {
  std::uint64_t batches = 0;  ///< number of batches
  std::uint64_t samples = 0;  ///< number of samples in the batches
  /// Size of the samples in bytes, as stored in a batch. A transfer does not include ragged values
  /// here, because the host cannot read them. `transfer_stats::bytes` includes them.
  std::uint64_t bytes = 0;
  /// Time of the loop body: the time in which a range existed and its consumer did not wait.
  std::chrono::nanoseconds busy{0};
  /// Time in which a range existed and its thread was runnable but had no core. 0 if the kernel
  /// does not report it.
  std::chrono::nanoseconds run_queue{0};
};

/// Statistics of the batches delivered by `transfer::replay`.
struct replay_stats {
  std::uint64_t batches = 0;  ///< number of batches delivered
  /// Time from the first batch of each replay to the end of its work on the stream.
  std::chrono::nanoseconds time{0};
};

/// Times of timed batches, measured by the device's clock (see
/// `transfer_options::instrumentation.time_device`). Each time is the total over `batches` batches.
struct device_stats {
  std::uint64_t batches = 0;              ///< number of timed batches
  std::chrono::nanoseconds copy{0};       ///< time of the copies, excluding waits
  std::chrono::nanoseconds transform{0};  ///< time of the transforms
  /// Idle time of the consumer's stream, from the end of a step until the next batch is available
  /// on the stream.
  std::chrono::nanoseconds idle{0};
  std::chrono::nanoseconds step{0};  ///< time of the loop body's work after that idle time

  /// Returns the fraction of time in which the stream works on steps, from 0 to 1, or 0 if nothing
  /// was timed.
  [[nodiscard]] double busy() const noexcept {
    const auto all = idle + step;
    return all.count() == 0 ? 0.0
                            : static_cast<double>(step.count()) / static_cast<double>(all.count());
  }
};

namespace detail {

/// A list of monotonic statistics members. A difference subtracts them, and a sum adds them.
template <auto... Members>
struct growing {
  static constexpr bool are_there = sizeof...(Members) != 0;
  template <class Stats, class Combine>
  static constexpr void each(Stats& to, const Stats& with, const Combine& combine) {
    ((to.*Members = combine(to.*Members, with.*Members)), ...);
  }
};
/// The monotonic members of `Stats`. The list is empty for numbers and histograms.
template <class Stats>
struct counters : growing<> {};
template <>
struct counters<wait_stats> : growing<&wait_stats::count, &wait_stats::time> {};
template <>
struct counters<depth_stats> : growing<&depth_stats::looks, &depth_stats::sum> {};
template <>
struct counters<read_stats>
    : growing<&read_stats::chunks, &read_stats::samples, &read_stats::bytes, &read_stats::busy,
              &read_stats::timed, &read_stats::timed_chunks, &read_stats::timed_transforms,
              &read_stats::times> {};
template <>
struct counters<ahead_stats> : growing<&ahead_stats::samples, &ahead_stats::bytes,
                                       &ahead_stats::late, &ahead_stats::failed> {};
template <>
struct counters<step_stats>
    : growing<&step_stats::batches, &step_stats::samples, &step_stats::bytes, &step_stats::busy,
              &step_stats::run_queue> {};
template <>
struct counters<replay_stats> : growing<&replay_stats::batches, &replay_stats::time> {};
template <>
struct counters<device_stats>
    : growing<&device_stats::batches, &device_stats::copy, &device_stats::transform,
              &device_stats::idle, &device_stats::step> {};

template <class T>
concept has_counters = counters<T>::are_there;

/// Returns the increase of a number, or of each counter in a struct. Returns 0 if a race between
/// threads makes the difference negative. Other members keep their value from `later`.
template <class T>
[[nodiscard]] constexpr T grown(T later, const T& earlier) noexcept {
  if constexpr (has_counters<T>) {
    counters<T>::each(later, earlier, [](const auto& a, const auto& b) { return grown(a, b); });
    return later;
  } else if constexpr (requires { later > earlier; }) {
    return later > earlier ? later - earlier : T{};
  } else {
    return later - earlier;
  }
}
/// Returns the sum of two numbers, or of each counter in two structs. Other members keep their
/// value from `a`.
template <class T>
[[nodiscard]] constexpr T sum(T a, const T& b) noexcept {
  if constexpr (has_counters<T>) {
    counters<T>::each(a, b, [](const auto& one, const auto& other) { return sum(one, other); });
    return a;
  } else {
    return a + b;
  }
}

/// Throws `stats_mismatch` if different kinds of clocks measured the two snapshots.
inline void require_one_clock(std::string_view what, bool is_one) {
  if (is_one) return;
  throw stats_mismatch(str_cat({what, ": two snapshots were measured by different clocks"}));
}
/// Throws `stats_mismatch` unless both snapshots are from the same object and `age` is at least
/// `earlier_age`.
inline void require_later(std::string_view what, std::uint64_t later, std::uint64_t earlier,
                          std::chrono::nanoseconds age, std::chrono::nanoseconds earlier_age) {
  if (later != earlier) {
    throw stats_mismatch(std::string{what} +
                         ": the two snapshots are from different objects: subtract an earlier "
                         "snapshot of the same object");
  }
  if (age < earlier_age) {
    throw stats_mismatch(std::string{what} +
                         ": the subtracted snapshot is the later one: write later - earlier");
  }
}

using slowest_of_reads = decltype(read_stats::slowest);

/// Returns the samples in the later list that were read since the earlier snapshot. A sample in
/// both lists counts only if its time has increased. The comparison tolerates 2 %, because the tick
/// length may differ slightly between two snapshots.
[[nodiscard]] inline slowest_of_reads read_since(const slowest_of_reads& later,
                                                 const slowest_of_reads& earlier) {
  slowest_of_reads between{};
  std::copy_if(later.begin(), later.end(), between.begin(), [&](const slow_sample& one) {
    return std::none_of(earlier.begin(), earlier.end(), [&](const slow_sample& old) {
      return old.index == one.index && old.time >= one.time - one.time / 50;
    });
  });
  return between;
}
/// Returns the slowest samples in both lists.
[[nodiscard]] inline slowest_of_reads slowest_of(const slowest_of_reads& a,
                                                 const slowest_of_reads& b) {
  std::array<slow_sample, 2 * std::tuple_size_v<slowest_of_reads>> all{};
  std::copy(b.begin(), b.end(), std::copy(a.begin(), a.end(), all.begin()));
  slowest_of_reads both{};
  std::partial_sort_copy(all.begin(), all.end(), both.begin(), both.end(),
                         [](const auto& one, const auto& other) { return one.time > other.time; });
  return both;
}

}  // namespace detail

/// The clocks with which statistics are measured.
enum class stats_clock {
  tsc,      ///< time stamp counter (x86), if it is invariant
  counter,  ///< virtual counter (aarch64)
  steady,   ///< `std::chrono::steady_clock`, the fallback, which costs three times as much
};

namespace detail {

/// Returns the name of a clock.
[[nodiscard]] constexpr std::string_view name_of(stats_clock clock) noexcept {
  return clock == stats_clock::tsc ? "tsc" : clock == stats_clock::counter ? "counter" : "steady";
}

}  // namespace detail

/// Statistics of a loader since its construction, or between two snapshots. `loader::stats()`
/// returns a snapshot. `to_text` formats statistics as a table, and `to_json` as JSON:
///
///     const auto before = loader.stats();
///     for (auto& batch : loader.epoch(1)) ...
///     std::cout << loader.stats() - before;
///
/// The counters of running threads are not sampled at the same instant, so a sample may be counted
/// before its batch.
struct loader_stats {
  std::uint64_t loader = 0;         ///< identifies the loader, or all loaders if this is a sum
  std::chrono::nanoseconds age{0};  ///< time span
  /// Number of worker threads. In a sum, the number of worker threads of all loaders.
  std::size_t workers = 0;
  bool workers_are_automatic = false;       ///< true if `workers` is a maximum
  stats_clock clock = stats_clock::steady;  ///< clock of all times
  /// True if times are wrong, because the clock rate has changed relative to the steady clock.
  bool clock_has_stepped = false;

  read_stats read;  ///< reads by the workers, or by the consumer of a loader without workers
  /// Time of each batch from opening (including order and lengths) to completion.
  duration_stats batches;

  wait_stats wait_for_slot;    ///< worker waits because all slots are full or leased
  wait_stats wait_for_copy;    ///< worker waits for the copy out of a slot
  wait_stats wait_for_demand;  ///< worker waits because no further batch is needed
  wait_stats wait_for_opener;  ///< worker waits while another worker opens a batch

  /// Sleep of inactive workers (see `loader_options::workers = automatic`).
  wait_stats wait_while_inactive;

  wait_stats wait_for_ready;  ///< consumer waits because no batch is complete
  wait_stats wait_for_lease;  ///< waits of a consumer without workers for a leased slot
  depth_stats ready;          ///< number of complete batches left when the consumer took a batch
  step_stats step;            ///< batches delivered to the consumer

  ahead_stats ahead;  ///< prefetch hints

  std::chrono::nanoseconds processor{0};  ///< CPU time of the workers, accurate to about 10 ms
  /// Time in which workers were runnable but had no core. 0 if the kernel does not report it.
  std::chrono::nanoseconds run_queue{0};
  std::uint64_t minor_faults = 0;  ///< page faults of the workers without disk access
  std::uint64_t major_faults = 0;  ///< page faults of the workers with disk access
  /// Time in which the container's CPU quota was used up. The kernel sums over all cores, so the
  /// time may exceed `age`.
  wait_stats throttled;
};

namespace detail {

template <>
struct counters<loader_stats>
    : growing<&loader_stats::read, &loader_stats::batches, &loader_stats::wait_for_slot,
              &loader_stats::wait_for_copy, &loader_stats::wait_for_demand,
              &loader_stats::wait_for_opener, &loader_stats::wait_while_inactive,
              &loader_stats::wait_for_ready, &loader_stats::wait_for_lease, &loader_stats::ready,
              &loader_stats::step, &loader_stats::ahead, &loader_stats::processor,
              &loader_stats::run_queue, &loader_stats::minor_faults, &loader_stats::major_faults> {
};

}  // namespace detail

/// Returns the difference between two snapshots of the same loader, or of the same sum of loaders.
/// Throws `stats_mismatch` if the snapshots do not match.
[[nodiscard]] inline loader_stats operator-(const loader_stats& later,
                                            const loader_stats& earlier) {
  detail::require_later("loader_stats", later.loader, earlier.loader, later.age, earlier.age);
  loader_stats between = detail::grown(later, earlier);
  between.age -= earlier.age;
  between.read.slowest = detail::read_since(later.read.slowest, earlier.read.slowest);
  between.throttled = detail::grown(later.throttled, earlier.throttled);
  return between;
}

/// Returns the sum over several loaders. Values that apply to the whole container are not added.
/// Throws `stats_mismatch` if different clocks measured the loaders.
[[nodiscard]] inline loader_stats operator+(const loader_stats& a, const loader_stats& b) {
  detail::require_one_clock("loader_stats", a.clock == b.clock);
  loader_stats both = detail::sum(a, b);
  both.loader += b.loader;
  both.age = (std::max)(a.age, b.age);
  both.workers += b.workers;
  both.workers_are_automatic = a.workers_are_automatic || b.workers_are_automatic;
  both.clock_has_stepped = a.clock_has_stepped || b.clock_has_stepped;
  both.read.slowest = detail::slowest_of(a.read.slowest, b.read.slowest);
  both.ahead.max_bytes += b.ahead.max_bytes;
  both.ahead.bytes_now += b.ahead.bytes_now;
  // Capacities are not added, because a capacity may be the largest 64-bit number.
  both.ahead.source_bytes = (std::max)(a.ahead.source_bytes, b.ahead.source_bytes);
  if (b.throttled.time > a.throttled.time) both.throttled = b.throttled;
  return both;
}

/// Statistics of a `results` object since its construction, or between two snapshots.
/// `results::stats()` returns a snapshot. If a program stores it in `transfer_stats::results`,
/// `diagnose` considers it too.
struct results_stats {
  std::uint64_t workers = 0;    ///< number of consumer threads
  std::uint64_t taken = 0;      ///< number of slots acquired by the loop
  std::uint64_t handed_in = 0;  ///< number of slots sent by `send`
  std::uint64_t discarded = 0;  ///< number of slots released without a `send`
  std::uint64_t consumed = 0;   ///< number of slots whose consumer function has returned
  /// Time in which the loop waited for a slot, because consumers or copies are slower than the
  /// steps.
  std::chrono::nanoseconds waited{0};
  std::chrono::nanoseconds copying{0};    ///< total time in which workers waited for copies
  std::chrono::nanoseconds consuming{0};  ///< total run time of the consumer functions
};

namespace detail {

template <>
struct counters<results_stats>
    : growing<&results_stats::taken, &results_stats::handed_in, &results_stats::discarded,
              &results_stats::consumed, &results_stats::waited, &results_stats::copying,
              &results_stats::consuming> {};

}  // namespace detail

/// Returns the difference between two snapshots of the same object.
[[nodiscard]] inline results_stats operator-(const results_stats& later,
                                             const results_stats& earlier) noexcept {
  return detail::grown(later, earlier);
}

/// Statistics of a transfer since its construction, or between two snapshots. `transfer::stats()`
/// returns a snapshot. `to_text` and `to_json` format it like `loader_stats`.
///
/// The host does not wait for copies and transforms, so their times are unknown unless
/// `transfer_options::instrumentation.time_device` is set, which fills in `device`.
struct transfer_stats {
  std::uint64_t transfer = 0;       ///< identifies the transfer, or all transfers if this is a sum
  std::chrono::nanoseconds age{0};  ///< time span
  stats_clock clock = stats_clock::steady;  ///< clock of all times
  bool clock_has_stepped = false;           ///< see `loader_stats::clock_has_stepped`

  std::uint64_t depth = 0;   ///< number of device slots in use at the time of the snapshot
  bool runs_inline = false;  ///< true if the step is the loop body, because no stream was specified

  std::uint64_t copies = 0;   ///< number of batches whose copy was queued
  std::uint64_t samples = 0;  ///< number of samples in the copied batches
  std::uint64_t bytes = 0;    ///< size of the copied samples in bytes
  /// Number of batches that the device reads directly from host slots.
  std::uint64_t zero_copies = 0;
  std::uint64_t transforms = 0;  ///< number of batches whose device transform was queued

  wait_stats wait_for_batch;  ///< waits for a ready batch, including reads without workers
  wait_stats
      wait_for_slot;  ///< waits for a leased slot (see `transfer_options::on_slots_exhausted`)
  wait_stats wait_for_copy;  ///< waits for a copy, if the step is the loop body
  depth_stats ahead;         ///< number of copies in flight when a batch was delivered
  step_stats step;           ///< batches delivered to the consumer, and the loop body
  replay_stats replay;       ///< steps on batches that were already on the device
  device_stats device;       ///< times measured by the device's clock

  /// Statistics of the source if it is a loader.
  std::optional<loader_stats> loader;
  /// Statistics of a `results` object, if the program stores them here:
  /// `auto now = feed.stats(); now.results = out.stats();`. Not included in a sum.
  std::optional<results_stats> results = {};
};

namespace detail {

template <>
struct counters<transfer_stats>
    : growing<&transfer_stats::copies, &transfer_stats::samples, &transfer_stats::bytes,
              &transfer_stats::zero_copies, &transfer_stats::transforms,
              &transfer_stats::wait_for_batch, &transfer_stats::wait_for_slot,
              &transfer_stats::wait_for_copy, &transfer_stats::ahead, &transfer_stats::step,
              &transfer_stats::replay, &transfer_stats::device> {};

}  // namespace detail

/// Returns the difference between two snapshots of the same transfer, or of the same sum of
/// transfers. Throws `stats_mismatch` if the snapshots do not match.
[[nodiscard]] inline transfer_stats operator-(const transfer_stats& later,
                                              const transfer_stats& earlier) {
  detail::require_later("transfer_stats", later.transfer, earlier.transfer, later.age, earlier.age);
  transfer_stats between = detail::grown(later, earlier);
  between.age -= earlier.age;
  between.loader.reset();
  if (later.loader && earlier.loader) between.loader = *later.loader - *earlier.loader;
  between.results.reset();
  if (later.results && earlier.results) between.results = *later.results - *earlier.results;
  return between;
}

/// Returns the sum over several transfers, and over their loaders if each transfer has one. Throws
/// `stats_mismatch` if different clocks measured the transfers.
[[nodiscard]] inline transfer_stats operator+(const transfer_stats& a, const transfer_stats& b) {
  detail::require_one_clock("transfer_stats", a.clock == b.clock);
  transfer_stats both = detail::sum(a, b);
  both.transfer += b.transfer;
  both.age = (std::max)(a.age, b.age);
  both.clock_has_stepped = a.clock_has_stepped || b.clock_has_stepped;
  both.results.reset();
  both.loader.reset();
  if (a.loader && b.loader) both.loader = *a.loader + *b.loader;
  return both;
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
