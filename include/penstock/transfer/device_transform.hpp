// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/device/device.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The type of the transform of a `transfer` without a transform. The consumer gets batches as they
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

/// The record of the batches that a transform makes from batches of record `In`.
template <class T, record_type In>
using transformed_record_t = typename output_record<T, In>::type;

}  // namespace detail

/// Work that a `transfer` does on the device after the copy of a batch. The transform converts the
/// record that is copied into the record that the consumer gets. If it converts bytes to floats,
/// for example, only a quarter of the data crosses the bus. `on_stream` and `on_device` (CUDA) make
/// such transforms.
///
/// Transforms run on their own stream, and batches are copied to two staging buffers alternately:
/// while one batch is transformed, the next batch is copied. So the time per batch is the longer of
/// copy and transform, and not their sum, unless the transform itself uses the bus.
///
///     using record_type = ...;    // of the batches it makes; or, if that depends on the input,
///     template <class In> using record_for = ...;
///     record_extents<Out> extents(const record_extents<In>&) const;  // optional if all are fixed
///     void prepare(const Device&, const batch_layout<In>&);  // optional: once, at construction
///     void enqueue(const_batch_view<In> in, batch_view<Out> out, Device::stream_ref stream);
///
/// `enqueue` queues work on `stream` that reads `in` and writes all elements of `out`, and returns
/// without waiting. Both batches are in device memory and have the same size. The last batch of an
/// epoch may be shorter, and padding samples are transformed too. `enqueue` is called on the
/// consumer's thread, one call at a time, with the feed's device current on the thread. An
/// exception counts as a failure of that batch's transfer. The transform, the views and their
/// memory live until the work has ended. Work on other streams must be forked from `stream` and
/// joined to it. Pass the views of fields, `get<"image">(in)`, to a kernel, because the views of
/// batches refer to host memory.
template <class T, class In, class Device>
concept device_transform =
    std::move_constructible<T> && record_type<In> &&
    requires { typename detail::transformed_record_t<T, In>; } &&
    requires(T& transform, const_batch_view<In> in,
             batch_view<detail::transformed_record_t<T, In>> out,
             typename Device::stream_ref stream) { transform.enqueue(in, out, stream); };

namespace detail {

/// Returns the extents of the batches that `transform` makes from batches with the extents
/// `lengths`.
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

/// The transform that `on_stream` returns.
template <record_type Out, class F>
class stream_transform {
 public:
  using record_type = Out;

  /// Makes a transform whose `function` queues the work for a batch. `lengths` are the extents of
  /// one sample.
  stream_transform(F function, const record_extents<Out>& lengths)
      : function_(std::move(function)), lengths_(lengths) {}

  /// Returns the extents of the batches that the function makes.
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

/// Makes a transform from a function that queues work on a stream: `on_stream<Out>(f)` with
/// `f(const_batch_view<In> in, batch_view<Out> out, stream_ref stream)`. `f` must do what
/// `device_transform` requires of `enqueue`. `lengths` are the extents of one sample of the result.
template <record_type Out, class F>
[[nodiscard]] auto on_stream(F&& function, const record_extents<Out>& lengths) {
  return detail::stream_transform<Out, std::decay_t<F>>{std::forward<F>(function), lengths};
}

/// Makes a transform for a record without dynamic extents.
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
