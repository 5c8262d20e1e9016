// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/support/cache_line.hpp>
#include <penstock/load/detail/plan/epoch_plan.hpp>
#include <penstock/load/detail/plan/pick_samples.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The batch that a slot is bound to. Written by the opener before it publishes the cursor, read by
/// the workers that claim a run of it; `remaining_` hands it on to the worker that announces it.
template <class Order>
class alignas(cache_line) batch_work {
 public:
  batch_info info;
  std::uint64_t sequence = 0;  ///< the batch's number over the engine's life
  std::uint64_t opened = 0;    ///< when, in ticks of the statistics
  std::optional<Order> order;  ///< of its epoch; empty where making it has failed: nothing is read

  /// Opener only: the batch is this one from now on, and has no error yet.
  void bind(const batch_info& which, std::uint64_t number,
            const std::optional<Order>& of) noexcept {
    static_assert(std::is_trivially_copyable_v<Order>, "copied under a lock, and never throws");
    info = which;
    sequence = number;
    order = of;
    error_ = nullptr;
  }

  /// Opener only: the runs `first` to `last`, the latter not included, are to be finished, of
  /// `samples` samples each.
  void reset(std::uint32_t first, std::uint32_t last, std::size_t samples) noexcept {
    first_run_ = first;
    run_samples_ = samples;
    remaining_.store(last - first, std::memory_order_relaxed);
  }
  /// The first of those runs.
  [[nodiscard]] std::uint32_t first_run() const noexcept { return first_run_; }
  /// The places of the batch's samples that a run reads, the end not included; none where the batch
  /// is shorter.
  [[nodiscard]] std::pair<std::size_t, std::size_t> places_of(std::uint32_t run) const noexcept {
    const std::size_t begin = (std::min)(std::size_t{run - first_run_} * run_samples_, info.size);
    return {begin, (std::min)(begin + run_samples_, info.size)};
  }

  /// The dataset indices of the batch's samples from its place `begin` on, see `pick_samples`.
  void pick(const epoch_plan& plan, std::size_t begin,
            std::span<std::uint64_t> out) const noexcept {
    pick_samples(*order, plan, info, begin, out);
  }

  /// Counts a run down, also one that threw; true for the last one.
  bool finish_run() noexcept { return remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

  /// Keeps the current exception unless one of an earlier place in the batch is kept already.
  void note_error(const failure& where) noexcept { note_error(std::current_exception(), where); }
  /// Keeps `error` unless one of an earlier place in the batch is kept already.
  void note_error(const std::exception_ptr& error, const failure& where) noexcept {
    const std::lock_guard lock{error_mutex_};
    if (error_ && error_where_.position <= where.position) return;
    error_ = error;
    error_where_ = where;
  }

  /// After the last run: whether there is an exception.
  [[nodiscard]] bool has_error() const noexcept { return error_ != nullptr; }
  /// After the last run: takes the exception of the batch, null if there is none.
  std::exception_ptr take_error() noexcept { return std::exchange(error_, nullptr); }
  /// The place of that exception.
  [[nodiscard]] const failure& error_where() const noexcept { return error_where_; }

 private:
  // Invariant: the runs of this batch that are not finished. The step to 0 is acq_rel, so the
  // worker that makes it sees all that the others have written, and announces the batch.
  std::atomic<std::uint32_t> remaining_{0};
  std::uint32_t first_run_ = 0;
  std::size_t run_samples_ = 0;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  failure error_where_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
