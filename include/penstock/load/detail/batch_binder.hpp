// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <exception>
#include <optional>

#include <penstock/core/error.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/load/detail/batch_work.hpp>
#include <penstock/load/detail/faults/guarded_reader.hpp>
#include <penstock/load/detail/plan/schedule.hpp>
#include <penstock/order/sampler.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Gives each batch of the schedule the order of its epoch. For the opener, one thread at a time.
///
/// The order of an epoch is made once a range, outside any lock: a sampler may take its time, or
/// hang, and the consumer can end the range all the same. What the sampler or the dataset's `size`
/// throws stays with the batch that was to be bound, as an exception of a read does, and comes at
/// its turn.
template <dataset Dataset, sampler Sampler>
class batch_binder {
 public:
  using work = batch_work<order_of<Sampler>>;

  /// For the dataset's `size` samples, which it must keep, in the order of `order`. Refers to all
  /// but the size.
  batch_binder(const Dataset& data, std::uint64_t size, const Sampler& order,
               schedule& batches) noexcept
      : data_(&data), size_(size), sampler_(&order), schedule_(&batches) {}

  /// Opener: makes `batch` the next one, with its order or the exception of making it; `reader`
  /// shows what goes on meanwhile. False when the range has ended before it was bound: `batch` is
  /// unchanged.
  [[nodiscard]] bool bind(work& batch, const guarded_reader<Dataset>& reader) noexcept {
    const auto next = schedule_->next();
    if (!next) return false;
    if (!made_for_ || made_for_->range != next->range || made_for_->at.epoch != next->at.epoch) {
      make_order(*next, reader);
    }
    const auto number = schedule_->bind(*next);
    if (!number) return false;
    batch.bind(schedule_->plan().at(next->at), *number, order_);
    if (error_) batch.note_error(error_, {"order", next->at.epoch, next->at.batch});
    return true;
  }

 private:
  void make_order(const schedule::place& next, const guarded_reader<Dataset>& reader) noexcept {
    order_.reset();
    error_ = nullptr;
    made_for_ = next;
    const auto shown = reader.shows_order(next.at.epoch, next.at.batch);
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
  schedule* schedule_;

  // Of the opener, which hands them on to the next one with the claim cursor.
  std::optional<schedule::place> made_for_;
  std::optional<order_of<Sampler>> order_;  // of that epoch; empty where making it has thrown
  std::exception_ptr error_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
