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

/// Division by a number that is known before the launch. Granlund and Montgomery, 1994: the product
/// with the reciprocal is the quotient, or one less.
struct known_divisor {
  explicit known_divisor(std::size_t by)
      : divisor(by), reciprocal(by <= 0xffffffffU ? static_cast<unsigned>(0xffffffffU / by) : 0U) {}

  [[nodiscard]] __host__ __device__ std::size_t quotient(std::size_t of) const {
    if (of > 0xffffffffU || divisor > 0xffffffffU) return of / divisor;
    const auto part = static_cast<std::size_t>((std::uint64_t{of} * reciprocal) >> 32U);
    return of - part * divisor < divisor ? part : part + 1;
  }

  std::size_t divisor;
  unsigned reciprocal;
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
