// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <penstock/observe/support/tick_clock.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

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
