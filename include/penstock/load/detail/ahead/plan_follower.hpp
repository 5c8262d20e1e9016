// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/support/mean_bytes.hpp>
#include <penstock/load/detail/ahead/plan_ledger.hpp>
#include <penstock/load/detail/plan/pick_samples.hpp>
#include <penstock/load/detail/plan/schedule.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/loader_observer.hpp>
#include <penstock/order/sampler.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What is fetched before it is read: `will_read`.
struct fetched_ahead {
  static constexpr bool is_counted = true;       // in statistics
  static constexpr bool is_of_use_late = false;  // when the batch is read already
  template <class D>
  static std::uint64_t most(const D& data) {
    return most_ahead_of(data);
  }
  template <class D>
  static void tell(const D& data, std::span<const std::uint64_t> indices) {
    tell_reads(data, indices);
  }
  template <class D>
  static void begin_range(const D&) {}
};

/// What is known far ahead, for those that keep things by it: `foresee`.
struct foreseen_ahead {
  static constexpr bool is_counted = false;
  // Else a read that was not foreseen would pass for a later one that was.
  static constexpr bool is_of_use_late = true;
  template <class D>
  static std::uint64_t most(const D& data) {
    return most_foreseen_of(data);
  }
  template <class D>
  static void tell(const D& data, std::span<const std::uint64_t> indices) {
    foresee_reads(data, indices);
  }
  template <class D>
  static void begin_range(const D& data) {
    foresee_reads(data, {});
  }
};

/// Follows the schedule from the batch that is opened next to the end of the range, over the ends
/// of epochs, and tells a dataset of it by `Told`, until what is told and not read comes to the
/// bound; batches that are read make room. No lock is held while the dataset or the sampler runs.
template <class Told, dataset Dataset, sampler Sampler>
class plan_follower {
 public:
  /// Of samples that take, where `data` does not say it, as many bytes as the mean of `read`, which
  /// the values of ragged fields make; before the first are read, as in a batch of `layout`. Refers
  /// to all but `layout` and `options`.
  plan_follower(const Dataset& data, std::uint64_t size, const Sampler& order,
                const schedule& batches, const batch_layout<typename Dataset::record_type>& layout,
                const loader_options& options, loader_observer& observer, const mean_bytes& read)
      : data_(&data),
        size_(size),
        sampler_(&order),
        schedule_(&batches),
        sample_bytes_(std::max<std::size_t>(1, layout.sample_bytes())),
        read_(&read),
        seen_(&observer.of_teller()),
        ledger_(options.read_ahead == 0 ? 0 : (std::min)(options.read_ahead, Told::most(data))) {
    if (!Told::is_counted) return;
    seen_->most_bytes.set(ledger_.most());
    seen_->source_bytes.set(Told::most(data));
  }
  plan_follower(plan_follower&&) = delete;

  /// Whether there is anything to tell.
  [[nodiscard]] bool is_on() const noexcept { return ledger_.most() != 0; }
  /// What was told and is not read.
  [[nodiscard]] plan_ledger& ledger() noexcept { return ledger_; }

  /// Tells of some samples of one batch. False where there is no room, or nothing to tell.
  bool tell_some() noexcept {
    if (!is_on()) return false;
    const auto coming = schedule_->upcoming();
    if (!coming) return false;
    follow(*coming);
    const std::uint64_t room = ledger_.room();
    if (room == 0 || number_ >= coming->end || !has_order()) return false;
    const batch_info batch = schedule_->plan().at(at_);
    const auto [number, place] = std::pair{number_, place_};
    const auto some = std::span{indices_}.first((std::min)(indices_.size(), batch.size - place_));
    try {
      pick_samples(*order_, schedule_->plan(), batch, place_, some);
      std::uint64_t bytes = 0;
      const std::size_t fits = that_fit(some, room, bytes);
      if (fits == 0) {
        if (bytes_of(some[0]) <= ledger_.most()) return false;  // until some are read
        move_on(batch, 1);                                      // it never fits
        return true;
      }
      const bool is_early = ledger_.note_told(number_, bytes);
      if (!is_early && !Told::is_of_use_late) return true;  // it was opened: to the next one
      if (Told::is_counted) {
        seen_->samples.add(fits);
        seen_->bytes.add(bytes);
      }
      move_on(batch, fits);
      Told::tell(*data_, some.first(fits));
    } catch (...) {
      seen_->failed.add(1);
      // Where it was not told, for want of its sizes or of memory.
      if (number_ == number && place_ == place) skip_batch();
    }
    return true;
  }

 private:
  // Goes to where the range is, unless this is ahead of it.
  void follow(const schedule::coming& now) {
    if (now.next.range != range_) {
      ledger_.void_from(now.first);
      range_ = now.next.range;
      order_.reset();
      try {
        Told::begin_range(*data_);
      } catch (...) {
        seen_->failed.add(1);
      }
      if (Told::is_of_use_late) return go_to(now.first_at, now.first);
    } else if (number_ >= now.number) {
      return;
    } else {
      for (; number_ < now.number; skip_batch()) {
        if (Told::is_of_use_late && has_order()) return;
        if (Told::is_counted) seen_->late.add(schedule_->plan().at(at_).size - place_);
      }
    }
    go_to(now.next.at, now.number);
  }
  void go_to(const batch_position& at, std::uint64_t number) noexcept {
    at_ = at;
    number_ = number;
    place_ = 0;
  }

  // Whether the order of the present epoch is known. What the sampler throws comes to the consumer
  // by the opener, at its turn.
  bool has_order() {
    if (order_ && order_epoch_ == at_.epoch) return true;
    if (!order_ && order_epoch_ == at_.epoch && order_range_ == range_) return false;
    order_.reset();
    order_epoch_ = at_.epoch;
    order_range_ = range_;
    try {
      order_.emplace(sampler_->order(size_, at_.epoch));
    } catch (...) {
      seen_->failed.add(1);
    }
    return order_.has_value();
  }

  [[nodiscard]] std::uint64_t bytes_of(std::uint64_t index) const {
    const std::uint64_t known = stored_bytes_of(*data_, index);
    if (known != 0) return known;
    const std::uint64_t mean = read_->value();
    return mean == 0 ? sample_bytes_ : mean;
  }

  // How many of the samples, from the first on, there is room for, and their `bytes`.
  std::size_t that_fit(std::span<const std::uint64_t> some, std::uint64_t room,
                       std::uint64_t& bytes) const {
    std::size_t fits = 0;
    for (; fits < some.size(); ++fits) {
      const std::uint64_t one = bytes_of(some[fits]);
      if (one > room - bytes) break;
      bytes += one;
    }
    return fits;
  }

  void move_on(const batch_info& batch, std::size_t samples) noexcept {
    place_ += samples;
    if (place_ == batch.size) skip_batch();
  }
  void skip_batch() noexcept {
    at_ = schedule_->plan().normal({at_.epoch, at_.batch + 1});
    ++number_;
    place_ = 0;
  }

  const Dataset* data_;
  std::uint64_t size_;
  const Sampler* sampler_;
  const schedule* schedule_;
  std::uint64_t sample_bytes_;
  const mean_bytes* read_;
  ahead_meter* seen_;
  plan_ledger ledger_;

  // Of who tells.
  std::uint64_t range_ = 0;   // as the schedule counts them
  batch_position at_;         // of the batch that is told next,
  std::uint64_t number_ = 0;  // its number,
  std::size_t place_ = 0;     // and the first of its samples that is not told
  std::optional<order_of<Sampler>> order_;
  std::uint64_t order_epoch_ = 0;  // of which `order_` is, or would be if it had not failed
  std::uint64_t order_range_ = 0;
  std::array<std::uint64_t, 64> indices_{};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
