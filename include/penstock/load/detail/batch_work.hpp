// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The batch that a slot is bound to. Written by the opener before it publishes the cursor, read by
/// the workers that claim a chunk of it; `remaining_` hands it on to the worker that announces it.
class alignas(cache_line) batch_work {
 public:
  batch_info info;
  std::uint64_t sequence = 0;  ///< the batch's number over the loader's life
  std::uint64_t opened = 0;    ///< when, in ticks of the statistics
  bool has_order = false;      ///< false where making its order has failed: nothing is read

  /// Opener only: the batch is this one from now on, and has no error yet.
  void bind(const batch_info& which, std::uint64_t number, bool is_ordered) noexcept {
    info = which;
    sequence = number;
    has_order = is_ordered;
    failed_.error = nullptr;
  }

  /// Opener only: the chunks `first` to `last`, the latter not included, are to be finished, of
  /// `samples` samples each.
  void reset(std::uint32_t first, std::uint32_t last, std::size_t samples) noexcept {
    first_chunk_ = first;
    chunk_samples_ = samples;
    remaining_.store(last - first, std::memory_order_relaxed);
  }
  /// The first of those chunks.
  [[nodiscard]] std::uint32_t first_chunk() const noexcept { return first_chunk_; }
  /// The places of the batch's samples that a chunk reads, the end not included; none where the
  /// batch is shorter.
  [[nodiscard]] std::pair<std::size_t, std::size_t> places_of(std::uint32_t chunk) const noexcept {
    const std::size_t begin =
        (std::min)(std::size_t{chunk - first_chunk_} * chunk_samples_, info.size);
    return {begin, (std::min)(begin + chunk_samples_, info.size)};
  }

  /// Counts a chunk down, also one that threw; true for the last one.
  bool finish_chunk() noexcept { return remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

  /// Keeps `one` unless one of an earlier place in the batch is kept already.
  void note_failed(failed_batch one) noexcept {
    const std::lock_guard lock{failed_mutex_};
    if (failed_ && failed_.place->position <= one.place->position) return;
    failed_ = std::move(one);
  }

  /// After the last chunk: what stands for the batch, if anything does.
  [[nodiscard]] failed_batch& failed() noexcept { return failed_; }

 private:
  // Invariant: the chunks of this batch that are not finished. The step to 0 is acq_rel, so the
  // worker that makes it sees all that the others have written, and announces the batch.
  std::atomic<std::uint32_t> remaining_{0};
  std::uint32_t first_chunk_ = 0;
  std::size_t chunk_samples_ = 0;
  std::mutex failed_mutex_;
  failed_batch failed_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
