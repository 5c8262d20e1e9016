// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

/// CUDA kernels that widen narrow fields to floats. Require nvcc.

#include <array>
#include <concepts>
#include <cstddef>

#include <penstock_ext/narrow/affine_scale.hpp>

#include <penstock/core/batch.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>
#include <penstock/cuda/cuda_device.hpp>
#include <penstock/cuda/cuda_stream.hpp>
#include <penstock/cuda/support/field_transform.cuh>
#include <penstock/cuda/support/task_launch.cuh>
#include <penstock_ext/narrow/detail/narrow_record.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns the upper half of the product.
[[nodiscard]] __host__ __device__ inline std::uint64_t upper_product(std::uint64_t a,
                                                                     std::uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  __extension__ using wide = unsigned __int128;
  return static_cast<std::uint64_t>((wide{a} * b) >> 64U);
#endif
}

/// Division by a divisor known before the launch (Granlund and Montgomery, 1994). Multiplying by
/// the reciprocal yields the quotient or the quotient minus 1. If all operands fit into 32 bits,
/// uses 32-bit arithmetic and the upper half of the reciprocal. A 64-bit division would be a
/// function call that spills registers.
struct known_divisor {
  explicit known_divisor(std::size_t by) : divisor(by), reciprocal(~std::uint64_t{0} / by) {}

  [[nodiscard]] __host__ __device__ std::size_t quotient(std::size_t of) const {
    const bool is_short = of <= 0xffffffffU && divisor <= 0xffffffffU;
    const auto part =
        static_cast<std::size_t>(is_short ? (std::uint64_t{of} * (reciprocal >> 32U)) >> 32U
                                          : upper_product(of, reciprocal));
    return of - part * divisor < divisor ? part : part + 1;
  }

  std::size_t divisor;
  std::uint64_t reciprocal;
};

/// A task function that converts bytes to floats with the scale of their sample.
struct sample_scale {
  using takes_place = void;

  const float* scales;
  const float* zeros;
  known_divisor elements;  // number of elements in a sample

  [[nodiscard]] __device__ float operator()(std::int8_t byte, std::size_t at) const {
    const std::size_t sample = elements.quotient(at);
    return affine_scale{scales[sample], zeros[sample]}(byte);
  }
};

/// The transform returned by `widen_on_device`: a `device_transform` for the CUDA device.
template <std::size_t Fixed, name... Names>
class cuda_widening {
  template <record_type In>
  using batches = widened_batch<In, Names...>;
  template <record_type In>
  using places = std::make_index_sequence<batches<In>::type::size>;

 public:
  /// The resulting record for batches of `In`.
  template <record_type In>
  using record_for = typename batches<In>::type;

  /// Stores the fixed scales.
  explicit cuda_widening(const std::array<affine_scale, Fixed>& fixed) : fixed_(fixed) {}

  /// Returns the extents unchanged.
  template <record_type In>
  [[nodiscard]] record_extents<record_for<In>> extents(const record_extents<In>& lengths) const {
    return batches<In>::extents(lengths);
  }

  /// Loads the kernels in advance, because loading at the first launch would synchronize the
  /// device.
  template <record_type In>
  void prepare(const cuda_device& device, const batch_layout<In>&) const {
    using list =
        decltype(tasks<In>(std::declval<const const_batch_view<In>&>(),
                           std::declval<const batch_view<record_for<In>>&>(), places<In>{}));
    load_tasks<list>(device);
  }

  /// Enqueues a single launch on the thread's current device. Throws `cuda_error` or a derived
  /// type.
  template <record_type In>
  void enqueue(const_batch_view<In> in, batch_view<record_for<In>> out,
               cuda_stream_ref stream) const {
    static_assert(batches<In>::fixed == Fixed,
                  "penstock::widen_on_device: pass one scale for each field of std::int8_t that "
                  "has no scale in the batch: widen_on_device<\"x\">(affine_scale)");
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
      return field_task<in_type, float, same_value>{from.data(), to.data(), from.size(), {}};
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

/// Returns the CUDA counterpart of `widen`: a `transfer` transform that restores the floats of
/// `narrowed` fields after the copy, as in `transfer feed{loader, stream, widen_on_device<"x">()}`.
/// A single launch widens these fields and copies the others, and overlaps the next copy. The
/// results are bit-identical to `widen`.
template <name... Names, std::same_as<affine_scale>... Scales>
  requires(sizeof...(Names) > 0)
[[nodiscard]] detail::cuda_widening<sizeof...(Scales), Names...> widen_on_device(
    const Scales&... fixed) {
  return detail::cuda_widening<sizeof...(Scales), Names...>{
      std::array<affine_scale, sizeof...(Scales)>{fixed...}};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
