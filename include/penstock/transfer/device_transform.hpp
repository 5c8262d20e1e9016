// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/detail/slab.hpp>
#include <penstock/transfer/device_batch.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

template <class T, class In>
concept makes_one_record = record_type<typename T::record_type>;
template <class T, class In>
concept makes_record_of = record_type<typename T::template record_for<In>>;

template <class T, class In>
struct output_record {};
template <class T, class In>
  requires makes_one_record<T, In>
struct output_record<T, In> {
  using type = typename T::record_type;
};
template <class T, class In>
  requires(!makes_one_record<T, In> && makes_record_of<T, In>)
struct output_record<T, In> {
  using type = typename T::template record_for<In>;
};

}  // namespace detail

/// The record that a transform makes of batches of record `In`.
template <class T, record_type In>
using transformed_record_t = typename detail::output_record<T, In>::type;

/// Work on a batch that a `transfer` does on the device, after its copy: from the record that
/// travels into the one that the consumer gets, such as bytes to floats, so that a quarter of the
/// bytes goes over the bus. `on_stream` and `on_device` (CUDA) make such things.
///
/// Transforms run on a stream of their own, and batches are copied to two places by turns: while
/// one is transformed the next one is copied. So a batch costs the longer of copy and transform and
/// not their sum, unless the transform loads the bus itself.
///
///     using record_type = ...;      // of the batches it makes; or, when that depends on the input,
///     template <class In> using record_for = ...;
///     record_extents<Out> extents(const record_extents<In>&) const;  // not needed if all are fixed
///     void prepare(const Device&, const batch_layout<In>&);  // optional: once, at construction
///     void enqueue(const_batch_view<In> in, batch_view<Out> out, Device::stream_ref stream);
///
/// `enqueue` puts work on `stream` that reads `in` and writes all elements of `out`, both in device
/// memory and of one size (the last batch of an epoch may be shorter; samples that only fill a
/// batch up are transformed too), and returns without waiting. It is called on the consumer's
/// thread, one call at a time, with the feed's device as the thread's current one. What it throws
/// is told as a failure of that batch's transfer. The transform, the views and their memory live
/// until the work is done. Work on other streams has to be forked from `stream` and joined to it.
/// Into a kernel go the views of fields, `get<"image">(in)`; those of batches refer to host memory.
template <class T, class In, class Device>
concept device_transform = std::move_constructible<T> && record_type<In> && requires {
  typename transformed_record_t<T, In>;
} && requires(T& transform, const_batch_view<In> in, batch_view<transformed_record_t<T, In>> out,
              typename Device::stream_ref stream) {
  transform.enqueue(in, out, stream);
};

/// Batches reach the consumer as they have travelled: what a `transfer` has without a transform.
struct no_transform {};

/// The extents of the batches that `transform` makes of batches with the extents `lengths`.
template <record_type In, class T>
[[nodiscard]] constexpr record_extents<transformed_record_t<T, In>> transformed_extents(
    const T& transform, const record_extents<In>& lengths) {
  using out = transformed_record_t<T, In>;
  if constexpr (requires {
                  { transform.extents(lengths) } -> std::convertible_to<record_extents<out>>;
                }) {
    return transform.extents(lengths);
  } else {
    static_assert(!out::has_dynamic_extents,
                  "penstock::transfer: a transform into a record with dyn extents needs "
                  "extents(const record_extents<In>&)");
    if constexpr (!out::has_dynamic_extents) return {};
  }
}

/// A transform out of a function that puts the work on the stream: `on_stream<Out>(f)` with
/// `f(const_batch_view<In> in, batch_view<Out> out, stream_ref stream)`; see `device_transform` for
/// what it may do. `lengths` are the extents of one sample that comes out.
template <record_type Out, class F>
class stream_transform {
 public:
  using record_type = Out;

  /// `function` queues the work that makes a batch; `lengths` as above.
  stream_transform(F function, const record_extents<Out>& lengths)
      : function_(std::move(function)), lengths_(lengths) {}

  /// The extents of what comes out.
  template <class In>
  [[nodiscard]] const record_extents<Out>& extents(const record_extents<In>&) const noexcept {
    return lengths_;
  }

  /// Has the function queue its work on `stream`.
  template <class In, class StreamRef>
    requires std::invocable<F&, const_batch_view<In>, batch_view<Out>, StreamRef>
  void enqueue(const_batch_view<In> in, batch_view<Out> out, StreamRef stream) {
    function_(in, out, stream);
  }

 private:
  F function_;
  record_extents<Out> lengths_;
};

/// A transform out of a function, for a record whose extents are given.
template <record_type Out, class F>
[[nodiscard]] stream_transform<Out, std::decay_t<F>> on_stream(F&& function,
                                                               const record_extents<Out>& lengths) {
  return {std::forward<F>(function), lengths};
}

/// For a record without dynamic extents.
template <record_type Out, class F>
[[nodiscard]] auto on_stream(F&& function) {
  static_assert(
      !Out::has_dynamic_extents,
      "penstock::on_stream: a record with dyn extents needs them: on_stream<Out>(function, "
      "extents)");
  if constexpr (!Out::has_dynamic_extents) {
    return on_stream<Out>(std::forward<F>(function), record_extents<Out>{});
  }
}

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

  transform_stage(const Device& where, const batch_layout<In>& layout, Transform transform)
      : device_(where),
        transform_(std::move(transform)),
        in_(layout),
        out_(transformed_extents<In>(transform_, layout.extents()), layout.batch_size()),
        places_{place{slab<Device>{where, layout.bytes(), memory_kind::device}, std::nullopt},
                place{slab<Device>{where, layout.bytes(), memory_kind::device}, std::nullopt}},
        arrived_(where.make_event(event_wait::by_streams)),
        stream_(where.make_stream()) {
    if constexpr (requires { transform_.prepare(where, in_); }) transform_.prepare(where, in_);
  }

  [[nodiscard]] const batch_layout<out_record>& out_layout() const noexcept { return out_; }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return places_[0].memory.bytes() + places_[1].memory.bytes();
  }
  /// What the copy of a batch of `samples` samples moves.
  [[nodiscard]] std::size_t used_bytes(std::size_t samples) const noexcept {
    return in_.used_bytes(samples);
  }

  /// What transforms run on.
  [[nodiscard]] stream_ref stream() noexcept { return stream_; }
  /// Where the next batch is copied to.
  [[nodiscard]] std::byte* data() const noexcept { return places_[next_].memory.data(); }
  /// The device slot that was made of the last batch there; nothing before the first.
  [[nodiscard]] std::optional<std::size_t> reader() const noexcept { return places_[next_].reader; }
  /// For the end of a copy, if the batch brings no event of its own.
  [[nodiscard]] typename Device::event_type& arrived() noexcept { return arrived_; }

  /// Queues the transform of what is copied there, into `slab`.
  void enqueue(std::byte* slab, std::size_t samples) {
    [[maybe_unused]] const auto current = enter();
    transform_.enqueue(const_batch_view<In>{data(), in_, 0, samples},
                       batch_view<out_record>{slab, out_, 0, samples}, stream());
  }
  /// Device slot `slot` is made of that batch; the next one goes to the other place.
  void note_reader(std::size_t slot) noexcept {
    places_[next_].reader = slot;
    next_ = 1 - next_;
  }

 private:
  struct place {
    slab<Device> memory;
    std::optional<std::size_t> reader;
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
  batch_layout<In> in_;
  batch_layout<out_record> out_;
  std::array<place, 2> places_;
  std::size_t next_ = 0;
  typename Device::event_type arrived_;
  typename Device::stream_type stream_;  // goes first: it waits for its work
};

/// The device memory of a feed: the slots, with or without a stage before them.
template <class Transform, record_type In, device Device>
class feed_slots {
 public:
  using record_type = transformed_record_t<Transform, In>;

  feed_slots(const Device& where, const batch_layout<In>& layout, std::size_t depth,
             Transform transform)
      : stage_(where, layout, std::move(transform)), ring(where, stage_.out_layout(), depth) {}

  template <class HostBatch>
  void copy_in(std::size_t slot, HostBatch&& from) {
    ring.copy_in(slot, std::forward<HostBatch>(from), stage_);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return ring.bytes() + stage_.bytes(); }

 private:
  transform_stage<Transform, In, Device> stage_;

 public:
  device_slots<record_type, Device> ring;  // goes first: it waits for all that uses the stage
};

template <record_type In, device Device>
class feed_slots<no_transform, In, Device> {
 public:
  using record_type = In;

  feed_slots(const Device& where, const batch_layout<In>& layout, std::size_t depth, no_transform)
      : ring(where, layout, depth) {}

  template <class HostBatch>
  void copy_in(std::size_t slot, HostBatch&& from) {
    ring.copy_in(slot, std::forward<HostBatch>(from));
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return ring.bytes(); }

  device_slots<In, Device> ring;
};

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
