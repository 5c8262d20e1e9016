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
/// the progress that identifies a failing sample. A `reader` creates the context, and adaptors pass
/// it to the dataset that they wrap. A dataset that uses no random bits may ignore it.
class chunk_context {
 public:
  /// Creates the context for reading `samples` with the random bits of `key`. Samples are timed
  /// unless `times` is null.
  chunk_context(const random_key& key, std::span<const std::uint64_t> samples,
                std::span<std::byte> scratch, std::atomic<std::size_t>& progress,
                detail::sample_clock* times = nullptr) noexcept
      : key_(key), samples_(samples), scratch_(scratch), progress_(&progress), times_(times) {}

  /// Returns the generator of the chunk's sample `i`. The generator is keyed by seed, epoch, stage,
  /// and the sample index that the sampler returned. Each random stage of a pipeline has a
  /// different `stage`.
  [[nodiscard]] sample_generator generator(std::size_t i, std::uint32_t stage) const noexcept {
    return sample_generator{key_.at_stage(first_stage_ + stage), samples_[i]};
  }

  /// Records that the chunk's sample `i` is being read. If the read throws, `last_failure()`
  /// reports this sample. If the read hangs, a stall warning reports it. If `i` is out of range,
  /// the chunk's first sample is reported instead, and the report is marked inexact.
  void at(std::size_t i) const noexcept {
    progress_->store(first_ + i, std::memory_order_relaxed);  // orders no other memory accesses
    if (times_ != nullptr) [[unlikely]]
      times_->at(first_ + i);
  }

  /// Records that all samples of the chunk are being read together, so that they share the measured
  /// time.
  void at_all() const noexcept {
    at_any();
    if (times_ != nullptr) times_->at_all(first_, samples_.size(), times_->now());
  }

  /// Records that the current sample is unknown. A failure may then concern any sample of the
  /// chunk, unless the chunk has only one.
  void at_any() const noexcept {
    const bool is_one = samples_.size() == 1;
    progress_->store(is_one ? first_ : static_cast<std::size_t>(-1), std::memory_order_relaxed);
  }

  /// Counts the time until the returned object is destroyed as transform time, for example of a
  /// `map` function or a decoder. Must not be nested.
  [[nodiscard]] detail::transform_scope transform() const noexcept {
    return detail::transform_scope{times_};
  }

  /// Returns this thread's scratch memory for the duration of the read, aligned to 256 bytes. The
  /// size is at least `scratch_bytes()` of the outermost dataset.
  [[nodiscard]] std::span<std::byte> scratch() const noexcept { return scratch_; }

  /// Returns the context for `count` samples of the chunk, starting at position `begin`.
  [[nodiscard]] chunk_context subchunk(std::size_t begin, std::size_t count) const noexcept {
    chunk_context part = *this;
    part.samples_ = samples_.subspan(begin, count);
    part.first_ = first_ + begin;
    return part;
  }

  /// Returns this context without the first `used` bytes of scratch memory.
  [[nodiscard]] chunk_context below(std::size_t used) const noexcept {
    chunk_context inner = *this;
    inner.scratch_ = scratch_.subspan(used);
    return inner;
  }

  /// Returns this context for a second dataset, if the first dataset uses `used` stages. Both
  /// datasets count their stages from 0 but share no random bits.
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
  detail::sample_clock* times_;  // null if this chunk is not timed
  std::size_t first_ = 0;
  std::uint32_t first_stage_ = 0;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
