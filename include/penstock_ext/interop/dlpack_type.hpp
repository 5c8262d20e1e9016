// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

#include <penstock_ext/interop/dlpack_abi.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace dlpack {

/// What DLPack calls an element of type T: bool, integers, float, double and `std::byte` here.
/// A program specialises it for others:
///
///     template <>
///     struct ps::dlpack::type_of<__half> {
///       static constexpr data_type value{type_code::floating, 16, 1};
///     };
template <class T>
struct type_of {};

/// `std::int8_t` to `std::uint64_t`, and other integers of the same sizes.
template <std::integral T>
struct type_of<T> {
  /// The word for it.
  static constexpr data_type value{
      std::signed_integral<T> ? type_code::signed_integer : type_code::unsigned_integer,
      8 * sizeof(T), 1};
};
/// A byte of 0 or 1.
template <>
struct type_of<bool> {
  /// The word for it.
  static constexpr data_type value{type_code::boolean, 8, 1};
};
/// float.
template <>
struct type_of<float> {
  /// The word for it.
  static constexpr data_type value{type_code::floating, 32, 1};
};
/// double.
template <>
struct type_of<double> {
  /// The word for it.
  static constexpr data_type value{type_code::floating, 64, 1};
};
/// An unsigned number of 8 bits.
template <>
struct type_of<std::byte> {
  /// The word for it.
  static constexpr data_type value{type_code::unsigned_integer, 8, 1};
};

/// A type that DLPack has a word for, see `type_of`.
template <class T>
concept element = requires {
  { type_of<T>::value } -> std::convertible_to<data_type>;
  requires std::size_t { type_of<T>::value.bits }
  *type_of<T>::value.lanes == 8 * sizeof(T);
};

/// As array libraries write it: "float32", "uint8", "bool", "bfloat16", "int32 x 4 lanes"; a code
/// that is not known here as "code 9 of 8 bits".
[[nodiscard]] inline std::string to_string(const data_type& type) {
  const std::string bits = std::to_string(type.bits);
  const std::string lanes =
      type.lanes == 1 ? std::string{} : " x " + std::to_string(type.lanes) + " lanes";
  switch (type.code) {
    case type_code::signed_integer:
      return "int" + bits + lanes;
    case type_code::unsigned_integer:
      return "uint" + bits + lanes;
    case type_code::floating:
      return "float" + bits + lanes;
    case type_code::bfloat:
      return "bfloat" + bits + lanes;
    case type_code::boolean:
      return (type.bits == 8 ? "bool" : "bool of " + bits + " bits") + lanes;
  }
  return "code " + std::to_string(static_cast<int>(type.code)) + " of " + bits + " bits" + lanes;
}

/// "host memory", "CUDA device 1", "page-locked memory (CUDA)"; "device kind 15, device 0" for one
/// that is not known here.
[[nodiscard]] inline std::string to_string(const place& where) {
  const std::string index = std::to_string(where.index);
  switch (where.kind) {
    case device_kind::cpu:
      return "host memory";
    case device_kind::cuda:
      return "CUDA device " + index;
    case device_kind::cuda_host:
      return "page-locked memory (CUDA)";
    case device_kind::rocm:
      return "ROCm device " + index;
    case device_kind::rocm_host:
      return "page-locked memory (ROCm)";
    case device_kind::cuda_managed:
      return "managed memory (CUDA)";
  }
  return "device kind " + std::to_string(static_cast<int>(where.kind)) + ", device " + index;
}

}  // namespace dlpack
}  // namespace PENSTOCK_ABI
}  // namespace penstock
