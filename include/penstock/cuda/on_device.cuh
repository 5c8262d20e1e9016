// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Transforms of a `transfer` that are made of device functions. Needs nvcc.

#include <type_traits>
#include <utility>

#include <penstock/core/name.hpp>
#include <penstock/cuda/detail/made_record.cuh>
#include <penstock/cuda/support/field_transform.cuh>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A transform of a `transfer` that runs functions on the device, element by element, after the
/// copy and under the next one: one function for each field named, in that order. The other fields
/// are copied in the same launch.
///
///     struct to_float { __device__ float operator()(std::uint8_t x) const { return x / 255.0F; } };
///     ps::transfer feed{loader, stream, ps::on_device<"image">(to_float{}), {.depth = 3}};
///
/// A field has the type that its function returns: here `field<"image", std::uint8_t, 28, 28>`
/// travels and `field<"image", float, 28, 28>` arrives. A function is trivially copyable and called
/// as const; a `__device__` lambda (--extended-lambda) has to name its result by `-> float`.
template <name... Names, class... Fs>
  requires(sizeof...(Names) > 0 && sizeof...(Names) == sizeof...(Fs))
// No deduced result: nvcc 13.0 would hand a name in it to the host's compiler as one it does not
// know.
[[nodiscard]] detail::field_transform<detail::name_list<Names...>, Fs...> on_device(
    Fs... functions) {
  static_assert(
      (std::is_trivially_copyable_v<Fs> && ...),
      "penstock::on_device: a function must be trivially copyable: it travels to the device "
      "as bytes");
  return detail::field_transform<detail::name_list<Names...>, Fs...>{std::move(functions)...};
}

/// What values are measured by, see `normalised`.
struct normalisation {
  double mean = 0.0;       ///< of the values divided by `maximum`
  double deviation = 1.0;  ///< likewise; not 0
  double maximum = 255.0;  ///< what counts as 1
};

namespace detail {

/// x * scale + shift, rounded once: the same bits on device and host.
struct scaled_and_shifted {
  /// What a value is multiplied by.
  float scale = 1.0F;
  /// What is added then.
  float shift = 0.0F;

  /// The value, scaled and shifted.
  template <class T>
    requires std::is_arithmetic_v<T>
  [[nodiscard]] __host__ __device__ float operator()(T value) const {
    return fmaf(static_cast<float>(value), scale, shift);
  }
};

}  // namespace detail

/// A function for `on_device` that makes (x / maximum - mean) / deviation of a number, as a float:
/// `on_device<"image">(normalised({.mean = 0.1307, .deviation = 0.3081}))`.
[[nodiscard]] constexpr detail::scaled_and_shifted normalised(const normalisation& by) {
  return {static_cast<float>(1.0 / (by.maximum * by.deviation)),
          static_cast<float>(-by.mean / by.deviation)};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
