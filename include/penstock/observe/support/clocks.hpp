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

/// This machine's clocks: the processor's counter, read in a few nanoseconds, if its rate is
/// constant; and the steady clock.
class machine_clocks {
 public:
  machine_clocks() noexcept : source_(best()) {}

  [[nodiscard]] stats_clock source() const noexcept { return source_; }

  /// The current ticks of the source; nanoseconds if it is `steady`.
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

  /// The approximate ticks of ten milliseconds: for a time stamp counter, assuming 3 GHz, up to
  /// three times too many for a slower one.
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
    // "Invariant TSC": it runs at one rate in all states of the processor.
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

/// The ticks between two readings; 0 if the clock went back, as it may between two cores.
[[nodiscard]] constexpr std::uint64_t ticks_between(std::uint64_t begin,
                                                    std::uint64_t end) noexcept {
  return end > begin ? end - begin : 0;
}

/// A tick counter that is calibrated against the steady clock over the time since its construction.
/// `Clocks` is a parameter so that tests can simulate clocks that step.
template <class Clocks = machine_clocks>
class basic_tick_clock {
 public:
  explicit basic_tick_clock(const Clocks& clocks = {}) noexcept
      : clocks_(clocks), first_(read()), last_(first_) {}
  basic_tick_clock(basic_tick_clock&&) = delete;

  /// The current ticks. From any thread.
  [[nodiscard]] std::uint64_t now() const noexcept { return clocks_.ticks(); }
  /// The source of the ticks.
  [[nodiscard]] stats_clock source() const noexcept { return clocks_.source(); }
  /// The approximate ticks of ten milliseconds.
  [[nodiscard]] std::uint64_t ten_milliseconds() const noexcept {
    return clocks_.ticks_of_ten_milliseconds();
  }

  /// A reading of both clocks, and the resulting calibration.
  struct reading {
    std::uint64_t ticks = 0;             ///< now
    std::chrono::nanoseconds steady{0};  ///< now
    std::chrono::nanoseconds since{0};   ///< construction
    double nanoseconds_per_tick = 1;     ///< measured over the first second, or less before its end
    bool has_stepped = false;            ///< so far, judged by the steady clock
  };

  /// Reads both clocks, and checks that their ratio has been constant since the last reading. From
  /// any thread.
  [[nodiscard]] reading look() noexcept {
    const std::lock_guard lock{mutex_};
    const pair now = read();
    const auto since = now.steady - first_.steady;
    if (source() != stats_clock::steady) has_stepped_ = has_stepped_ || is_step(now);
    last_ = now;
    if (source() == stats_clock::steady) return {now.ticks, now.steady, since, 1.0, has_stepped_};
    const double rate = rate_ != 0 ? rate_ : ratio(first_, now);
    // If the rate kept changing, converted sums could decrease.
    if (since >= std::chrono::seconds{1}) rate_ = rate;
    return {now.ticks, now.steady, since, rate, has_stepped_};
  }

  /// A name for this clock, unique in the process: made of its address and time of construction.
  [[nodiscard]] std::uint64_t name() const noexcept {
    const auto place = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(this));
    const std::uint64_t mixed =
        (place ^ static_cast<std::uint64_t>(first_.steady.count())) * 0x9E3779B97F4A7C15U;
    return mixed | 1;  // 0 means no name
  }

 private:
  struct pair {
    std::uint64_t ticks;
    std::chrono::nanoseconds steady;
  };

  /// Both clocks at the same moment: retries if the thread was preempted in between.
  [[nodiscard]] pair read() const noexcept {
    constexpr std::chrono::nanoseconds apart{20'000};
    pair both{};
    for (int turn = 0; turn < 8; ++turn) {
      const auto before = clocks_.steady();
      both = {clocks_.ticks(), before};
      if (clocks_.steady() - before < apart) break;
    }
    return both;
  }

  [[nodiscard]] static double ratio(const pair& begin, const pair& end) noexcept {
    const std::uint64_t ticks = ticks_between(begin.ticks, end.ticks);
    const auto time = static_cast<double>((end.steady - begin.steady).count());
    return ticks == 0 || time <= 0 ? 1.0 : time / static_cast<double>(ticks);
  }

  /// Whether the ticks since the last reading contradict the rate of the earlier readings.
  [[nodiscard]] bool is_step(const pair& now) const noexcept {
    if (now.ticks < last_.ticks) return true;
    constexpr double least = 1e6;  // nanoseconds; below it, preemption could be the cause
    const auto before = static_cast<double>((last_.steady - first_.steady).count());
    const auto since = static_cast<double>((now.steady - last_.steady).count());
    if (before < least) return false;  // no rate is known yet
    const double by_ticks = static_cast<double>(now.ticks - last_.ticks) * ratio(first_, last_);
    return std::abs(by_ticks - since) > (std::max)(least, since / 50);
  }

  Clocks clocks_;
  pair first_;
  double rate_ = 0;   // nanoseconds per tick, once it is final
  std::mutex mutex_;  // guards all but the clocks and the first reading
  pair last_;
  bool has_stepped_ = false;
};

/// The clock of the library's statistics.
using tick_clock = basic_tick_clock<>;

/// Times the samples of a chunk while it is read: the dataset notes which sample it is reading, and
/// the time until the next note counts for that sample. Samples that are read together share their
/// time evenly. Not thread-safe.
template <class Clock>
class basic_sample_clock {
 public:
  /// For chunks of at most `most` samples, by `clock`, which must outlive this.
  basic_sample_clock(const Clock& clock, std::size_t most)
      : clock_(&clock), spent_(std::max<std::size_t>(1, most)) {}

  /// Begins a chunk of `samples` samples, with no sample noted yet.
  void begin(std::size_t samples) noexcept {
    samples_ = (std::min)(samples, spent_.size());
    std::fill_n(spent_.begin(), samples_, std::uint64_t{0});
    are_told_apart_ = false;
    is_whole_ = true;
    first_ = 0;
    count_ = samples_;
    transform_ticks_ = 0;
    began_ = last_ = clock_->now();
  }
  /// Notes that the sample at position `i` is being read from now on.
  void at(std::size_t i) noexcept {
    if (count_ == 1 && i == first_) return;
    credit(clock_->now());
    first_ = possible(i);
    count_ = 1;
    are_told_apart_ = true;
  }
  /// Notes that the `count` samples from position `i` on are being read together from now on.
  void at_all(std::size_t i, std::size_t count) noexcept {
    credit(clock_->now());
    first_ = possible(i);
    count_ = std::clamp<std::size_t>(count, 1, std::max<std::size_t>(1, samples_ - first_));
  }
  /// Begins a transform of what was read, by a `map` or a decoder,
  void begin_transform() noexcept { transform_began_ = clock_->now(); }
  /// and ends it. In pairs, not nested.
  void end_transform() noexcept {
    transform_ticks_ += ticks_between(transform_began_, clock_->now());
  }
  /// Discards the chunk's times, because it has failed.
  void abandon() noexcept { is_whole_ = false; }

  /// Ends the chunk. Returns whether its times are valid.
  bool end() noexcept {
    const std::uint64_t now = clock_->now();
    credit(now);
    chunk_ticks_ = ticks_between(began_, now);
    return is_whole_ && samples_ != 0;
  }

  /// After `end`: the ticks of the whole chunk.
  [[nodiscard]] std::uint64_t chunk_ticks() const noexcept { return chunk_ticks_; }
  /// The part of them spent in transforms.
  [[nodiscard]] std::uint64_t transform_ticks() const noexcept {
    return (std::min)(transform_ticks_, chunk_ticks_);
  }
  /// The ticks of each sample.
  [[nodiscard]] std::span<const std::uint64_t> ticks() const noexcept {
    return {spent_.data(), samples_};
  }
  /// Whether the dataset has noted samples individually; otherwise all `ticks` are equal.
  [[nodiscard]] bool are_told_apart() const noexcept { return are_told_apart_; }

 private:
  /// Clamps the position, as a dataset may note any number.
  [[nodiscard]] std::size_t possible(std::size_t i) const noexcept { return i < samples_ ? i : 0; }

  /// Credits the time until `now` to the samples being read.
  void credit(std::uint64_t now) noexcept {
    const std::uint64_t ticks = ticks_between(last_, now);
    last_ = now;
    if (count_ == 1) {
      spent_[first_] += ticks;
    } else {
      for (std::size_t i = first_; i < first_ + count_; ++i) spent_[i] += ticks / count_;
    }
  }

  const Clock* clock_;
  std::vector<std::uint64_t> spent_;  // ticks, by position in the chunk
  std::size_t samples_ = 0;
  std::size_t first_ = 0;  // the samples being read: first and count
  std::size_t count_ = 1;
  std::uint64_t began_ = 0;
  std::uint64_t last_ = 0;
  std::uint64_t chunk_ticks_ = 0;
  std::uint64_t transform_began_ = 0;
  std::uint64_t transform_ticks_ = 0;
  bool are_told_apart_ = false;
  bool is_whole_ = true;
};

/// The type that the library's readers use.
using sample_clock = basic_sample_clock<tick_clock>;

/// Marks a transform for its lifetime, timed by the clock of the chunk; null: not timed.
class transform_scope {
 public:
  explicit transform_scope(sample_clock* times) noexcept : times_(times) {
    if (times_ != nullptr) [[unlikely]]
      times_->begin_transform();
  }
  transform_scope(transform_scope&&) = delete;
  ~transform_scope() {
    if (times_ != nullptr) [[unlikely]]
      times_->end_transform();
  }

 private:
  sample_clock* times_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
