// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <penstock_ext/files/support/file_bytes.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The element types of the IDX format, by their codes in its header.
enum class idx_type : std::uint8_t {
  u8 = 0x08,
  i8 = 0x09,
  i16 = 0x0b,
  i32 = 0x0c,
  f32 = 0x0d,
  f64 = 0x0e
};

template <class T>
consteval idx_type idx_type_of() {
  if constexpr (std::same_as<T, std::uint8_t>) {
    return idx_type::u8;
  } else if constexpr (std::same_as<T, std::int8_t>) {
    return idx_type::i8;
  } else if constexpr (std::same_as<T, std::int16_t>) {
    return idx_type::i16;
  } else if constexpr (std::same_as<T, std::int32_t>) {
    return idx_type::i32;
  } else if constexpr (std::same_as<T, float>) {
    return idx_type::f32;
  } else {
    static_assert(std::same_as<T, double>,
                  "penstock: IDX holds uint8_t, int8_t, int16_t, int32_t, float or double");
    return idx_type::f64;
  }
}

inline std::string describe(idx_type type) {
  const std::string code = " (" + hex(static_cast<std::uint8_t>(type)) + ")";
  switch (type) {
    case idx_type::u8:
      return "uint8" + code;
    case idx_type::i8:
      return "int8" + code;
    case idx_type::i16:
      return "int16" + code;
    case idx_type::i32:
      return "int32" + code;
    case idx_type::f32:
      return "float" + code;
    case idx_type::f64:
      return "double" + code;
  }
  return "an unknown type" + code;
}

constexpr std::size_t size_of(idx_type type) noexcept {
  switch (type) {
    case idx_type::i16:
      return 2;
    case idx_type::i32:
    case idx_type::f32:
      return 4;
    case idx_type::f64:
      return 8;
    default:
      return 1;
  }
}

// IDX is big-endian.
template <std::size_t Size>
void from_big_endian(std::span<std::byte> bytes) noexcept {
  if constexpr (Size > 1 && std::endian::native == std::endian::little) {
    for (std::size_t i = 0; i < bytes.size(); i += Size) {
      for (std::size_t j = 0; j < Size / 2; ++j) std::swap(bytes[i + j], bytes[i + Size - 1 - j]);
    }
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
