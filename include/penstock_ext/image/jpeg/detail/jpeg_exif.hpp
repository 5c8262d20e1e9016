// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The orientation that an EXIF block says (its TIFF header is the first byte), from 1 to 8; 1
/// where it says none, or something else. Reads inside `tiff` only, whatever it holds.
[[nodiscard]] inline int tiff_orientation(std::span<const std::byte> tiff) noexcept {
  if (tiff.size() < 8) return 1;
  const auto byte = [tiff](std::size_t at) { return std::to_integer<std::uint32_t>(tiff[at]); };
  const bool little = byte(0) == 'I';
  const auto u16 = [&](std::size_t at) {
    return little ? byte(at) | byte(at + 1) << 8 : byte(at) << 8 | byte(at + 1);
  };
  const auto u32 = [&](std::size_t at) {
    return little ? u16(at) | u16(at + 2) << 16 : u16(at) << 16 | u16(at + 2);
  };
  if (byte(0) != byte(1) || (!little && byte(0) != 'M') || u16(2) != 42) return 1;
  std::size_t at = u32(4);
  if (at > tiff.size() - 2) return 1;
  const std::size_t entries = u16(at);
  at += 2;
  // An entry: tag, type, how many, and the value itself where it is short.
  for (std::size_t i = 0; i < entries && tiff.size() - at >= 12; ++i, at += 12) {
    if (u16(at) != 0x0112) continue;
    const std::uint32_t value = u16(at + 8);
    const bool is_one_short = u16(at + 2) == 3 && u32(at + 4) == 1;
    return is_one_short && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

/// The orientation that the first EXIF block in a JPEG file's header says, from 1 to 8; 1 where
/// there is none. Looks at the markers before the first scan.
[[nodiscard]] inline int jpeg_orientation(std::span<const std::byte> bytes) noexcept {
  const auto byte = [bytes](std::size_t at) { return std::to_integer<unsigned>(bytes[at]); };
  std::size_t at = 2;
  while (at + 4 <= bytes.size()) {
    if (byte(at) != 0xff) return 1;
    const unsigned marker = byte(at + 1);
    if (marker == 0xff) {  // filled up
      ++at;
      continue;
    }
    if (marker == 0xda || marker == 0xd9) return 1;
    if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd7)) {  // stands alone
      at += 2;
      continue;
    }
    const std::size_t length = byte(at + 2) << 8 | byte(at + 3);
    if (length < 2 || length > bytes.size() - at - 2) return 1;
    static constexpr char name[] = {'E', 'x', 'i', 'f', 0, 0};
    if (marker == 0xe1 && length >= 2 + sizeof name &&
        std::memcmp(bytes.data() + at + 4, name, sizeof name) == 0) {
      return tiff_orientation(bytes.subspan(at + 4 + sizeof name, length - 2 - sizeof name));
    }
    at += 2 + length;
  }
  return 1;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
