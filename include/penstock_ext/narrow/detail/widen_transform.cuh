// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/cuda/cuda_device.hpp>
#include <penstock/cuda/cuda_stream.hpp>
#include <penstock/cuda/support/field_transform.cuh>
#include <penstock/cuda/support/task_launch.cuh>
#include <penstock_ext/narrow/affine_scale.hpp>
#include <penstock_ext/narrow/detail/sample_scale.cuh>
#include <penstock_ext/narrow/detail/widened_record.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// For a task: a number of 16 bits as a float.
struct float_of {
  template <class T>
  [[nodiscard]] __device__ float operator()(const T& value) const {
    return value;
  }
};

/// What `widen_on_device` makes: a `device_transform` of the CUDA device.
template <std::size_t Fixed, name... Names>
class cuda_widening {
  template <record_type In>
  using batches = widened_batch<In, Names...>;
  template <record_type In>
  using places = std::make_index_sequence<batches<In>::type::size>;

 public:
  /// The record of what comes out, when `In` comes in.
  template <record_type In>
  using record_for = typename batches<In>::type;

  /// `fixed` are the scales that do not travel.
  explicit cuda_widening(const std::array<affine_scale, Fixed>& fixed) : fixed_(fixed) {}

  /// As they are: an element becomes an element.
  template <record_type In>
  [[nodiscard]] record_extents<record_for<In>> extents(const record_extents<In>& lengths) const {
    return batches<In>::extents(lengths);
  }

  /// Loads the kernels, which would make the first batch wait for the device.
  template <record_type In>
  void prepare(const cuda_device& device, const batch_layout<In>&) const {
    using list =
        decltype(tasks<In>(std::declval<const const_batch_view<In>&>(),
                           std::declval<const batch_view<record_for<In>>&>(), places<In>{}));
    load_tasks<list>(device);
  }

  /// One launch on the thread's current device. Throws what `cuda_error` and its children say.
  template <record_type In>
  void enqueue(const_batch_view<In> in, batch_view<record_for<In>> out,
               cuda_stream_ref stream) const {
    static_assert(batches<In>::fixed == Fixed,
                  "penstock::widen_on_device: one scale for each field of std::int8_t that has "
                  "none in the batch: widen_on_device<\"x\">(affine_scale)");
    if (in.size() == 0) return;
    auto all = tasks<In>(in, out, places<In>{});
    launch_tasks(all, stream);
  }

 private:
  template <record_type In, std::size_t Index>
  [[nodiscard]] auto task(const const_batch_view<In>& in,
                          const batch_view<record_for<In>>& out) const {
    using made = batches<In>;
    constexpr std::size_t place = made::template place<Index>;
    constexpr widening way = made::template way<Index>;
    using in_type = typename In::template field_at<place>::value_type;
    const auto from = in.template at<place>();
    const auto to = out.template at<Index>();
    if constexpr (way == widening::none) {
      return field_task<std::byte, std::byte, same_value>{
          reinterpret_cast<const std::byte*>(from.data()),
          reinterpret_cast<std::byte*>(to.data()),
          from.size() * sizeof(in_type),
          {}};
    } else if constexpr (way == widening::values) {
      return field_task<in_type, float, float_of>{from.data(), to.data(), from.size(), {}};
    } else if constexpr (way == widening::by_field) {
      return field_task<in_type, float, affine_scale>{from.data(), to.data(), from.size(),
                                                      fixed_[made::template fixed_place<Index>()]};
    } else {
      constexpr name key = In::template field_at<place>::key;
      return field_task<in_type, float, sample_scale>{
          from.data(),
          to.data(),
          from.size(),
          {in.template get<scale_of(key)>().data(), in.template get<zero_of(key)>().data(),
           known_divisor{from.size() / in.size()}}};
    }
  }

  template <record_type In, std::size_t... Is>
  [[nodiscard]] auto tasks(const const_batch_view<In>& in, const batch_view<record_for<In>>& out,
                           std::index_sequence<Is...>) const {
    return listed_tasks<Is...>(task<In, Is>(in, out)...);
  }

  std::array<affine_scale, Fixed> fixed_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
