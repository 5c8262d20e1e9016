// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include <penstock/core/batch_info.hpp>
#include <penstock/device/device.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/observe/support/noted.hpp>
#include <penstock/transfer/detail/depth_tuner.hpp>
#include <penstock/transfer/detail/device_timer.hpp>
#include <penstock/transfer/detail/feed_observer.hpp>
#include <penstock/transfer/detail/slots/device_slot.hpp>
#include <penstock/transfer/detail/transform_stage.hpp>
#include <penstock/transfer/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What goes along with a feed's loop and changes no batch of it: the step as it is traced, the
/// depth as it is tuned, and the device's times. For the consumer's thread.
template <device Device>
class feed_watch {
 public:
  using stream_ref = typename Device::stream_ref;

  /// As the options say: what `seen` counts of the batches of `source`, which go to `memory`, is
  /// traced and timed too. Both must outlive it. Throws what the device throws, and `option_error`
  /// where it can't tell times.
  template <class Source, class Memory>
  feed_watch(const Source& source, stream_ref consumer, const transfer_options& options,
             feed_observer& seen, Memory& memory)
      : device_(source.get().device()), stream_(consumer), seen_(&seen) {
    trace_feed(options.trace, source, seen, memory);
    seen.set_body(is_body(device_, consumer));
    if (options.depth == automatic) tuner_ = std::make_unique<depth_tuner>(options, seen);
    if (options.time_device) memory.time_by(&timer_.emplace(device_));
  }

  /// Has `queue` queue the copy of this batch. Throws what that throws.
  template <class Queue>
  void copy_of(const batch_info& batch, const Queue& queue) {
    const noted_copy noted{seen_->trace(), batch};
    if (timer_) timer_->choose(batch);
    queue();
    if (timer_) timer_->end_choice();
  }

  /// @name A range
  /// @{
  void begin_range() noexcept {
    if (tuner_) tuner_->begin();
    if (timer_) timer_->abandon();
  }
  void end_range() noexcept {
    if (tuner_) tuner_->end();
    if (timer_) timer_->abandon();
  }
  /// @}

  /// @name A loop's body
  /// @{
  void end_step() noexcept {
    step_.end();
    if (!timer_) return;
    if (const auto times = timer_->end_step(stream_)) seen_->note_device(*times);
  }
  /// It begins with a batch that `ring` has a slot of. Throws what the device throws.
  template <class Ring>
  void begin_step(Ring& ring, const batch_info& batch) {
    step_.begin(seen_->trace(), batch);
    if (timer_) timer_->begin_step(stream_, batch);
    if (tuner_) tuner_->take(ring, seen_->batches(), is_body(device_, stream_));
  }
  /// The range ends within the body.
  void leave_step() noexcept { step_.end(); }
  /// @}

  /// What an automatic depth has come to; of another one, that it is `depth`. From any thread.
  [[nodiscard]] tuning_history tuning(std::size_t depth) const {
    return tuner_ ? tuner_->history() : tuning_history{.now = {.depth = depth}, .moves = {}};
  }

 private:
  Device device_;
  stream_ref stream_;
  feed_observer* seen_;
  noted_step step_;
  std::unique_ptr<depth_tuner> tuner_;  // large, and mostly not there
  std::optional<device_timer<Device>> timer_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
