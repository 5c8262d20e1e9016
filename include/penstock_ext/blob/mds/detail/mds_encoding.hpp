// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

#include <penstock_ext/files/support/little_endian.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What an encoding of an MDS column says of its bytes.
struct mds_encoding {
  enum class kind : std::uint8_t {
    bytes,    ///< taken as they are: bytes, str, pictures, JSON, arrays
    integer,  ///< a number of `size` bytes, little-endian
    digits,   ///< a whole number as text
    real,     ///< a floating-point number of `size` bytes
    pickle,   ///< Python's, which may run any code when it is read
    unknown   ///< bytes that mean something to their reader
  };
  kind is = kind::unknown;
  bool is_signed = false;
  std::uint64_t size = 0;  ///< bytes of each value; 0 where they differ
};

/// The bytes of an element of numpy's type `name`; 0 for one that MDS does not have.
[[nodiscard]] inline std::uint64_t mds_number_bytes(std::string_view name) noexcept {
  for (const std::string_view stem : {"uint", "int", "float"}) {
    if (!name.starts_with(stem)) continue;
    const std::string_view bits = name.substr(stem.size());
    if (bits == "8" && stem != "float") return 1;
    return bits == "16" ? 2 : bits == "32" ? 4 : bits == "64" ? 8 : 0;
  }
  return 0;
}

/// The bytes of an array of this element and shape, "type:3,224,224"; 0 where they differ from
/// sample to sample, nothing for what is no such text or has more than 2^32 bytes.
[[nodiscard]] inline std::optional<std::uint64_t> mds_array_bytes(std::string_view text) noexcept {
  const std::size_t colon = text.find(':');
  std::uint64_t bytes = mds_number_bytes(text.substr(0, colon));
  if (bytes == 0) return std::nullopt;
  if (colon == text.npos) return 0;
  const char* at = text.data() + colon + 1;
  const char* const end = text.data() + text.size();
  while (true) {
    std::uint64_t extent = 0;
    const auto [next, problem] = std::from_chars(at, end, extent);
    constexpr std::uint64_t most = std::uint64_t{1} << 32U;
    if (problem != std::errc{} || extent == 0 || extent > most / bytes) return std::nullopt;
    bytes *= extent;
    if (next == end) return bytes;
    if (*next != ',') return std::nullopt;
    at = next + 1;
  }
}

/// The encoding of this name.
[[nodiscard]] inline mds_encoding mds_encoding_of(std::string_view name) noexcept {
  using kind = mds_encoding::kind;
  constexpr std::array<std::string_view, 8> as_they_are{
      "bytes", "str", "jpeg", "png", "pil", "str_float", "str_decimal", "json"};
  if (std::find(as_they_are.begin(), as_they_are.end(), name) != as_they_are.end() ||
      name.starts_with("jpeg:") || name == "ndarray") {
    return {kind::bytes, false, 0};
  }
  if (name == "int") return {kind::integer, true, 8};
  if (name == "str_int") return {kind::digits, true, 0};
  if (name == "pkl") return {kind::pickle, false, 0};
  if (const std::uint64_t bytes = mds_number_bytes(name); bytes != 0) {
    return {name.starts_with("float") ? kind::real : kind::integer, name.starts_with("int"), bytes};
  }
  if (name.starts_with("ndarray:")) {
    const auto bytes = mds_array_bytes(name.substr(8));
    if (bytes) return {kind::bytes, false, *bytes};
  }
  return {};
}

/// The whole number that `bytes` are in an encoding; nothing for what is none of 64 bits.
[[nodiscard]] inline std::optional<std::int64_t> mds_number(
    const mds_encoding& encoding, std::span<const std::byte> bytes) noexcept {
  if (encoding.is == mds_encoding::kind::digits) {
    std::int64_t value = 0;
    const char* const begin = reinterpret_cast<const char*>(bytes.data());
    const auto [end, problem] = std::from_chars(begin, begin + bytes.size(), value);
    if (problem != std::errc{} || end != begin + bytes.size()) return std::nullopt;
    return value;
  }
  if (encoding.is != mds_encoding::kind::integer || bytes.size() != encoding.size) {
    return std::nullopt;
  }
  const std::uint64_t value = little_endian(bytes);
  const std::uint64_t sign = std::uint64_t{1} << (8 * encoding.size - 1);
  if (encoding.is_signed) return std::bit_cast<std::int64_t>((value ^ sign) - sign);
  if (encoding.size == 8 && value >= sign) return std::nullopt;
  return std::bit_cast<std::int64_t>(value);
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
