// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A little-endian number of so many bytes.
[[nodiscard]] inline std::uint64_t little_endian(std::span<const std::byte> bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8U | std::to_integer<std::uint64_t>(bytes[i]);
  }
  return value;
}

/// A little-endian number of `Size` bytes: a single load on a little-endian machine.
template <std::size_t Size>
  requires(Size <= sizeof(std::uint64_t))
[[nodiscard]] inline std::uint64_t little_endian(const std::byte* bytes) noexcept {
  if constexpr (std::endian::native == std::endian::little) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes, Size);
    return value;
  } else {
    return little_endian(std::span{bytes, Size});
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
