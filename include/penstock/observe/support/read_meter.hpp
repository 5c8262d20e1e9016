// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <penstock/observe/support/histogram.hpp>
#include <penstock/observe/support/sample_clock.hpp>
#include <penstock/observe/support/slowest_samples.hpp>
#include <penstock/threads/support/tally.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Counts what one thread reads, and times it sample by sample: always where a clock for each
/// sample costs next to nothing beside reading it, else in every eighth batch or every 128th.
template <class Clock>
class read_meter {
 public:
  /// For runs of at most `most_run` samples, by `clock`, which must outlive this.
  read_meter(const Clock& clock, std::size_t most_run)
      : slow_(clock.ten_milliseconds() / 200), samples_clock_(clock, most_run) {}

  /// The reading thread begins a run of `samples` samples of batch `batch`. What times it; null
  /// where nothing does.
  [[nodiscard]] basic_sample_clock<Clock>* begin(std::uint64_t batch,
                                                 std::size_t samples) noexcept {
    is_timed_ = batch % every_ == 0;
    if (!is_timed_) return nullptr;
    samples_clock_.begin(samples);
    return &samples_clock_;
  }
  /// The reading thread has read that run, of these samples.
  void end(std::span<const std::uint64_t> samples) noexcept {
    runs_.add(1);
    samples_.add(samples.size());
    if (is_timed_ && samples_clock_.end()) note_times(samples);
  }

  /// A thread has completed a batch whose ragged fields have so many bytes.
  void note_values(std::uint64_t bytes) noexcept { values_.add(bytes); }

  /// Runs that were read. From any thread, as all that follows.
  [[nodiscard]] std::uint64_t runs() const noexcept { return runs_.value(); }
  /// Their samples.
  [[nodiscard]] std::uint64_t samples() const noexcept { return samples_.value(); }
  /// The bytes of their ragged fields, counted once their batch is complete.
  [[nodiscard]] std::uint64_t value_bytes() const noexcept { return values_.value(); }
  /// How many of these were timed.
  [[nodiscard]] std::uint64_t timed() const noexcept { return timed_.value(); }
  /// The ticks of the runs that were timed, and those of them in which samples were made of what
  /// was read.
  [[nodiscard]] std::uint64_t timed_ticks() const noexcept { return timed_ticks_.value(); }
  [[nodiscard]] std::uint64_t transform_ticks() const noexcept { return transform_ticks_.value(); }
  /// The times of single samples.
  [[nodiscard]] const histogram& times() const noexcept { return times_; }
  /// The samples that took longest.
  [[nodiscard]] const slowest_samples& slowest() const noexcept { return slowest_; }

 private:
  void note_times(std::span<const std::uint64_t> samples) noexcept {
    const auto ticks = samples_clock_.ticks();
    const std::uint64_t each = samples_clock_.run_ticks() / samples.size();
    timed_.add(samples.size());
    timed_ticks_.add(samples_clock_.run_ticks());
    transform_ticks_.add(samples_clock_.transform_ticks());
    every_ = each >= slow_ ? 1 : each >= slow_ / 50 ? 8 : 128;
    if (!samples_clock_.are_told_apart()) {
      times_.add(ticks.front(), samples.size());
      slowest_.offer({samples.front(), ticks.front()});
      return;
    }
    times_.add_all(ticks);
    for (std::size_t i = 0; i < ticks.size(); ++i) slowest_.offer({samples[i], ticks[i]});
  }

  // Of the reading thread.
  std::uint64_t slow_;       // 50 us: a thousand times what timing a sample takes
  std::uint64_t every_ = 1;  // which batches are timed, as the last timed run says
  bool is_timed_ = false;    // the run under way
  basic_sample_clock<Clock> samples_clock_;

  // For any thread.
  tally runs_;
  tally samples_;
  tally values_;
  tally timed_;
  tally timed_ticks_;
  tally transform_ticks_;
  slowest_samples slowest_;
  histogram times_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
