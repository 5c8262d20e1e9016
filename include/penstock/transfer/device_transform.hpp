// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/device/device.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The transform type of a `transfer` without a transform. The consumer receives batches as they
/// were copied.
struct no_transform {};

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

template <class In>
struct output_record<no_transform, In> {
  using type = In;
};

/// The result record of a transform that is applied to batches of `In`.
template <class T, record_type In>
using transformed_record_t = typename output_record<T, In>::type;

}  // namespace detail

/// A transform that a `transfer` runs on the device after the copy of a batch. The transform
/// converts the copied record to the record that the consumer receives. For example, if it converts
/// bytes to floats, only a quarter of the data is transferred over the bus. `on_stream` and
/// `on_device` (CUDA) create transforms.
///
/// Transforms run on their own stream, and batches are copied to two staging buffers alternately,
/// so that the next batch is copied while one batch is transformed. The time per batch is the
/// longer of copy and transform instead of their sum, unless the transform itself uses the bus.
///
///     using record_type = ...;    // the result record, or, if it depends on the input,
///     template <class In> using record_for = ...;
///     record_extents<Out> extents(const record_extents<In>&) const;  // optional if all are fixed
///     void prepare(const Device&, const batch_layout<In>&);  // optional; called once
///     void enqueue(const_batch_view<In> in, batch_view<Out> out, Device::stream_ref stream);
///
/// `enqueue` queues work on `stream` that reads `in` and writes all elements of `out`, and returns
/// without waiting. Both batches are in device memory and have the same size. The last batch of an
/// epoch may be shorter, and padding samples are transformed too. `enqueue` is called on the
/// consumer thread, one call at a time, with the device of the feed current. An exception counts as
/// a transfer failure of the batch. The transform, the views and their memory remain valid until
/// the work has ended. Work on other streams must be forked from `stream` and joined to it. Pass
/// field views such as `get<"image">(in)` to a kernel, because batch views refer to host memory.
template <class T, class In, class Device>
concept device_transform =
    std::move_constructible<T> && record_type<In> &&
    requires { typename detail::transformed_record_t<T, In>; } &&
    requires(T& transform, const_batch_view<In> in,
             batch_view<detail::transformed_record_t<T, In>> out,
             typename Device::stream_ref stream) { transform.enqueue(in, out, stream); };

namespace detail {

/// Returns the extents of the result of `transform` for batches with the extents `lengths`.
template <record_type In, class T>
[[nodiscard]] constexpr record_extents<transformed_record_t<T, In>> transformed_extents(
    const T& transform, const record_extents<In>& lengths) {
  using out = transformed_record_t<T, In>;
  static_assert(out::ragged_fields == 0,
                "penstock::transfer: a transform cannot produce ragged fields, because the host "
                "does not know the positions of their samples; a transform may read ragged fields");
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

/// The transform created by `on_stream`.
template <record_type Out, class F>
class stream_transform {
 public:
  using record_type = Out;

  /// Creates a transform whose `function` queues the work for a batch. `lengths` are the extents of
  /// one sample.
  stream_transform(F function, const record_extents<Out>& lengths)
      : function_(std::move(function)), lengths_(lengths) {}

  /// Returns the extents of the result.
  template <class In>
  [[nodiscard]] const record_extents<Out>& extents(const record_extents<In>&) const noexcept {
    return lengths_;
  }

  /// Calls the function, which queues its work on `stream`.
  template <class In, class StreamRef>
    requires std::invocable<F&, const_batch_view<In>, batch_view<Out>, StreamRef>
  void enqueue(const_batch_view<In> in, batch_view<Out> out, StreamRef stream) {
    function_(in, out, stream);
  }

 private:
  F function_;
  record_extents<Out> lengths_;
};

}  // namespace detail

/// Creates a transform from a function that queues work on a stream: `on_stream<Out>(f)` with
/// `f(const_batch_view<In> in, batch_view<Out> out, stream_ref stream)`. `f` must meet the
/// requirements of `enqueue` in `device_transform`. `lengths` are the extents of one sample of the
/// result.
template <record_type Out, class F>
[[nodiscard]] auto on_stream(F&& function, const record_extents<Out>& lengths) {
  return detail::stream_transform<Out, std::decay_t<F>>{std::forward<F>(function), lengths};
}

/// Creates a transform for a record without dynamic extents.
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

}  // namespace PENSTOCK_ABI
}  // namespace penstock
