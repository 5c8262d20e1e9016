// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include <penstock/observe/support/clocks.hpp>
#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What a run of samples is read with, besides their indices: the key of the random bits, memory
/// for intermediate samples, and the place where a failing read is noted. Made by `reader`; an
/// adaptor hands it on to the dataset below, a source without randomness ignores it.
class run_context {
 public:
  /// What a run of `samples` reads with under `key`; `times` times its samples, unless null.
  run_context(const random_key& key, std::span<const std::uint64_t> samples,
              std::span<std::byte> scratch, std::atomic<std::size_t>& progress,
              detail::sample_clock* times = nullptr) noexcept
      : key_(key), samples_(samples), scratch_(scratch), progress_(&progress), times_(times) {}

  /// The generator of the i-th sample of the run. Keyed by (seed, epoch, the sample's index as the
  /// sampler gave it, stage): every random stage of a pipeline names another `stage`.
  [[nodiscard]] sample_generator generator(std::size_t i, std::uint32_t stage) const noexcept {
    return sample_generator{key_.at_stage(first_stage_ + stage), samples_[i]};
  }

  /// Notes that the i-th sample is worked on now: what `last_failure()` names if it throws, and a
  /// warning while it hangs. Where `i` is no sample of the run, the run's first is named, and not
  /// as exact.
  void at(std::size_t i) const noexcept {
    progress_->store(first_ + i, std::memory_order_relaxed);  // says nothing about other memory
    if (times_ != nullptr) [[unlikely]]
      times_->at(first_ + i);
  }

  /// Notes that all samples of the run are worked on at once from now on: they share the time.
  void at_all() const noexcept {
    at_any();
    if (times_ != nullptr) times_->at_all(first_, samples_.size());
  }

  /// Notes that it is not known which sample of the run is worked on from now on: what fails may be
  /// any of them, unless there is one.
  void at_any() const noexcept {
    const bool is_one = samples_.size() == 1;
    progress_->store(is_one ? first_ : static_cast<std::size_t>(-1), std::memory_order_relaxed);
  }

  /// For the time in which samples are made of what was read, as a `map` function or a decoder
  /// makes them: what this returns ends it. Not within another one.
  [[nodiscard]] detail::transform_scope transform() const noexcept {
    return detail::transform_scope{times_};
  }

  /// Memory that this thread may use while the run is read, at least as large as `scratch_bytes()`
  /// of the outermost dataset, aligned to 256 bytes.
  [[nodiscard]] std::span<std::byte> scratch() const noexcept { return scratch_; }

  /// The context of a part of the run.
  [[nodiscard]] run_context subrun(std::size_t begin, std::size_t count) const noexcept {
    run_context part = *this;
    part.samples_ = samples_.subspan(begin, count);
    part.first_ = first_ + begin;
    return part;
  }

  /// This context without the first `used` bytes of the scratch memory.
  [[nodiscard]] run_context below(std::size_t used) const noexcept {
    run_context inner = *this;
    inner.scratch_ = scratch_.subspan(used);
    return inner;
  }

  /// This context for a dataset beside another one, which has taken the first `used` stages: both
  /// count theirs from 0, and share no random bits.
  [[nodiscard]] run_context beside(std::uint32_t used) const noexcept {
    run_context other = *this;
    other.first_stage_ += used;
    return other;
  }

 private:
  random_key key_;
  std::span<const std::uint64_t> samples_;
  std::span<std::byte> scratch_;
  std::atomic<std::size_t>* progress_;
  detail::sample_clock* times_;  // null: this run is not timed
  std::size_t first_ = 0;
  std::uint32_t first_stage_ = 0;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
