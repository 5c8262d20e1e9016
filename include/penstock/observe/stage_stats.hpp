// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include <penstock/core/error.hpp>
#include <penstock/observe/duration_stats.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Two snapshots do not go together: of different loaders, the later one first, or by different
/// clocks.
class [[gnu::visibility("default")]] stats_mismatch : public error {
 public:
  using error::error;
};

/// How often threads have waited for one thing, and how long all of them together. What goes on
/// counts up to the snapshot.
struct wait_stats {
  std::uint64_t count = 0;           ///< waits that have begun
  std::chrono::nanoseconds time{0};  ///< in all
};

/// How many batches were in a queue, each time that its reader looked.
struct depth_stats {
  std::uint64_t looks = 0;  ///< how often it did
  std::uint64_t sum = 0;    ///< of what was there at each look

  /// The mean; 0 without a look.
  [[nodiscard]] double mean() const noexcept {
    return looks == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(looks);
  }
};

/// A sample by its index in the loader's dataset, and how long reading it took; 0: none.
struct slow_sample {
  std::uint64_t index = 0;           ///< in the loader's dataset
  std::chrono::nanoseconds time{0};  ///< of its slowest read that was timed
  friend bool operator==(const slow_sample&, const slow_sample&) = default;
};

/// What a loader's threads have read.
struct read_stats {
  std::uint64_t runs = 0;     ///< what a worker claims at a time
  std::uint64_t samples = 0;  ///< of those runs
  /// Of those samples, as they lie in a batch; ragged values once their batch is complete.
  std::uint64_t bytes = 0;
  /// The time in which the workers did not wait, added up: reads with their `map` functions, and
  /// what little it takes to share them out. Without workers, the time of all batches.
  std::chrono::nanoseconds busy{0};
  std::uint64_t timed =
      0;  ///< samples whose read was timed: all slow ones, some of those that are fast
  std::chrono::nanoseconds timed_runs{0};  ///< the time of runs that were timed,
  /// and the part of it in which samples were made of what was read: by `map`, by decoders.
  std::chrono::nanoseconds timed_transforms{0};
  duration_stats times;  ///< of single samples; those that are read at once share their time
  /// The ten that took longest, the longest first. Of samples that are read at once the first. In a
  /// difference those of them that were read meanwhile.
  std::array<slow_sample, 10> slowest{};

  /// The share of `busy` that `map` functions and decoders take, in 0..1, as far as it was timed.
  [[nodiscard]] double transforming() const noexcept {
    return timed_runs.count() == 0 ? 0.0
                                   : static_cast<double>(timed_transforms.count()) /
                                         static_cast<double>(timed_runs.count());
  }
};

/// What a loader has told its dataset ahead of the reads, see `loader_options::read_ahead`.
struct ahead_stats {
  /// The bound: the option, or what the dataset keeps where that is less; 0: nothing is told.
  std::uint64_t most_bytes = 0;
  std::uint64_t samples = 0;    ///< that the dataset was told of
  std::uint64_t bytes = 0;      ///< of those samples
  std::uint64_t bytes_now = 0;  ///< of those that are not read yet, sampled
  std::uint64_t late = 0;       ///< samples whose batch was opened before they were told
  std::uint64_t failed = 0;     ///< exceptions of the dataset, or of a sampler, while telling
  /// The most bytes that the dataset keeps ahead, whether it is told or not; 0: it does not want to
  /// know what comes.
  std::uint64_t source_bytes = 0;
};

/// What was taken from a loader or a transfer, and what its loop did between two batches.
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
  std::uint64_t batches = 0;  ///< each time that one was handed out
  /// From the first of each replay to the end of the work that its stream was given.
  std::chrono::nanoseconds time{0};
};

/// What the device's own clock says of some batches, see `transfer_options::time_device`. The times
/// are of `batches` batches, added up.
struct device_stats {
  std::uint64_t batches = 0;              ///< that were timed
  std::chrono::nanoseconds copy{0};       ///< of their copies, without what these wait for
  std::chrono::nanoseconds transform{0};  ///< of their transforms
  /// In which the consumer's stream had nothing to do before the batch: from the end of the step
  /// before, to where it has what the next one needs.
  std::chrono::nanoseconds idle{0};
  std::chrono::nanoseconds step{0};  ///< from there to the end of the work that the body gave it

  /// The share of the time in which the stream worked on steps, in 0..1; 0 where nothing was timed.
  [[nodiscard]] double busy() const noexcept {
    const auto all = idle + step;
    return all.count() == 0 ? 0.0
                            : static_cast<double>(step.count()) / static_cast<double>(all.count());
  }
};

namespace detail {

/// The number that grew, less what it was: 0 where two threads' numbers are not of one moment.
template <class T>
[[nodiscard]] constexpr T grown(T later, T earlier) noexcept {
  return later > earlier ? later - earlier : T{};
}

[[nodiscard]] inline wait_stats difference(const wait_stats& a, const wait_stats& b) noexcept {
  return {grown(a.count, b.count), grown(a.time, b.time)};
}
[[nodiscard]] inline wait_stats sum(const wait_stats& a, const wait_stats& b) noexcept {
  return {a.count + b.count, a.time + b.time};
}
[[nodiscard]] inline replay_stats difference(const replay_stats& a,
                                             const replay_stats& b) noexcept {
  return {grown(a.batches, b.batches), grown(a.time, b.time)};
}
[[nodiscard]] inline replay_stats sum(const replay_stats& a, const replay_stats& b) noexcept {
  return {a.batches + b.batches, a.time + b.time};
}
[[nodiscard]] inline device_stats difference(const device_stats& a,
                                             const device_stats& b) noexcept {
  return {grown(a.batches, b.batches), grown(a.copy, b.copy), grown(a.transform, b.transform),
          grown(a.idle, b.idle), grown(a.step, b.step)};
}
[[nodiscard]] inline device_stats sum(const device_stats& a, const device_stats& b) noexcept {
  return {a.batches + b.batches, a.copy + b.copy, a.transform + b.transform, a.idle + b.idle,
          a.step + b.step};
}
[[nodiscard]] inline step_stats difference(const step_stats& a, const step_stats& b) noexcept {
  return {grown(a.batches, b.batches), grown(a.samples, b.samples), grown(a.bytes, b.bytes),
          grown(a.busy, b.busy)};
}
[[nodiscard]] inline depth_stats difference(const depth_stats& a, const depth_stats& b) noexcept {
  return {grown(a.looks, b.looks), grown(a.sum, b.sum)};
}

[[nodiscard]] inline step_stats sum(const step_stats& a, const step_stats& b) noexcept {
  return {a.batches + b.batches, a.samples + b.samples, a.bytes + b.bytes, a.busy + b.busy};
}
[[nodiscard]] inline depth_stats sum(const depth_stats& a, const depth_stats& b) noexcept {
  return {a.looks + b.looks, a.sum + b.sum};
}

/// Throws `stats_mismatch` unless both were measured by one kind of clock.
inline void require_one_clock(std::string_view what, bool is_one) {
  if (is_one) return;
  throw stats_mismatch(std::string{what} + ": two snapshots were measured by different clocks");
}
/// Throws `stats_mismatch` unless one thing has become `later`, `age` old, after it was `earlier`.
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

[[nodiscard]] inline read_stats difference(const read_stats& later, const read_stats& earlier) {
  read_stats between{grown(later.runs, earlier.runs),
                     grown(later.samples, earlier.samples),
                     grown(later.bytes, earlier.bytes),
                     grown(later.busy, earlier.busy),
                     grown(later.timed, earlier.timed),
                     grown(later.timed_runs, earlier.timed_runs),
                     grown(later.timed_transforms, earlier.timed_transforms),
                     later.times - earlier.times,
                     {}};
  // A sample that was listed before is listed anew only with a longer time; what a tick is said to
  // last differs a little between two snapshots.
  std::copy_if(later.slowest.begin(), later.slowest.end(), between.slowest.begin(),
               [&](const slow_sample& one) {
                 return std::none_of(
                     earlier.slowest.begin(), earlier.slowest.end(), [&](const slow_sample& old) {
                       return old.index == one.index && old.time >= one.time - one.time / 50;
                     });
               });
  return between;
}

[[nodiscard]] inline read_stats sum(const read_stats& a, const read_stats& b) {
  read_stats both{a.runs + b.runs,
                  a.samples + b.samples,
                  a.bytes + b.bytes,
                  a.busy + b.busy,
                  a.timed + b.timed,
                  a.timed_runs + b.timed_runs,
                  a.timed_transforms + b.timed_transforms,
                  a.times + b.times,
                  {}};
  std::array<slow_sample, 2 * std::tuple_size_v<decltype(both.slowest)>> all{};
  std::copy(a.slowest.begin(), a.slowest.end(), all.begin());
  std::copy(b.slowest.begin(), b.slowest.end(), all.begin() + a.slowest.size());
  std::partial_sort_copy(all.begin(), all.end(), both.slowest.begin(), both.slowest.end(),
                         [](const auto& one, const auto& other) { return one.time > other.time; });
  return both;
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
