// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Transforms of a `transfer` by device functions. Requires nvcc.

#include <type_traits>
#include <utility>

#include <penstock/core/record.hpp>
#include <penstock/cuda/detail/transformed_record.cuh>
#include <penstock/cuda/support/field_transform.cuh>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A transform of a `transfer` that applies functions on the device, element by element, after the
/// copy of a batch. The transform overlaps with the next copy. Requires one function for each name,
/// in the same order. Other fields are copied in the same launch.
///
///     struct to_float { __device__ float operator()(std::uint8_t x) const { return x / 255.F; } };
///     ps::transfer feed{loader, stream, ps::on_device<"image">(to_float{}), {.depth = 3}};
///
/// The return type of a function becomes the value type of the field. In this example,
/// `field<"image", std::uint8_t, 28, 28>` is copied, and the consumer receives `field<"image",
/// float, 28, 28>`. Functions must be trivially copyable and are called through a const reference.
/// A `__device__` lambda (--extended-lambda) must declare its return type, such as `-> float`.
template <name... Names, class... Fs>
  requires(sizeof...(Names) > 0 && sizeof...(Names) == sizeof...(Fs))
// The result type is written out, because nvcc 13.0 passes an unknown name to the host compiler for
// a deduced type.
[[nodiscard]] detail::field_transform<detail::name_list<Names...>, Fs...> on_device(
    Fs... functions) {
  static_assert((std::is_trivially_copyable_v<Fs> && ...),
                "penstock::on_device: a function must be trivially copyable, because it is copied "
                "to the device as bytes");
  return detail::field_transform<detail::name_list<Names...>, Fs...>{std::move(functions)...};
}

/// The parameters of `normalised`.
struct normalisation {
  double mean = 0.0;       ///< mean of the values divided by `maximum`
  double deviation = 1.0;  ///< standard deviation of the values divided by `maximum`; not 0
  double maximum = 255.0;  ///< value that maps to 1
};

namespace detail {

/// Computes x * scale + shift with one rounding, so that the result has the same bits on device and
/// host.
struct scaled_and_shifted {
  /// The factor.
  float scale = 1.0F;
  /// The summand.
  float shift = 0.0F;

  /// Returns the scaled and shifted value.
  template <class T>
    requires std::is_arithmetic_v<T>
  [[nodiscard]] __host__ __device__ float operator()(T value) const {
    return fmaf(static_cast<float>(value), scale, shift);
  }
};

}  // namespace detail

/// Returns a function for `on_device` that maps x to the float (x / maximum - mean) / deviation, as
/// in `on_device<"image">(normalised({.mean = 0.1307, .deviation = 0.3081}))`.
[[nodiscard]] constexpr detail::scaled_and_shifted normalised(const normalisation& by) {
  return {static_cast<float>(1.0 / (by.maximum * by.deviation)),
          static_cast<float>(-by.mean / by.deviation)};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
