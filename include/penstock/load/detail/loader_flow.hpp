// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/device/device.hpp>
#include <penstock/load/detail/consumer.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/options.hpp>
#include <penstock/observe/support/noted.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/order/support/fingerprint.hpp>
#include <penstock/order/support/word_hash.hpp>
#include <penstock/resume/loader_state.hpp>
#include <penstock/threads/float_mode.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What a loader shares with its ranges: the batches that come, the one that the loop is at, and
/// the state of a loop.
template <dataset Dataset, sampler Sampler, device Device>
class loader_flow {
 public:
  using consumer_type = consumer<Dataset, Sampler, Device>;
  using batch_type = typename consumer_type::batch_type;

  template <class Data>
  loader_flow(Data&& data, const Sampler& order, const Device& device,
              const loader_options& options)
      : reads_(Dataset(std::forward<Data>(data)), order, device, options) {}

  [[nodiscard]] consumer_type& reads() noexcept { return reads_; }

  /// For a `batch_range`: starts to read; the range's serial number.
  std::uint64_t start(const batch_position& from, std::uint64_t last_epoch) {
    return reads_.start(from, last_epoch);
  }
  /// For a `batch_range`: releases the current batch and takes the next one; false at the end.
  bool advance() {
    step_.end();
    held_ = batch_type{};  // the release: before the next is waited for, it may need the slot
    held_ = reads_.next();
    if (held_) step_.begin(reads_.trace(), held_.info());
    return static_cast<bool>(held_);
  }
  [[nodiscard]] batch_type& current() noexcept { return held_; }
  /// For a `batch_range`: ends the range that `serial` names.
  void finish(std::uint64_t serial) noexcept {
    if (!reads_.is_last(serial)) return;
    step_.end();
    held_ = batch_type{};
    reads_.stop();
  }

  /// The state of a loop whose next batch is `next`. Throws `option_error` where batches come out
  /// of order. From any thread.
  [[nodiscard]] loader_state state_at(const batch_position& next) {
    const auto& engine = reads_.engine();
    const loader_options& options = engine.options();
    if (!options.in_order) {
      throw option_error("in_order",
                         "must be true for a state, is false: batches that come as they are ready "
                         "leave no place to continue from");
    }
    std::call_once(asked_, [&] {
      const flushed_denormals as_on_a_worker;
      fingerprint_ = order_fingerprint(global_sampler(engine.order()), engine.dataset_size());
      if (const std::uint64_t chosen = fingerprint_of(engine.dataset()); chosen != 0) {
        word_hash both{fingerprint_};
        both.add(chosen);
        fingerprint_ = both.value();
      }
    });
    const auto& plan = engine.schedule().plan();
    const std::uint64_t world = world_size(engine.order());
    return {.version = loader_state{}.version,
            .last = static_cast<std::uint32_t>(options.last_batch),
            .epoch = next.epoch,
            .batch = next.batch,
            .dataset = engine.dataset_size(),
            .samples = plan.samples() * world,
            .batch_size = options.batch_size * world,
            .seed = options.seed,
            .order = fingerprint_};
  }

 private:
  consumer_type reads_;
  batch_type held_;
  noted_step step_;
  std::once_flag asked_;           // guards the next: states may be asked for on several threads
  std::uint64_t fingerprint_ = 0;  // of order and choices, once a state was asked for
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
