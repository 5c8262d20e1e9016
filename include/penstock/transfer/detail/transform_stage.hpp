// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/batch_info.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/support/slot_layout.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock/observe/support/trace_writer.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/transfer/detail/device_timer.hpp>
#include <penstock/transfer/detail/slots/device_slots.hpp>
#include <penstock/transfer/device_transform.hpp>
#include <penstock/transfer/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What stands between the copy and the device slots when a transform does: the transform, the
/// stream that it runs on, and device memory for two batches as they travel: into one goes the next
/// copy while the transform reads the other. They serve all slots, because either stream runs in
/// order.
template <class Transform, record_type In, device Device>
class transform_stage {
 public:
  using out_record = transformed_record_t<Transform, In>;
  using stream_ref = typename Device::stream_ref;

  /// Without that memory where the transform reads the host's (`reads_host`).
  transform_stage(const Device& device, const batch_layout<In>& layout, Transform transform,
                  bool reads_host)
      : device_(device),
        transform_(std::move(transform)),
        in_(layout),
        out_(transformed_extents<In>(transform_, layout.extents()), layout.batch_size()),
        arrived_(device.make_event(event_wait::by_streams)),
        // So that a transform need not wait for all blocks of the step that runs.
        stream_(make_stream(device, stream_priority::highest)) {
    for (place& one : places_) {
      if (!reads_host) one.memory.emplace(device, layout.bytes(), memory_kind::device);
    }
    if constexpr (requires { transform_.prepare(device, layout); }) {
      transform_.prepare(device, in_.template as<In>());
    }
  }

  [[nodiscard]] const batch_layout<out_record>& out_layout() const noexcept { return out_; }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return reads_host() ? 0 : places_[0].memory->bytes() + places_[1].memory->bytes();
  }
  /// Of the batches as they travel.
  [[nodiscard]] const slot_layout& in_layout() const noexcept { return in_; }

  /// What records them; null: nothing does.
  void trace_to(trace_writer* trace) noexcept { trace_ = trace; }

  /// What times them; null: nothing does.
  void time_by(device_timer<Device>* timer) noexcept { timer_ = timer; }

  /// What transforms run on.
  [[nodiscard]] stream_ref stream() noexcept { return stream_; }
  /// Whether the transform reads host slots, and nothing is copied.
  [[nodiscard]] bool reads_host() const noexcept { return !places_[0].memory; }
  /// Where the next batch is copied to.
  [[nodiscard]] std::byte* data() const noexcept { return places_[next_].memory->data(); }
  /// The device slot that was made of the last batch there; nothing before the first.
  [[nodiscard]] std::optional<std::size_t> reader() const noexcept { return places_[next_].reader; }

  /// Marks the end of the copy that `copies` was given last, for the host memory of `from`, and
  /// makes the transforms wait for it.
  template <class HostBatch>
  void wait_for_copy(HostBatch& from, stream_ref copies) {
    if constexpr (shares_mark<HostBatch, Device>) {
      if (auto* const mark = from.mark_copies(copies)) {
        from.release_behind(mark);
        return device_.wait(stream(), mark->event());
      }
    }
    from.release_after(copies);
    device_.record(arrived_, copies);
    device_.wait(stream(), arrived_);
  }

  /// Queues the transform of the batch at `arrived` into `slab`.
  void enqueue(const std::byte* arrived, std::byte* slab, const batch_info& batch) {
    const trace_scope traced{trace_, trace_stage::transform, batch, batch.size};
    [[maybe_unused]] const auto current = enter();
    if (timer_ != nullptr) timer_->begin_transform(stream());
    transform_.enqueue(const_batch_view<In>{arrived, in_.template as<In>(), 0, batch.size},
                       batch_view<out_record>{slab, out_, 0, batch.size}, stream());
    if (timer_ != nullptr) timer_->end_transform(stream());
  }
  /// Device slot `slot` is made of that batch; the next one goes to the other place.
  void note_reader(std::size_t slot) noexcept {
    places_[next_].reader = slot;
    next_ = 1 - next_;
  }

 private:
  struct place {
    std::optional<slab<Device>> memory;
    std::optional<std::size_t> reader{};
  };

  /// Makes the device the thread's current one for a scope, where a device has such a notion.
  [[nodiscard]] auto enter() const {
    if constexpr (requires { device_.enter_scope(); }) {
      return device_.enter_scope();
    } else {
      return nullptr;
    }
  }

  Device device_;
  Transform transform_;
  slot_layout in_;
  batch_layout<out_record> out_;
  std::array<place, 2> places_;
  std::size_t next_ = 0;
  trace_writer* trace_ = nullptr;
  device_timer<Device>* timer_ = nullptr;
  typename Device::event_type arrived_;  // for a copy whose batch brings no event of its own
  typename Device::stream_type stream_;  // goes first: it waits for its work
};

/// The device memory of a feed: the slots, after a stage that makes what goes into them.
template <class Transform, record_type In, device Device>
class transformed_slots {
 public:
  transformed_slots(const Device& device, const batch_layout<In>& layout, const depth_range& depth,
                    Transform transform, bool zero_copy)
      : stage_(device, layout, std::move(transform), zero_copy),
        ring(device, stage_.out_layout(), depth.first, depth.most) {}

  template <class HostBatch, class Around>
  void copy_in(std::span<slot_filling<HostBatch>> batches, const Around& around) {
    ring.copy_in(batches, stage_, around);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return ring.bytes() + stage_.bytes(); }
  void trace_to(trace_writer* trace) noexcept { stage_.trace_to(trace); }
  void time_by(device_timer<Device>* timer) noexcept {
    ring.time_by(timer);
    stage_.time_by(timer);
  }

 private:
  transform_stage<Transform, In, Device> stage_;

 public:
  device_slots<Device> ring;  // goes first: it waits for all that uses the stage
};

/// The device memory of a feed without a transform: the slots, whatever the record.
template <device Device>
class plain_slots {
 public:
  template <record_type In>
  plain_slots(const Device& device, const batch_layout<In>& layout, const depth_range& depth,
              no_transform, bool zero_copy)
      : ring(device, layout, depth.first, depth.most, zero_copy) {}

  template <class HostBatch, class Around>
  void copy_in(std::span<slot_filling<HostBatch>> batches, const Around& around) {
    ring.copy_in(batches, around);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return ring.bytes(); }
  void trace_to(trace_writer*) noexcept {}
  void time_by(device_timer<Device>* timer) noexcept { ring.time_by(timer); }

  device_slots<Device> ring;
};

/// The device memory of a feed, and the record of what lies in it.
template <class Transform, record_type In, device Device>
struct feed_memory {
  using type = transformed_slots<Transform, In, Device>;
  using record_type = transformed_record_t<Transform, In>;
};
template <record_type In, device Device>
struct feed_memory<no_transform, In, Device> {
  using type = plain_slots<Device>;
  using record_type = In;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
