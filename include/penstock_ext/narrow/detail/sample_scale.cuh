// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <penstock/core/version.hpp>
#include <penstock_ext/narrow/affine_scale.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The upper half of a product.
[[nodiscard]] __host__ __device__ inline std::uint64_t upper_product(std::uint64_t a,
                                                                     std::uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  __extension__ using wide = unsigned __int128;
  return static_cast<std::uint64_t>((wide{a} * b) >> 64U);
#endif
}

/// Division by a number that is known before the launch. Granlund and Montgomery, 1994: the product
/// with the reciprocal is the quotient, or one less; in 32 bits, with the reciprocal's upper half,
/// where all numbers have no more. A division of 64 bits would be a call, and its registers spilled.
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

/// For a task: bytes to floats, by the scale of the sample that an element belongs to.
struct sample_scale {
  using takes_place = void;

  const float* scales;
  const float* zeros;
  known_divisor elements;  // of a sample

  [[nodiscard]] __device__ float operator()(std::int8_t byte, std::size_t at) const {
    const std::size_t sample = elements.quotient(at);
    return affine_scale{scales[sample], zeros[sample]}(byte);
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
