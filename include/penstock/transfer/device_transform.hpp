// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/device/device.hpp>

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

/// The record that a transform makes of batches of record `In`.
template <class T, record_type In>
using transformed_record_t = typename output_record<T, In>::type;

}  // namespace detail

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
concept device_transform =
    std::move_constructible<T> && record_type<In> &&
    requires { typename detail::transformed_record_t<T, In>; } &&
    requires(T& transform, const_batch_view<In> in,
             batch_view<detail::transformed_record_t<T, In>> out,
             typename Device::stream_ref stream) { transform.enqueue(in, out, stream); };

/// Batches reach the consumer as they have travelled: what a `transfer` has without a transform.
struct no_transform {};

namespace detail {

/// The extents of the batches that `transform` makes of batches with the extents `lengths`.
template <record_type In, class T>
[[nodiscard]] constexpr record_extents<transformed_record_t<T, In>> transformed_extents(
    const T& transform, const record_extents<In>& lengths) {
  using out = transformed_record_t<T, In>;
  static_assert(out::ragged_fields == 0,
                "penstock::transfer: a transform does not make ragged fields: where its samples "
                "would lie is not known on the host; it may read them");
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

/// What `on_stream` returns.
template <record_type Out, class F>
class stream_transform {
 public:
  using record_type = Out;

  /// `function` queues the work that makes a batch; `lengths` are the extents of one sample.
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

}  // namespace detail

/// A transform out of a function that puts the work on the stream: `on_stream<Out>(f)` with
/// `f(const_batch_view<In> in, batch_view<Out> out, stream_ref stream)`; see `device_transform` for
/// what it may do. `lengths` are the extents of one sample that comes out.
template <record_type Out, class F>
[[nodiscard]] auto on_stream(F&& function, const record_extents<Out>& lengths) {
  return detail::stream_transform<Out, std::decay_t<F>>{std::forward<F>(function), lengths};
}

/// `on_stream` for a record without dynamic extents.
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
