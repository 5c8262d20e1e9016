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

/// The time of so many ticks, to the nearest nanosecond.
[[nodiscard]] inline std::chrono::nanoseconds time_of(double ticks,
                                                      double nanoseconds_per_tick) noexcept {
  return std::chrono::nanoseconds{__builtin_llround(ticks * nanoseconds_per_tick)};
}

/// The buckets of a histogram of times: eight of equal width for each power of two, so that a
/// bucket's middle is at most a sixteenth off. Numbers below eight have one bucket each; numbers
/// from 2^44 on, hours of processor ticks, share the last one.
struct log_buckets {
  /// The number of buckets.
  static constexpr std::size_t count = 336;

  /// The bucket of a number.
  [[nodiscard]] static constexpr std::size_t of(std::uint64_t value) noexcept {
    if (value < each) return static_cast<std::size_t>(value);
    const auto power = static_cast<unsigned>(std::bit_width(value)) - 1;
    if (power >= top) return count - 1;
    const std::uint64_t place = (value >> (power - bits)) & (each - 1);
    return static_cast<std::size_t>((power - bits + 1) * each + place);
  }
  /// The smallest number in a bucket.
  [[nodiscard]] static constexpr std::uint64_t first(std::size_t bucket) noexcept {
    if (bucket < each) return bucket;
    const std::size_t power = bucket / each - 1;
    return (each + bucket % each) << power;
  }
  /// The largest number in a bucket; for the last bucket, as if it had the usual width.
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

/// A histogram of durations, in ticks of the measuring clock. `quantile` is at most a sixteenth
/// off.
struct duration_stats {
  /// Counts by `detail::log_buckets`.
  std::array<std::uint64_t, detail::log_buckets::count> counts{};
  std::uint64_t total_ticks = 0;    ///< of all together
  std::uint64_t longest_ticks = 0;  ///< of the longest
  double nanoseconds_per_tick = 1;  ///< how long a tick was

  /// The number of durations.
  [[nodiscard]] std::uint64_t count() const noexcept {
    std::uint64_t all = 0;
    for (const std::uint64_t some : counts) all += some;
    return all;
  }
  /// The sum.
  [[nodiscard]] std::chrono::nanoseconds total() const noexcept {
    return time_of(static_cast<double>(total_ticks));
  }
  /// The longest. After a subtraction it may be up to an eighth too long.
  [[nodiscard]] std::chrono::nanoseconds longest() const noexcept {
    return time_of(static_cast<double>(longest_ticks));
  }
  /// The duration that a `share` of them does not exceed: `quantile(0.5)` is the median. 0 if
  /// empty.
  [[nodiscard]] std::chrono::nanoseconds quantile(double share) const noexcept {
    const double rank = std::clamp(share, 0.0, 1.0) * static_cast<double>(count());
    std::uint64_t seen = 0;
    for (std::size_t bucket = 0; bucket < counts.size(); ++bucket) {
      seen += counts[bucket];
      if (seen == 0 || static_cast<double>(seen) < rank) continue;
      const auto first = static_cast<double>(detail::log_buckets::first(bucket));
      const auto last = static_cast<double>(detail::log_buckets::last(bucket));
      return time_of((std::min)((first + last) / 2, static_cast<double>(longest_ticks)));
    }
    return std::chrono::nanoseconds{0};
  }

  /// The difference of two snapshots of one histogram.
  [[nodiscard]] friend duration_stats operator-(duration_stats later,
                                                const duration_stats& earlier) noexcept {
    std::size_t top = 0;
    for (std::size_t bucket = 0; bucket < later.counts.size(); ++bucket) {
      later.counts[bucket] -= (std::min)(later.counts[bucket], earlier.counts[bucket]);
      if (later.counts[bucket] != 0) top = bucket;
    }
    later.total_ticks -= (std::min)(later.total_ticks, earlier.total_ticks);
    // The longest of the difference is known only by its bucket.
    const std::uint64_t most = later.counts[top] != 0 ? detail::log_buckets::last(top) : 0;
    if (detail::log_buckets::of(later.longest_ticks) != top || most == 0)
      later.longest_ticks = most;
    return later;
  }
  /// The sum, in ticks of the first.
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

/// Two snapshots do not belong together: they are of different loaders, in the wrong order, or by
/// different clocks.
class [[gnu::visibility("default")]] stats_mismatch : public error {
 public:
  using error::error;
};

/// Count and total time of the waits of one kind. Waits in progress count up to the snapshot.
struct wait_stats {
  std::uint64_t count = 0;           ///< waits that have begun
  std::chrono::nanoseconds time{0};  ///< in all
};

/// The depth of a queue, sampled each time its reader looked.
struct depth_stats {
  std::uint64_t looks = 0;  ///< how often it did
  std::uint64_t sum = 0;    ///< of what was there at each look

  /// The mean; 0 without a look.
  [[nodiscard]] double mean() const noexcept {
    return looks == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(looks);
  }
};

/// A slow sample and its read time; time 0: none.
struct slow_sample {
  std::uint64_t index = 0;           ///< in the loader's dataset
  std::chrono::nanoseconds time{0};  ///< of its slowest read that was timed
  friend bool operator==(const slow_sample&, const slow_sample&) = default;
};

/// The work of a loader's workers.
struct read_stats {
  std::uint64_t chunks = 0;   ///< chunks read
  std::uint64_t samples = 0;  ///< samples of those chunks
  /// Bytes bytes of those samples in batches; ragged values count once their batch is complete.
  std::uint64_t bytes = 0;
  /// The total time in which workers did not wait: reads with their `map` functions, and the small
  /// cost of claiming. Without workers, the time of all batches.
  std::chrono::nanoseconds busy{0};
  std::uint64_t timed = 0;  ///< samples that were timed: all slow ones, and some of the fast ones
  std::chrono::nanoseconds timed_chunks{0};  ///< total time of the timed chunks,
  /// and the part of it that `map` functions and decoders took.
  std::chrono::nanoseconds timed_transforms{0};
  duration_stats times;  ///< of single samples; samples that are read together share their time
  /// The ten slowest samples, slowest first. Of samples that are read together, the first. In a
  /// difference, those read between the snapshots.
  std::array<slow_sample, 10> slowest{};

  /// The share of `busy` that `map` functions and decoders take, in 0..1, estimated from the timed
  /// chunks.
  [[nodiscard]] double transforming() const noexcept {
    return timed_chunks.count() == 0 ? 0.0
                                     : static_cast<double>(timed_transforms.count()) /
                                           static_cast<double>(timed_chunks.count());
  }
};

/// The prefetch hints that a loader has sent to its dataset, see `loader_options::ahead.bytes`.
struct ahead_stats {
  /// The bound: the option or the dataset's capacity, whichever is less; 0: no hints are sent.
  std::uint64_t most_bytes = 0;
  std::uint64_t samples = 0;    ///< hinted samples
  std::uint64_t bytes = 0;      ///< of those samples
  std::uint64_t bytes_now = 0;  ///< bytes of those not read yet, sampled
  std::uint64_t late = 0;       ///< samples whose batch was opened before the hint
  std::uint64_t failed = 0;     ///< exceptions of dataset or sampler in the lookahead
  /// The dataset's capacity for prefetched bytes; 0: it accepts no hints.
  std::uint64_t source_bytes = 0;
};

/// The batches taken from a loader or a transfer, and the time of the loop's body.
struct step_stats {
  std::uint64_t batches = 0;  ///< leases
  std::uint64_t samples = 0;  ///< of those batches
  /// Of those samples, as they lie in a batch. Of a transfer without ragged values, which the host
  /// can't look at; `transfer_stats::bytes` has them.
  std::uint64_t bytes = 0;
  /// The time in which a range was live and its consumer waited for nothing: the loop's body.
  std::chrono::nanoseconds busy{0};
};

/// What was handed out again and again, see `transfer::replay`.
struct replay_stats {
  std::uint64_t batches = 0;  ///< batches handed out
  /// From the first batch of each replay to the end of its work on the stream.
  std::chrono::nanoseconds time{0};
};

/// Times of some batches by the device's clock, see `transfer_options::observe.time_device`. Times
/// are totals over `batches` batches.
struct device_stats {
  std::uint64_t batches = 0;              ///< that were timed
  std::chrono::nanoseconds copy{0};       ///< of their copies, without waits
  std::chrono::nanoseconds transform{0};  ///< of their transforms
  /// Idle time of the consumer's stream: from the end of a step until the next batch is available
  /// to it.
  std::chrono::nanoseconds idle{0};
  std::chrono::nanoseconds step{0};  ///< from there to the end of the work that the body has queued

  /// The share of time in which the stream worked on steps, in 0..1; 0 if nothing was timed.
  [[nodiscard]] double busy() const noexcept {
    const auto all = idle + step;
    return all.count() == 0 ? 0.0
                            : static_cast<double>(step.count()) / static_cast<double>(all.count());
  }
};

namespace detail {

/// Members of statistics that only grow: a difference subtracts and a sum adds them.
template <auto... Members>
struct growing {
  static constexpr bool are_there = sizeof...(Members) != 0;
  template <class Stats, class Combine>
  static constexpr void each(Stats& to, const Stats& with, const Combine& combine) {
    ((to.*Members = combine(to.*Members, with.*Members)), ...);
  }
};
/// Those of `Stats`. None: it is a number itself, or a histogram.
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
    : growing<&step_stats::batches, &step_stats::samples, &step_stats::bytes, &step_stats::busy> {};
template <>
struct counters<replay_stats> : growing<&replay_stats::batches, &replay_stats::time> {};
template <>
struct counters<device_stats>
    : growing<&device_stats::batches, &device_stats::copy, &device_stats::transform,
              &device_stats::idle, &device_stats::step> {};

template <class T>
concept has_counters = counters<T>::are_there;

/// The growth of a number, or of each counter; 0 if a race between threads makes it negative. What
/// is no counter stays as it is in `later`.
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
/// The sum of two numbers, or of each counter. What is no counter stays as it is in `a`.
template <class T>
[[nodiscard]] constexpr T sum(T a, const T& b) noexcept {
  if constexpr (has_counters<T>) {
    counters<T>::each(a, b, [](const auto& one, const auto& other) { return sum(one, other); });
    return a;
  } else {
    return a + b;
  }
}

/// Throws `stats_mismatch` unless both were measured by the same kind of clock.
inline void require_one_clock(std::string_view what, bool is_one) {
  if (is_one) return;
  throw stats_mismatch(joined({what, ": two snapshots were measured by different clocks"}));
}
/// Throws `stats_mismatch` unless both snapshots have the same identity, and the later one is not
/// younger.
inline void require_later(std::string_view what, std::uint64_t later, std::uint64_t earlier,
                          std::chrono::nanoseconds age, std::chrono::nanoseconds earlier_age) {
  if (later != earlier) {
    throw stats_mismatch(std::string{what} +
                         ": two snapshots are of different ones: subtract an earlier snapshot of "
                         "the same");
  }
  if (age < earlier_age) {
    throw stats_mismatch(std::string{what} +
                         ": the snapshot that is subtracted is the later one: write later - "
                         "earlier");
  }
}

using slowest_of_reads = decltype(read_stats::slowest);

/// Those of the later list that were read since: a sample of the earlier list counts only with a
/// longer time; the length of a tick may differ slightly between two snapshots.
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
/// The slowest of both lists.
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

/// The clock by which statistics are measured.
enum class stats_clock {
  tsc,      ///< the processor's time stamp counter (x86), if it is invariant
  counter,  ///< the processor's virtual counter (aarch64)
  steady,   ///< `std::chrono::steady_clock`, the fallback; costs three times as much
};

namespace detail {

/// The name in texts.
[[nodiscard]] constexpr std::string_view name_of(stats_clock clock) noexcept {
  return clock == stats_clock::tsc ? "tsc" : clock == stats_clock::counter ? "counter" : "steady";
}

}  // namespace detail

/// Statistics of a loader, from its construction to the snapshot, or between two snapshots. Made by
/// `loader::stats()`; read as a table by `to_text`, by programs as JSON by `to_json`:
///
///     const auto before = loader.stats();
///     for (auto& batch : loader.epoch(1)) ...
///     std::cout << loader.stats() - before;
///
/// While threads run, their counters are not sampled at the same instant: a sample may be counted
/// before its batch.
struct loader_stats {
  std::uint64_t loader = 0;                 ///< identifies the loader; in a sum, all of them
  std::chrono::nanoseconds age{0};          ///< the time span
  std::size_t workers = 0;                  ///< worker threads; in a sum, of all loaders
  stats_clock clock = stats_clock::steady;  ///< the clock of all times
  /// Whether the clock's rate has changed relative to the steady clock, which makes times wrong.
  bool clock_has_stepped = false;

  read_stats read;         ///< the work of the workers, or of the consumer without workers
  duration_stats batches;  ///< from opening (order and lengths included) to completion

  wait_stats wait_for_slot;    ///< workers: every slot is full or leased
  wait_stats wait_for_copy;    ///< workers: the copy out of the slot is not complete
  wait_stats wait_for_demand;  ///< workers: no further batch is wanted yet
  wait_stats wait_for_opener;  ///< workers: the opener waits for one of these, or computes an order

  /// Workers: inactive, see `loader_options::workers = automatic`.
  wait_stats wait_while_inactive;

  wait_stats wait_for_ready;  ///< the consumer: no batch is complete
  wait_stats wait_for_lease;  ///< the consumer, without workers: every slot is leased
  depth_stats ready;          ///< complete batches left when the consumer took one, sampled
  step_stats step;            ///< batches handed to the consumer

  ahead_stats ahead;  ///< prefetch hints

  std::chrono::nanoseconds processor{0};  ///< the workers' processor time, about 10 ms late
  /// Time in which workers were ready to run and had no core; 0 where the kernel does not say.
  std::chrono::nanoseconds run_queue{0};
  std::uint64_t minor_faults = 0;  ///< their page faults without disk access
  std::uint64_t major_faults = 0;  ///< their page faults with disk access
  /// Time in which the container had used up its CPU quota. The kernel sums over all cores, so it
  /// may exceed `age`.
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

/// The difference of two snapshots of one loader, or of the same sum of loaders. Throws
/// `stats_mismatch`.
[[nodiscard]] inline loader_stats operator-(const loader_stats& later,
                                            const loader_stats& earlier) {
  detail::require_later("loader_stats", later.loader, earlier.loader, later.age, earlier.age);
  loader_stats between = detail::grown(later, earlier);
  between.age -= earlier.age;
  between.read.slowest = detail::read_since(later.read.slowest, earlier.read.slowest);
  between.throttled = detail::grown(later.throttled, earlier.throttled);
  return between;
}

/// The sum over several loaders; values of the container are not added. Throws `stats_mismatch` if
/// they were measured by different clocks.
[[nodiscard]] inline loader_stats operator+(const loader_stats& a, const loader_stats& b) {
  detail::require_one_clock("loader_stats", a.clock == b.clock);
  loader_stats both = detail::sum(a, b);
  both.loader += b.loader;
  both.age = (std::max)(a.age, b.age);
  both.workers += b.workers;
  both.clock_has_stepped = a.clock_has_stepped || b.clock_has_stepped;
  both.read.slowest = detail::slowest_of(a.read.slowest, b.read.slowest);
  both.ahead.most_bytes += b.ahead.most_bytes;
  both.ahead.bytes_now += b.ahead.bytes_now;
  // It may be the largest 64-bit number.
  both.ahead.source_bytes = (std::max)(a.ahead.source_bytes, b.ahead.source_bytes);
  if (b.throttled.time > a.throttled.time) both.throttled = b.throttled;
  return both;
}

/// What `results` have been through, by `results::stats()`: since their construction, or between
/// two snapshots. Put into `transfer_stats::results` they are part of the verdict of `diagnose`.
struct results_stats {
  std::uint64_t workers = 0;    ///< threads that consume
  std::uint64_t taken = 0;      ///< slots that the loop has got
  std::uint64_t handed_in = 0;  ///< by `send`
  std::uint64_t discarded = 0;  ///< slots that were dropped without a `send`
  std::uint64_t consumed = 0;   ///< whose consumer has returned
  /// How long the loop has waited for a slot: consumers, or the copies, are slower than the steps.
  std::chrono::nanoseconds waited{0};
  std::chrono::nanoseconds copying{0};    ///< how long workers have waited for copies, in all
  std::chrono::nanoseconds consuming{0};  ///< how long consumers have run, in all
};

namespace detail {

template <>
struct counters<results_stats>
    : growing<&results_stats::taken, &results_stats::handed_in, &results_stats::discarded,
              &results_stats::consumed, &results_stats::waited, &results_stats::copying,
              &results_stats::consuming> {};

}  // namespace detail

/// The difference of two snapshots of the same results.
[[nodiscard]] inline results_stats operator-(const results_stats& later,
                                             const results_stats& earlier) noexcept {
  return detail::grown(later, earlier);
}

/// Statistics of a transfer, from its construction to the snapshot, or between two snapshots. Made
/// by `transfer::stats()`; see `loader_stats`, also for the texts.
///
/// The host does not wait for copies and transforms, so their times are unknown unless
/// `transfer_options::observe.time_device` fills in `device`.
struct transfer_stats {
  std::uint64_t transfer = 0;               ///< identifies the transfer; in a sum, all of them
  std::chrono::nanoseconds age{0};          ///< the time span
  stats_clock clock = stats_clock::steady;  ///< the clock of all times
  bool clock_has_stepped = false;           ///< see `loader_stats`

  std::uint64_t depth = 0;  ///< device slots in use, at the snapshot
  bool is_body = false;     ///< whether the loop's body is the step (no stream was given)

  std::uint64_t copies = 0;       ///< batches whose copy was queued
  std::uint64_t samples = 0;      ///< of those batches
  std::uint64_t bytes = 0;        ///< bytes of those samples, as copied
  std::uint64_t zero_copies = 0;  ///< batches that the device gets in their host slots instead
  std::uint64_t transforms = 0;   ///< batches whose transform on the device was queued

  wait_stats wait_for_batch;  ///< no batch was ready; a loader without workers reads it
  wait_stats wait_for_slot;   ///< every device slot was leased, see `transfer_options::when_held`
  wait_stats wait_for_copy;   ///< if the loop's body is the step: the copy was not complete
  depth_stats ahead;          ///< copies in flight when a batch was handed out
  step_stats step;            ///< batches handed to the consumer, and the loop's body
  replay_stats replay;        ///< the step alone, on resident batches
  device_stats device;        ///< times by the device's clock

  /// Statistics of the source, if it is a loader.
  std::optional<loader_stats> loader;
  /// Those of the results of its steps, where the program puts them here:
  /// `auto now = feed.stats(); now.results = out.stats();`. A sum has none.
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

/// The difference of two snapshots of one transfer, or of the same sum of transfers. Throws
/// `stats_mismatch`.
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

/// The sum over several transfers, and over their loaders if each has one. Throws `stats_mismatch`
/// if they were measured by different clocks.
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
