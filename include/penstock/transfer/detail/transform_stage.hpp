// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/batch_info.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/support/slot_layout.hpp>
#include <penstock/device/device.hpp>
#include <penstock/device/stream_timeline.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock/observe/support/stage_probe.hpp>
#include <penstock/transfer/detail/device_timer.hpp>
#include <penstock/transfer/device_transform.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The type-erased interface of a transform, independent of the record types.
template <device Device>
class erased_transform {
 public:
  erased_transform() = default;
  erased_transform(erased_transform&&) = delete;
  virtual ~erased_transform() = default;

  /// Queues work that computes the first `size` samples of the batch at `out` from the batch at
  /// `in`.
  virtual void enqueue(const std::byte* in, std::byte* out, std::size_t size,
                       typename Device::stream_ref stream) = 0;
};

/// Implements `erased_transform` with a `Transform` for batches of the record `In`. Owns the
/// layouts before and after the transform.
template <class Transform, record_type In, device Device>
class transform_of final : public erased_transform<Device> {
 public:
  using out_record = transformed_record_t<Transform, In>;

  /// Prepares the transform. Propagates errors from the transform.
  transform_of(Transform transform, const Device& device, const batch_layout<In>& layout)
      : transform_(std::move(transform)),
        in_(layout),
        out_(transformed_extents<In>(transform_, layout.extents()), layout.batch_size()) {
    if constexpr (requires { transform_.prepare(device, in_); }) transform_.prepare(device, in_);
  }

  [[nodiscard]] const batch_layout<out_record>& out_layout() const noexcept { return out_; }

  void enqueue(const std::byte* in, std::byte* out, std::size_t size,
               typename Device::stream_ref stream) override {
    transform_.enqueue(const_batch_view<In>{in, in_, 0, size},
                       batch_view<out_record>{out, out_, 0, size}, stream);
  }

 private:
  Transform transform_;
  batch_layout<In> in_;
  batch_layout<out_record> out_;
};

/// The stage between the copies and the device slots of a feed with a transform. Owns the
/// transform, its stream, and two staging buffers in device memory. The next copy goes to one
/// buffer while the transform reads the other. Two buffers are sufficient for all slots, because
/// both streams run in order.
template <device Device>
class transform_stage {
 public:
  using stream_ref = typename Device::stream_ref;

  /// Creates a stage for at most `slot_count` device slots. `in` is the layout of batches when they
  /// are copied. If `reads_host` is true, the transform reads host memory, and no staging buffers
  /// are allocated. Propagates errors from the device, such as `out_of_memory`.
  transform_stage(const Device& device, slot_layout in,
                  std::unique_ptr<erased_transform<Device>> transform, std::size_t slot_count,
                  bool reads_host)
      : device_(device),
        transform_(std::move(transform)),
        in_(std::move(in)),
        // Uses the highest stream priority, so that a transform does not wait for all blocks of the
        // running step.
        stream_(make_stream(device, stream_priority::highest)),
        made_(std::make_shared<fill_timeline<Device>>(device, stream_, 4 * (slot_count + 1),
                                                      event_wait::by_host)) {
    for (place& one : places_) {
      if (!reads_host) one.memory.emplace(device, in_.bytes(), memory_kind::device);
    }
  }
  transform_stage(transform_stage&&) = delete;
  /// Waits for the transforms, and frees the staging buffers. If waiting fails, leaks the buffers.
  ~transform_stage() {
    if (synchronize_before_free(device_, made_->stream())) return;
    for (place& one : places_) {
      if (one.memory) one.memory->leak();
    }
  }

  /// Returns the size in bytes of the staging buffers.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return reads_host() ? 0 : 2 * places_[0].memory->bytes();
  }
  /// Returns the layout of the batches when they are copied.
  [[nodiscard]] const slot_layout& in_layout() const noexcept { return in_; }

  /// Traces the transforms with `trace`, and times them with `timer`. Either may be null, which
  /// disables it.
  void watch_by(trace_sink* trace, device_timer<Device>* timer) noexcept {
    trace_ = trace;
    timer_ = timer;
  }

  /// Returns the timeline of the transforms.
  [[nodiscard]] const std::shared_ptr<fill_timeline<Device>>& made() const noexcept {
    return made_;
  }
  /// Returns true if the transform reads host slots, in which case batches are not copied.
  [[nodiscard]] bool reads_host() const noexcept { return !places_[0].memory; }
  /// Returns the address of the staging buffer for the next batch.
  [[nodiscard]] std::byte* data() const noexcept { return places_[next_].memory->data(); }
  /// Returns the point at which the transforms have read the previous batch at `data()`.
  [[nodiscard]] std::uint64_t read_at() const noexcept { return places_[next_].read_at; }

  /// Queues the transform of the batch at `arrived` into `slab`. Propagates errors from the
  /// transform.
  void enqueue(const std::byte* arrived, std::byte* slab, const batch_info& batch) {
    const stream_ref stream = made_->stream();
    const work_probe probe{trace_stage::transform, trace_, batch, batch.size};
    [[maybe_unused]] const auto current = enter();
    if (timer_ != nullptr) timer_->begin_transform(stream);
    transform_->enqueue(arrived, slab, batch.size, stream);
    if (timer_ != nullptr) timer_->end_transform(stream);
  }
  /// Records that the transforms have read the batch at `data()` at the point `at`. The next batch
  /// goes to the other staging buffer.
  void record_read(std::uint64_t at) noexcept {
    places_[next_].read_at = at;
    next_ = 1 - next_;
  }

 private:
  struct place {
    std::optional<slab<Device>> memory;
    std::uint64_t read_at = 0;
  };

  /// Makes the device current on this thread for the lifetime of the returned object, if the device
  /// supports it.
  [[nodiscard]] auto enter() const {
    if constexpr (requires { device_.enter_scope(); }) {
      return device_.enter_scope();
    } else {
      return nullptr;
    }
  }

  Device device_;
  std::unique_ptr<erased_transform<Device>> transform_;
  slot_layout in_;
  std::array<place, 2> places_;
  std::size_t next_ = 0;
  trace_sink* trace_ = nullptr;
  device_timer<Device>* timer_ = nullptr;
  typename Device::stream_type stream_;  // destroyed before the members that its work uses
  std::shared_ptr<fill_timeline<Device>> made_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
