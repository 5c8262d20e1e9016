// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>

#include <penstock/core/error.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/faults/detail/read_watch.hpp>
#include <penstock/load/detail/batch_work.hpp>
#include <penstock/load/detail/epoch_plan.hpp>
#include <penstock/order/sampler.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Which batch is bound to a slot next, and the order of its epoch. The consumer says which batches
/// are wanted (`begin`, `end`); the opener, one thread at a time, binds them in order (`bind`).
///
/// The order of an epoch is made once a range, outside the lock: a sampler may take its time, or
/// hang, and the consumer can end the range all the same. What the sampler or the dataset's `size`
/// throws stays with the batch that was to be bound, as an exception of a read does, and comes at
/// its turn.
template <dataset Dataset, sampler Sampler>
class batch_binder {
 public:
  using work = batch_work<order_of<Sampler>>;

  /// For the dataset's `size` samples in the order of `order`, cut by `plan`. Refers to all but the
  /// size, which the dataset must keep.
  batch_binder(const Dataset& data, std::uint64_t size, const Sampler& order,
               const epoch_plan& plan) noexcept
      : data_(&data), size_(size), sampler_(&order), plan_(&plan) {}

  /// Consumer: `count` batches are wanted, from `first` on. Returns the number of the batch after
  /// them over the binder's life.
  std::uint64_t begin(const batch_position& first, std::uint64_t count) noexcept {
    const std::lock_guard lock{mutex_};
    ++next_.range;
    next_.at = first;
    return end_ += count;
  }

  /// Consumer: no more are wanted. Returns how many were bound so far.
  std::uint64_t end() noexcept {
    const std::lock_guard lock{mutex_};
    return end_ = bound_;
  }

  /// Opener: whether one more is wanted.
  [[nodiscard]] bool is_wanted() const noexcept {
    const std::lock_guard lock{mutex_};
    return bound_ != end_;
  }

  /// Opener: makes `batch` the next one, with its order or the exception of making it; `mark` shows
  /// what goes on meanwhile (null: nobody looks). False when the range has ended before it was
  /// bound: then `batch` is none.
  [[nodiscard]] bool bind(work& batch, read_mark* mark) noexcept {
    place next;
    {
      const std::lock_guard lock{mutex_};
      if (bound_ == end_) return false;
      next = next_;
    }
    if (!made_for_ || made_for_->range != next.range || made_for_->at.epoch != next.at.epoch) {
      make_order(next, mark);
    }
    const std::lock_guard lock{mutex_};
    if (bound_ == end_ || next_.range != next.range) return false;
    batch.bind(plan_->at(next.at), bound_++, order_);
    const failure where{"order", next.at.epoch, next.at.batch};
    if (error_) batch.note_error(error_, where);
    const batch_position following{next.at.epoch, next.at.batch + 1};
    next_.at = plan_->normal(following);
    return true;
  }

 private:
  struct place {
    std::uint64_t range = 0;  // counts calls of `begin`: an order is kept no longer than its range
    batch_position at;
  };

  void make_order(const place& next, read_mark* mark) noexcept {
    order_.reset();
    error_ = nullptr;
    made_for_ = next;
    const marked_order under_way{mark, next.at.epoch, next.at.batch};
    try {
      const std::uint64_t now = data_->size();
      if (now != size_) throw dataset_changed(size_, now, next.at.epoch);
      order_.emplace(sampler_->order(size_, next.at.epoch));
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  const Dataset* data_;
  std::uint64_t size_;
  const Sampler* sampler_;
  const epoch_plan* plan_;

  mutable std::mutex mutex_;  // guards the three below; no code of the user's runs under it
  std::uint64_t bound_ = 0;   // batches bound so far
  std::uint64_t end_ = 0;     // batches wanted so far
  place next_;                // of the next batch to bind

  // Of the opener, who hands them on to the next one with the claim cursor.
  std::optional<place> made_for_;
  std::optional<order_of<Sampler>> order_;  // of that epoch; none where making it has thrown
  std::exception_ptr error_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
