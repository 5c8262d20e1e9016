// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "support/error_of.hpp"
#include "support/temp_dir.hpp"

// The codes of the element types in the IDX format.
inline constexpr std::uint8_t u8 = 0x08;
inline constexpr std::uint8_t i8 = 0x09;
inline constexpr std::uint8_t i16 = 0x0b;
inline constexpr std::uint8_t i32 = 0x0c;
inline constexpr std::uint8_t f32 = 0x0d;
inline constexpr std::uint8_t f64 = 0x0e;

/// Returns the bytes 0, 1, 2, and so on.
inline test::file_bytes counted(std::size_t size) {
  test::file_bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(i);
  return bytes;
}

using test::error_of;
