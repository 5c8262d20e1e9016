// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <mutex>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <penstock/observe/stats.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The clocks of this machine: the CPU's counter, if its rate is constant, and the steady clock.
/// Reading the counter takes a few nanoseconds.
class machine_clocks {
 public:
  machine_clocks() noexcept : source_(best()) {}

  [[nodiscard]] stats_clock source() const noexcept { return source_; }

  /// Returns the current time in ticks of the source. The ticks of `steady` are nanoseconds.
  [[nodiscard]] std::uint64_t ticks() const noexcept {
#if defined(__x86_64__)
    if (source_ == stats_clock::tsc) [[likely]]
      return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    std::uint64_t now = 0;
    asm volatile("mrs %0, cntvct_el0" : "=r"(now));
    return now;
#endif
    return static_cast<std::uint64_t>(steady().count());
  }
  [[nodiscard]] static std::chrono::nanoseconds steady() noexcept {
    return std::chrono::steady_clock::now().time_since_epoch();
  }

  /// Returns the approximate number of ticks in ten milliseconds. A time stamp counter is assumed
  /// to run at 3 GHz, so the result is up to three times too large for a slower counter.
  [[nodiscard]] std::uint64_t ticks_of_ten_milliseconds() const noexcept {
#if defined(__aarch64__)
    std::uint64_t frequency = 0;
    asm("mrs %0, cntfrq_el0" : "=r"(frequency));
    return frequency / 100;
#else
    return source_ == stats_clock::tsc ? 30'000'000 : 10'000'000;
#endif
  }

 private:
  [[nodiscard]] static stats_clock best() noexcept {
#if defined(__x86_64__)
    // "Invariant TSC" means that the counter runs at the same rate in all CPU states.
    constexpr unsigned leaf = 0x80000007;
    constexpr unsigned invariant = 1U << 8;
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    const bool is_there = __get_cpuid(leaf, &a, &b, &c, &d) != 0;
    return is_there && (d & invariant) != 0 ? stats_clock::tsc : stats_clock::steady;
#elif defined(__aarch64__)
    return stats_clock::counter;
#else
    return stats_clock::steady;
#endif
  }

  stats_clock source_;
};

/// Returns the ticks between two readings, or 0 if the clock went backward, as is possible between
/// two cores.
[[nodiscard]] constexpr std::uint64_t ticks_between(std::uint64_t begin,
                                                    std::uint64_t end) noexcept {
  return end > begin ? end - begin : 0;
}

/// Simultaneous readings of the ticks and the steady clock.
struct clock_pair {
  std::uint64_t ticks = 0;
  std::chrono::nanoseconds steady{0};
};

/// Computes the tick length from pairs of clock readings, and detects jumps of the ticks.
class tick_calibration {
 public:
  /// Calibrates the ticks of `source`, starting with the reading `first`.
  tick_calibration(stats_clock source, const clock_pair& first) noexcept
      : source_(source), first_(first), last_(first) {}

  /// A reading of both clocks and the resulting calibration.
  struct reading {
    std::uint64_t ticks = 0;
    std::chrono::nanoseconds steady{0};
    std::chrono::nanoseconds since{0};  ///< time since the first reading
    double nanoseconds_per_tick = 1;    ///< measured over at most the first second
    bool has_stepped = false;           ///< true if the ticks have jumped
  };

  [[nodiscard]] const clock_pair& first() const noexcept { return first_; }

  /// Adds a reading. Checks that the ratio of the clocks has been constant since the last reading.
  [[nodiscard]] reading add(const clock_pair& now) noexcept {
    const auto since = now.steady - first_.steady;
    if (source_ == stats_clock::steady) return {now.ticks, now.steady, since, 1.0, false};
    has_stepped_ = has_stepped_ || is_step(now);
    last_ = now;
    const double rate = rate_ != 0 ? rate_ : ratio(first_, now);
    // The rate is final after one second. If the rate kept changing, converted sums could decrease.
    if (since >= std::chrono::seconds{1}) rate_ = rate;
    return {now.ticks, now.steady, since, rate, has_stepped_};
  }

 private:
  [[nodiscard]] static double ratio(const clock_pair& begin, const clock_pair& end) noexcept {
    const std::uint64_t ticks = ticks_between(begin.ticks, end.ticks);
    const auto time = static_cast<double>((end.steady - begin.steady).count());
    return ticks == 0 || time <= 0 ? 1.0 : time / static_cast<double>(ticks);
  }

  /// Returns true if the ticks since the last reading contradict the earlier rate.
  [[nodiscard]] bool is_step(const clock_pair& now) const noexcept {
    if (now.ticks < last_.ticks) return true;
    constexpr double min = 1e6;  // nanoseconds; a smaller difference may be due to preemption
    const auto before = static_cast<double>((last_.steady - first_.steady).count());
    const auto since = static_cast<double>((now.steady - last_.steady).count());
    if (before < min) return false;  // the rate is not known yet
    const double by_ticks = static_cast<double>(now.ticks - last_.ticks) * ratio(first_, last_);
    return std::abs(by_ticks - since) > (std::max)(min, since / 50);
  }

  stats_clock source_;
  clock_pair first_;
  clock_pair last_;
  double rate_ = 0;  // nanoseconds for each tick if final, otherwise 0
  bool has_stepped_ = false;
};

/// The clock of the library's statistics. Calibrates ticks with the steady clock since
/// construction.
class tick_clock {
 public:
  using reading = tick_calibration::reading;

  tick_clock() noexcept : calibration_(clocks_.source(), read()) {}
  tick_clock(tick_clock&&) = delete;

  /// Returns the current ticks. Any thread may call this.
  [[nodiscard]] std::uint64_t now() const noexcept { return clocks_.ticks(); }
  /// Returns the source of the ticks.
  [[nodiscard]] stats_clock source() const noexcept { return clocks_.source(); }
  [[nodiscard]] const machine_clocks& clocks() const noexcept { return clocks_; }
  /// Returns the approximate number of ticks in ten milliseconds.
  [[nodiscard]] std::uint64_t ten_milliseconds() const noexcept {
    return clocks_.ticks_of_ten_milliseconds();
  }
  /// Reads both clocks. Any thread may call this.
  [[nodiscard]] reading look() noexcept {
    const std::lock_guard lock{mutex_};
    return calibration_.add(read());
  }
  /// Returns an identifier of this clock that is unique in the process, computed from its address
  /// and construction time.
  [[nodiscard]] std::uint64_t name() const noexcept {
    const auto place = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(this));
    const auto made = static_cast<std::uint64_t>(calibration_.first().steady.count());
    return ((place ^ made) * 0x9E3779B97F4A7C15U) | 1;  // odd, because 0 means no identifier
  }

 private:
  /// Reads both clocks simultaneously. Retries if the thread was preempted between the readings.
  [[nodiscard]] clock_pair read() const noexcept {
    constexpr std::chrono::nanoseconds apart{20'000};
    clock_pair both;
    for (int turn = 0; turn < 8; ++turn) {
      both.steady = machine_clocks::steady();
      both.ticks = clocks_.ticks();
      if (machine_clocks::steady() - both.steady < apart) break;
    }
    return both;
  }

  machine_clocks clocks_;
  std::mutex mutex_;  // guards the calibration, except its immutable first reading
  tick_calibration calibration_;
};

/// Times the samples of a chunk while it is read. The dataset reports when it starts reading a
/// sample, and the time until the next report counts for that sample. Samples that are read
/// together share their time evenly. Not thread-safe. In all functions, `now` is the current time
/// in ticks.
class sample_clock {
 public:
  /// Creates a clock for chunks of at most `max` samples.
  sample_clock(const machine_clocks& clocks, std::size_t max)
      : clocks_(clocks), spent_(std::max<std::size_t>(1, max)) {}

  /// Returns the current ticks.
  [[nodiscard]] std::uint64_t now() const noexcept { return clocks_.ticks(); }

  /// Begins a chunk of `samples` samples, before the first sample is read.
  void begin(std::size_t samples, std::uint64_t now) noexcept {
    samples_ = (std::min)(samples, spent_.size());
    std::fill_n(spent_.begin(), samples_, std::uint64_t{0});
    are_distinct_ = false;
    is_whole_ = true;
    first_ = 0;
    count_ = samples_;
    transform_ticks_ = 0;
    began_ = last_ = now;
  }
  /// Reports that reading the sample at position `i` starts now.
  [[gnu::noinline]] void at(std::size_t i) noexcept { at(i, now()); }
  /// Reports that reading the sample at position `i` starts at time `now`.
  void at(std::size_t i, std::uint64_t now) noexcept {
    if (count_ == 1 && i == first_) return;
    credit(now);
    first_ = possible(i);
    count_ = 1;
    are_distinct_ = true;
  }
  /// Reports that reading `count` samples together, starting at position `i`, starts at time `now`.
  void at_all(std::size_t i, std::size_t count, std::uint64_t now) noexcept {
    credit(now);
    first_ = possible(i);
    count_ = std::clamp<std::size_t>(count, 1, std::max<std::size_t>(1, samples_ - first_));
  }
  /// Begins a transform in a `map` function or a decoder.
  void begin_transform(std::uint64_t now) noexcept { transform_began_ = now; }
  /// Ends the transform. Transforms must not be nested.
  void end_transform(std::uint64_t now) noexcept {
    transform_ticks_ += ticks_between(transform_began_, now);
  }
  /// Discards the times of the chunk, because it has failed.
  void abandon() noexcept { is_whole_ = false; }

  /// Ends the chunk. Returns true if its times are valid.
  bool end(std::uint64_t now) noexcept {
    credit(now);
    chunk_ticks_ = ticks_between(began_, now);
    return is_whole_ && samples_ != 0;
  }

  /// Returns the ticks of the whole chunk. Call this after `end`.
  [[nodiscard]] std::uint64_t chunk_ticks() const noexcept { return chunk_ticks_; }
  /// Returns the ticks that the chunk spent in transforms.
  [[nodiscard]] std::uint64_t transform_ticks() const noexcept {
    return (std::min)(transform_ticks_, chunk_ticks_);
  }
  /// Returns the ticks of each sample, indexed by position in the chunk.
  [[nodiscard]] std::span<const std::uint64_t> ticks() const noexcept {
    return {spent_.data(), samples_};
  }
  /// Returns true if the dataset has reported samples individually. Otherwise all `ticks` are
  /// equal.
  [[nodiscard]] bool are_distinct() const noexcept { return are_distinct_; }

 private:
  /// Clamps the position to the chunk, because a dataset may report any value.
  [[nodiscard]] std::size_t possible(std::size_t i) const noexcept { return i < samples_ ? i : 0; }

  /// Credits the time until `now` to the samples that are being read.
  void credit(std::uint64_t now) noexcept {
    const std::uint64_t ticks = ticks_between(last_, now);
    last_ = now;
    if (count_ == 1) {
      spent_[first_] += ticks;
    } else {
      for (std::size_t i = first_; i < first_ + count_; ++i) spent_[i] += ticks / count_;
    }
  }

  machine_clocks clocks_;
  std::vector<std::uint64_t> spent_;  // ticks, indexed by position in the chunk
  std::size_t samples_ = 0;
  std::size_t first_ = 0;  // first sample that is being read
  std::size_t count_ = 1;
  std::uint64_t began_ = 0;
  std::uint64_t last_ = 0;
  std::uint64_t chunk_ticks_ = 0;
  std::uint64_t transform_began_ = 0;
  std::uint64_t transform_ticks_ = 0;
  bool are_distinct_ = false;
  bool is_whole_ = true;
};

/// Times a transform from construction to destruction, using the chunk's clock. A null clock
/// disables timing.
class transform_scope {
 public:
  explicit transform_scope(sample_clock* times) noexcept : times_(times) {
    if (times_ != nullptr) [[unlikely]]
      times_->begin_transform(times_->now());
  }
  transform_scope(transform_scope&&) = delete;
  ~transform_scope() {
    if (times_ != nullptr) [[unlikely]]
      times_->end_transform(times_->now());
  }

 private:
  sample_clock* times_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
