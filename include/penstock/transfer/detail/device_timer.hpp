// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <optional>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/device/device.hpp>
#include <penstock/observe/stats.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Times batches of a feed with the device clock, one batch at a time with pauses in between.
/// Measures the copy, the transform, the step, and the idle time of the step's stream before the
/// step. Only the consumer thread may use this object. Never waits, but checks occasionally whether
/// the batch is complete. An error ends the measurement, but not the loop.
template <device Device>
class device_timer {
  using stream_ref = typename Device::stream_ref;
  using event_type = typename Device::event_type;

 public:
  /// Creates the events. Propagates errors from the device. Throws `option_error` if the device
  /// cannot time work.
  explicit device_timer(const Device& device) : device_(device) {
    if constexpr (!times_work<Device>) {
      throw option_error("instrumentation.time_device",
                         "this device cannot measure the time of its work");
    }
    for (event_type* event : {&copy_begun_, &copied_, &transform_begun_, &transformed_, &left_,
                              &step_begun_, &stepped_}) {
      *event = device.make_event(event_wait::timed);
    }
  }

  /// Discards the current measurement. Called when a range begins or ends, because the timed batch
  /// may never be delivered.
  void abandon() noexcept {
    if (now_ != phase::off) now_ = phase::pause;
    has_left_ = in_body_ = false;
  }

  /// Selects `batch`, whose copy is queued next, for a measurement if the pause is over.
  void choose(const batch_info& batch) noexcept {
    if (now_ != phase::pause || ++paused_ < pause) return;
    now_ = phase::copy;
    batch_ = batch;
  }
  void begin_copy(stream_ref stream) noexcept { mark(phase::copy, copy_begun_, stream); }
  void end_copy(stream_ref stream) noexcept {
    mark(phase::copy, copied_, stream);
    copies_ = true;
  }
  void begin_transform(stream_ref stream) noexcept { mark(phase::copy, transform_begun_, stream); }
  void end_transform(stream_ref stream) noexcept {
    mark(phase::copy, transformed_, stream);
    transforms_ = true;
  }
  /// Ends the selection after the work of the batch is queued.
  void end_choice() noexcept {
    if (now_ == phase::copy) now_ = phase::wait;
  }

  /// Records the end of the loop body on the consumer stream. Returns the times of a batch whose
  /// work is complete.
  std::optional<device_stats> end_step(stream_ref stream) noexcept {
    if (!std::exchange(in_body_, false)) return std::nullopt;
    if (now_ == phase::wait || (now_ == phase::pause && paused_ + 1 >= pause)) {
      mark(now_, left_, stream);
      has_left_ = now_ != phase::off;
    } else if (now_ == phase::step) {
      mark(phase::step, stepped_, stream);
      if (now_ == phase::step) now_ = phase::look;
    } else if (now_ == phase::look) {
      return look();
    }
    return std::nullopt;
  }
  /// Records the start of the loop body for `batch`, after the stream waits for the batch.
  void begin_step(stream_ref stream, const batch_info& batch) noexcept {
    in_body_ = true;
    if (now_ != phase::wait || batch.epoch != batch_.epoch || batch.batch != batch_.batch) return;
    if (!has_left_) {  // For the first batch of a range, earlier work on the stream is unknown.
      now_ = phase::pause;
      return;
    }
    mark(phase::wait, step_begun_, stream);
    if (now_ == phase::wait) now_ = phase::step;
  }

 private:
  enum class phase { pause, copy, wait, step, look, off };
  static constexpr unsigned pause = 32;  // number of batches copied between two measurements

  void mark(phase when, event_type& event, stream_ref stream) noexcept {
    if (now_ != when) return;
    try {
      device_.record(event, stream);
    } catch (...) {
      now_ = phase::off;
    }
  }
  std::optional<device_stats> look() noexcept {
    if constexpr (times_work<Device>) {
      try {
        if (!device_.is_complete(stepped_)) return std::nullopt;
        device_stats times{.batches = 1,
                           .idle = device_.elapsed(left_, step_begun_),
                           .step = device_.elapsed(step_begun_, stepped_)};
        if (copies_) times.copy = device_.elapsed(copy_begun_, copied_);
        if (transforms_) times.transform = device_.elapsed(transform_begun_, transformed_);
        now_ = phase::pause;
        paused_ = 0;
        has_left_ = false;
        return times;
      } catch (...) {
        now_ = phase::off;
      }
    }
    return std::nullopt;
  }

  Device device_;
  phase now_ = phase::pause;
  unsigned paused_ = 0;
  batch_info batch_;         // batch that is timed
  bool copies_ = false;      // true if batches are copied
  bool transforms_ = false;  // true if batches have a transform
  bool has_left_ = false;    // true if a body has ended before the batch
  bool in_body_ = false;     // true from the batch delivery to the end of the body
  event_type copy_begun_;
  event_type copied_;
  event_type transform_begun_;
  event_type transformed_;
  event_type left_;  // end of the previous body
  event_type step_begun_;
  event_type stepped_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
