// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <mutex>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <penstock/observe/stats.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// This machine's clocks: one that is read in a few nanoseconds, if there is one that is constant,
/// and the standard's.
class machine_clocks {
 public:
  machine_clocks() noexcept : source_(best()) {}

  [[nodiscard]] stats_clock source() const noexcept { return source_; }

  /// The ticks of the source now; nanoseconds where it is `steady`.
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

  /// About the ticks of ten milliseconds: of a time stamp counter at 3 GHz, and as many as three
  /// times that of a slower one.
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

/// The ticks between two readings; 0 where the clock went back, as it may between two cores.
[[nodiscard]] constexpr std::uint64_t ticks_between(std::uint64_t begin,
                                                    std::uint64_t end) noexcept {
  return end > begin ? end - begin : 0;
}

/// A clock that counts ticks, and tells later how long a tick was: by the steady clock's time since
/// its construction. `Clocks` is a parameter so that tests can play clocks that step.
template <class Clocks = machine_clocks>
class basic_tick_clock {
 public:
  explicit basic_tick_clock(const Clocks& clocks = {}) noexcept
      : clocks_(clocks), first_(read()), last_(first_) {}
  basic_tick_clock(basic_tick_clock&&) = delete;

  /// The ticks by now. From any thread.
  [[nodiscard]] std::uint64_t now() const noexcept { return clocks_.ticks(); }
  /// What the ticks are of.
  [[nodiscard]] stats_clock source() const noexcept { return clocks_.source(); }
  /// About as many as ten milliseconds have.
  [[nodiscard]] std::uint64_t ten_milliseconds() const noexcept {
    return clocks_.ticks_of_ten_milliseconds();
  }

  /// What both clocks say, and what follows from it.
  struct reading {
    std::uint64_t ticks = 0;             ///< now
    std::chrono::nanoseconds steady{0};  ///< now
    std::chrono::nanoseconds since{0};   ///< construction
    double nanoseconds_per_tick = 1;     ///< of the first second, or of what there is of it
    bool has_stepped = false;            ///< by now, as far as the steady clock can tell
  };

  /// Looks at both clocks, and whether they have run at one ratio since the last look. From any
  /// thread.
  [[nodiscard]] reading look() noexcept {
    const std::lock_guard lock{mutex_};
    const pair now = read();
    const auto since = now.steady - first_.steady;
    if (source() != stats_clock::steady) has_stepped_ = has_stepped_ || is_step(now);
    last_ = now;
    if (source() == stats_clock::steady) return {now.ticks, now.steady, since, 1.0, has_stepped_};
    const double rate = rate_ != 0 ? rate_ : ratio(first_, now);
    // A rate that went on changing would let sums fall that stand still.
    if (since >= std::chrono::seconds{1}) rate_ = rate;
    return {now.ticks, now.steady, since, rate, has_stepped_};
  }

  /// What names this clock among all of a process: its place and its time of construction.
  [[nodiscard]] std::uint64_t name() const noexcept {
    const auto place = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(this));
    const std::uint64_t mixed =
        (place ^ static_cast<std::uint64_t>(first_.steady.count())) * 0x9E3779B97F4A7C15U;
    return mixed | 1;  // 0 is no name
  }

 private:
  struct pair {
    std::uint64_t ticks;
    std::chrono::nanoseconds steady;
  };

  /// Both clocks at one moment: a thread that loses its core between the two reads again.
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

  /// Whether the ticks since the last look fit no rate that the looks before it have seen.
  [[nodiscard]] bool is_step(const pair& now) const noexcept {
    if (now.ticks < last_.ticks) return true;
    constexpr double least = 1e6;  // nanoseconds: below it a lost core could be to blame
    const auto before = static_cast<double>((last_.steady - first_.steady).count());
    const auto since = static_cast<double>((now.steady - last_.steady).count());
    if (before < least) return false;  // no rate is known yet
    const double by_ticks = static_cast<double>(now.ticks - last_.ticks) * ratio(first_, last_);
    return std::abs(by_ticks - since) > (std::max)(least, since / 50);
  }

  Clocks clocks_;
  pair first_;
  double rate_ = 0;   // nanoseconds a tick, once that is known for good
  std::mutex mutex_;  // guards all but the clocks and the first look
  pair last_;
  bool has_stepped_ = false;
};

/// The clock of the library's own statistics.
using tick_clock = basic_tick_clock<>;

/// Times the samples of a run while it is read: a dataset says which one it works on, and the time
/// up to the next such word is that sample's. Where a dataset reads several at once, they share
/// their time evenly. For one thread.
template <class Clock>
class basic_sample_clock {
 public:
  /// For runs of at most `most` samples, by `clock`, which must outlive this.
  basic_sample_clock(const Clock& clock, std::size_t most)
      : clock_(&clock), spent_(std::max<std::size_t>(1, most)) {}

  /// A run of `samples` samples begins, whichever it works on.
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
  /// The sample at place `i` of the run is worked on from now on.
  void at(std::size_t i) noexcept {
    if (count_ == 1 && i == first_) return;
    credit(clock_->now());
    first_ = possible(i);
    count_ = 1;
    are_told_apart_ = true;
  }
  /// The `count` samples from place `i` on are read at once from now on.
  void at_all(std::size_t i, std::size_t count) noexcept {
    credit(clock_->now());
    first_ = possible(i);
    count_ = std::clamp<std::size_t>(count, 1, std::max<std::size_t>(1, samples_ - first_));
  }
  /// What was read is made into samples from now on, by a `map` or a decoder,
  void begin_transform() noexcept { transform_began_ = clock_->now(); }
  /// until now. In pairs, and none within another one.
  void end_transform() noexcept {
    transform_ticks_ += ticks_between(transform_began_, clock_->now());
  }
  /// The run has failed somewhere: its times say nothing.
  void abandon() noexcept { is_whole_ = false; }

  /// The run is over. Whether its times are of use.
  bool end() noexcept {
    const std::uint64_t now = clock_->now();
    credit(now);
    run_ticks_ = ticks_between(began_, now);
    return is_whole_ && samples_ != 0;
  }

  /// After `end`: the ticks of the whole run.
  [[nodiscard]] std::uint64_t run_ticks() const noexcept { return run_ticks_; }
  /// Those of them in which samples were made of what was read.
  [[nodiscard]] std::uint64_t transform_ticks() const noexcept {
    return (std::min)(transform_ticks_, run_ticks_);
  }
  /// The ticks of each sample.
  [[nodiscard]] std::span<const std::uint64_t> ticks() const noexcept {
    return {spent_.data(), samples_};
  }
  /// Whether the dataset has told samples apart; else `ticks` are all the same.
  [[nodiscard]] bool are_told_apart() const noexcept { return are_told_apart_; }

 private:
  /// A dataset may note any number.
  [[nodiscard]] std::size_t possible(std::size_t i) const noexcept { return i < samples_ ? i : 0; }

  /// What was worked on has taken until `now`.
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
  std::vector<std::uint64_t> spent_;  // ticks, by place in the run
  std::size_t samples_ = 0;
  std::size_t first_ = 0;  // what is worked on, and how many from there on
  std::size_t count_ = 1;
  std::uint64_t began_ = 0;
  std::uint64_t last_ = 0;
  std::uint64_t run_ticks_ = 0;
  std::uint64_t transform_began_ = 0;
  std::uint64_t transform_ticks_ = 0;
  bool are_told_apart_ = false;
  bool is_whole_ = true;
};

/// That of the library's readers.
using sample_clock = basic_sample_clock<tick_clock>;

/// While it lives samples are made of what was read, by the clock of their run; null: not timed.
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
