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

/// The context in which a chunk of samples is read: the key of the random bits, scratch memory, and
/// the progress that identifies a failing sample. A `reader` makes the context. An adaptor passes
/// it to the dataset that it wraps. A dataset that uses no random bits may ignore it.
class chunk_context {
 public:
  /// Makes the context for reading `samples` under `key`. Samples are timed unless `times` is null.
  chunk_context(const random_key& key, std::span<const std::uint64_t> samples,
                std::span<std::byte> scratch, std::atomic<std::size_t>& progress,
                detail::sample_clock* times = nullptr) noexcept
      : key_(key), samples_(samples), scratch_(scratch), progress_(&progress), times_(times) {}

  /// Returns the generator of the i-th sample of the chunk. The generator's key is (seed, epoch,
  /// the sample's index as the sampler returned it, stage). Every random stage of a pipeline uses a
  /// different `stage`.
  [[nodiscard]] sample_generator generator(std::size_t i, std::uint32_t stage) const noexcept {
    return sample_generator{key_.at_stage(first_stage_ + stage), samples_[i]};
  }

  /// Records that the i-th sample is being read. `last_failure()` names that sample if it throws,
  /// and a stall warning names it while it hangs. If `i` is out of range, the chunk's first sample
  /// is named instead and marked inexact.
  void at(std::size_t i) const noexcept {
    progress_->store(first_ + i, std::memory_order_relaxed);  // orders no other memory
    if (times_ != nullptr) [[unlikely]]
      times_->at(first_ + i);
  }

  /// Records that all samples of the chunk are now read together and share the measured time.
  void at_all() const noexcept {
    at_any();
    if (times_ != nullptr) times_->at_all(first_, samples_.size(), times_->now());
  }

  /// Records that it is now unknown which sample is being read: a failure may concern any of them,
  /// unless the chunk has only one sample.
  void at_any() const noexcept {
    const bool is_one = samples_.size() == 1;
    progress_->store(is_one ? first_ : static_cast<std::size_t>(-1), std::memory_order_relaxed);
  }

  /// Counts the time until the returned object is destroyed as the time of a transform, such as a
  /// `map` function or a decoder. Must not be nested.
  [[nodiscard]] detail::transform_scope transform() const noexcept {
    return detail::transform_scope{times_};
  }

  /// Returns scratch memory of this thread for the duration of the read: at least `scratch_bytes()`
  /// of the outermost dataset, aligned to 256 bytes.
  [[nodiscard]] std::span<std::byte> scratch() const noexcept { return scratch_; }

  /// Returns the context for `count` samples of the chunk, starting at sample `begin`.
  [[nodiscard]] chunk_context subchunk(std::size_t begin, std::size_t count) const noexcept {
    chunk_context part = *this;
    part.samples_ = samples_.subspan(begin, count);
    part.first_ = first_ + begin;
    return part;
  }

  /// Returns this context without the first `used` bytes of the scratch memory.
  [[nodiscard]] chunk_context below(std::size_t used) const noexcept {
    chunk_context inner = *this;
    inner.scratch_ = scratch_.subspan(used);
    return inner;
  }

  /// Returns this context for a second dataset next to a dataset that uses `used` stages. Both
  /// datasets count their stages from 0, but share no random bits.
  [[nodiscard]] chunk_context beside(std::uint32_t used) const noexcept {
    chunk_context other = *this;
    other.first_stage_ += used;
    return other;
  }

 private:
  random_key key_;
  std::span<const std::uint64_t> samples_;
  std::span<std::byte> scratch_;
  std::atomic<std::size_t>* progress_;
  detail::sample_clock* times_;  // null: this chunk is not timed
  std::size_t first_ = 0;
  std::uint32_t first_stage_ = 0;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
