// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/load/options.hpp>
#include <penstock/order/sampler.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Throws `option_error` where a sampler is made for another batch size.
template <sampler Sampler>
void require_batches_of(const Sampler& order, const loader_options& options) {
  if constexpr (sampler_of_batches<Sampler>) {
    if (order.batch_size() == options.batch_size) return;
    refuse_option("batch_size", {"must be the sampler's ", order.batch_size(),
                                 " (sharded: global_batch / world), is ", options.batch_size});
  }
}

/// How an epoch of `samples` samples is cut into batches. Pure arithmetic, no state.
class epoch_plan {
 public:
  /// Throws `empty_dataset` when there is no sample, `option_error` when there is no batch.
  epoch_plan(std::uint64_t samples, std::size_t batch_size, partial_batch last)
      : samples_(samples), batch_size_(batch_size), last_(last) {
    if (samples == 0)
      throw empty_dataset(
          "loader: an epoch has 0 samples: is the dataset empty, or does its sampler draw none?");
    if (batches() == 0) {
      refuse_option("batch_size",
                    {batch_size, " is above the ", samples,
                     " samples of an epoch, and partial_batch::drop leaves none: lower it, or "
                     "take partial_batch::keep"});
    }
  }

  /// How many samples an epoch has.
  [[nodiscard]] std::uint64_t samples() const noexcept { return samples_; }
  /// How many samples a batch has, except perhaps the last.
  [[nodiscard]] std::size_t batch_size() const noexcept { return batch_size_; }

  /// Batches an epoch.
  [[nodiscard]] std::uint64_t batches() const noexcept {
    const std::uint64_t full = samples_ / batch_size_;
    return full + (last_ != partial_batch::drop && samples_ % batch_size_ != 0 ? 1 : 0);
  }

  /// The batch at a position; `position.batch` must be below `batches()`.
  [[nodiscard]] batch_info at(const batch_position& position) const noexcept {
    const std::uint64_t left = samples_ - position.batch * batch_size_;
    const auto valid = left < batch_size_ ? static_cast<std::size_t>(left) : batch_size_;
    const std::size_t size = last_ == partial_batch::pad ? batch_size_ : valid;
    return {position.epoch, position.batch, size, valid};
  }

  /// `position`, but the start of the next epoch where it is the one after an epoch's last batch.
  [[nodiscard]] batch_position normal(const batch_position& position) const noexcept {
    const bool is_end = position.batch == batches() && position.epoch < max_epochs;
    return is_end ? batch_position{position.epoch + 1, 0} : position;
  }

  /// The number of batches from `from` to the start of epoch `last_epoch`, not included. Throws
  /// `option_error` when `from` is after it, names no batch, or the epochs do not fit 32 bits (the
  /// key of the random bits holds no more).
  [[nodiscard]] std::uint64_t count(const batch_position& from, std::uint64_t last_epoch) const {
    const std::uint64_t per_epoch = batches();
    if (last_epoch > max_epochs) {
      refuse_option("epochs", {"the end, epoch ", last_epoch, ", is above 2^32"});
    }
    if (from.epoch > last_epoch || (from.batch != 0 && from.epoch == last_epoch)) {
      refuse_option("epochs", {"cannot start at batch ", from.batch, " of epoch ", from.epoch,
                               ": the range ends before epoch ", last_epoch});
    }
    if (from.batch >= per_epoch) {
      refuse_option("epochs", {"there is no batch ", from.batch, ": an epoch has ", per_epoch,
                               ", counted from 0"});
    }
    const std::uint64_t epochs = last_epoch - from.epoch;
    if (epochs != 0 && per_epoch > (std::numeric_limits<std::uint64_t>::max)() / epochs) {
      refuse_option("epochs",
                    {epochs, " epochs of ", per_epoch, " batches are more than 64 bits count"});
    }
    return epochs * per_epoch - from.batch;
  }

 private:
  static constexpr std::uint64_t max_epochs = std::uint64_t{1} << 32;

  std::uint64_t samples_;
  std::size_t batch_size_;
  partial_batch last_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
