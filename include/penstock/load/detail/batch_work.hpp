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

/// The batch that a slot is bound to. The opener writes this object before it publishes the cursor.
/// Workers that claim a chunk read it. The last decrement of `remaining_` transfers the batch to
/// the worker that announces it.
class alignas(cache_line) batch_work {
 public:
  batch_info info;
  std::uint64_t sequence = 0;  ///< batch index over the lifetime of the loader
  std::uint64_t opened = 0;    ///< opening time in statistics ticks
  /// False if the order could not be created, so that the batch is not read.
  bool has_order = false;

  /// Binds the slot to the batch `which`, which has no error yet. Called by the opener.
  void bind(const batch_info& which, std::uint64_t number, bool is_ordered) noexcept {
    info = which;
    sequence = number;
    has_order = is_ordered;
    failed_.error = nullptr;
  }

  /// Divides the batch into chunks [`first`, `last`) of `samples` samples each. Called by the
  /// opener.
  void reset(std::uint32_t first, std::uint32_t last, std::size_t samples) noexcept {
    first_chunk_ = first;
    chunk_samples_ = samples;
    remaining_.store(last - first, std::memory_order_relaxed);
  }
  /// Returns the index of the first chunk.
  [[nodiscard]] std::uint32_t first_chunk() const noexcept { return first_chunk_; }
  /// Returns the positions [begin, end) in the batch that a chunk reads. Empty if the batch ends
  /// before the chunk.
  [[nodiscard]] std::pair<std::size_t, std::size_t> places_of(std::uint32_t chunk) const noexcept {
    const std::size_t begin =
        (std::min)(std::size_t{chunk - first_chunk_} * chunk_samples_, info.size);
    return {begin, (std::min)(begin + chunk_samples_, info.size)};
  }

  /// Records that a chunk is finished, with or without an exception. Returns true for the last
  /// chunk.
  bool finish_chunk() noexcept { return remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

  /// Stores the error `one`, unless the batch already has an error at an earlier position.
  void record_failed(failed_batch one) noexcept {
    const std::lock_guard lock{failed_mutex_};
    if (failed_ && failed_.place->position <= one.place->position) return;
    failed_ = std::move(one);
  }

  /// Returns the error that replaces the batch, if any. Valid after the last chunk.
  [[nodiscard]] failed_batch& failed() noexcept { return failed_; }

 private:
  // Number of unfinished chunks in this batch. The decrement uses acq_rel ordering, so the worker
  // that decrements the number to 0 sees all writes of the other workers before it announces the
  // batch.
  std::atomic<std::uint32_t> remaining_{0};
  std::uint32_t first_chunk_ = 0;
  std::size_t chunk_samples_ = 0;
  std::mutex failed_mutex_;
  failed_batch failed_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
