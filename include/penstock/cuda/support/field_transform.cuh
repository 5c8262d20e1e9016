// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <tuple>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/cuda/cuda_device.hpp>
#include <penstock/cuda/cuda_stream.hpp>
#include <penstock/cuda/detail/transform_kernel.cuh>
#include <penstock/cuda/detail/transformed_record.cuh>
#include <penstock/cuda/support/task_launch.cuh>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A function for a task that copies values.
struct same_value {
  template <class T>
  [[nodiscard]] __device__ T operator()(const T& value) const {
    return value;
  }
};

/// The transform returned by `on_device`, which accepts any record with the fields named `Names`.
template <class Names, class... Fs>
class field_transform {
  using functions = std::tuple<Fs...>;

 public:
  /// The result record for batches of `In`.
  template <record_type In>
  using record_for = typename transformed_record<In, Names, functions>::type;

  /// Stores a function for each field in `Names`.
  explicit field_transform(Fs... made) : functions_(std::move(made)...) {}

  /// Returns the extents, which are unchanged.
  template <record_type In>
  [[nodiscard]] record_extents<record_for<In>> extents(const record_extents<In>& lengths) const {
    return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      return record_extents<record_for<In>>{lengths.template at<Is>()...};
    }(std::make_index_sequence<In::size>{});
  }

  /// Loads the kernels immediately, because loading at the first launch would wait for the device.
  template <record_type In>
  void prepare(const cuda_device& device, const batch_layout<In>&) const {
    using list = decltype(tasks<In>(std::declval<const const_batch_view<In>&>(),
                                    std::declval<const batch_view<record_for<In>>&>(),
                                    std::make_index_sequence<In::size>{}));
    load_tasks<list>(device);
  }

  /// Queues one launch for all fields on the current device. Throws `cuda_error` or a derived type.
  template <record_type In>
  void enqueue(const_batch_view<In> in, batch_view<record_for<In>> out,
               cuda_stream_ref stream) const {
    auto all = tasks<In>(in, out, std::make_index_sequence<In::size>{});
    launch_tasks(all, stream);
  }

 private:
  template <record_type In, std::size_t Index>
  [[nodiscard]] auto task(const const_batch_view<In>& in,
                          const batch_view<record_for<In>>& out) const {
    using in_field = typename In::template field_at<Index>;
    constexpr std::size_t place = Names::index_of(in_field::key);
    const auto from = in.template at<Index>();
    const auto to = out.template at<Index>();
    if constexpr (place == Names::size) {
      return field_task<std::byte, std::byte, same_value>{
          reinterpret_cast<const std::byte*>(from.data()),
          reinterpret_cast<std::byte*>(to.data()),
          from.size() * sizeof(typename in_field::value_type),
          {}};
    } else {
      using in_type = typename in_field::value_type;
      using out_type = typename record_for<In>::template field_at<Index>::value_type;
      return field_task<in_type, out_type, std::tuple_element_t<place, functions>>{
          from.data(), to.data(), from.size(), std::get<place>(functions_)};
    }
  }

  template <record_type In, std::size_t... Is>
  [[nodiscard]] auto tasks(const const_batch_view<In>& in, const batch_view<record_for<In>>& out,
                           std::index_sequence<Is...>) const {
    return listed_tasks<Is...>(task<In, Is>(in, out)...);
  }

  functions functions_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
