// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Whether `bytes` have `text` at byte `at`.
[[nodiscard]] inline bool has_text(std::span<const std::byte> bytes, std::size_t at,
                                   std::string_view text) noexcept {
  const std::string_view all{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  return at <= all.size() && all.substr(at).starts_with(text);
}

/// A picture's format by its first bytes, in words; empty where they are those of none that is
/// known.
[[nodiscard]] inline std::string_view image_format_of(std::span<const std::byte> bytes) noexcept {
  using namespace std::string_view_literals;
  const auto starts = [bytes](std::string_view text) { return has_text(bytes, 0, text); };
  if (starts("\xff\xd8\xff"sv)) return "JPEG";
  if (starts("\x89PNG\r\n\x1a\n"sv)) return "PNG";
  if (starts("GIF87a"sv) || starts("GIF89a"sv)) return "GIF";
  if (starts("RIFF"sv) && has_text(bytes, 8, "WEBP"sv)) return "WebP";
  if (starts("II*\0"sv) || starts("MM\0*"sv) || starts("II+\0"sv) || starts("MM\0+"sv))
    return "TIFF";
  if (starts("\0\0\0\x0cjP  \r\n\x87\n"sv) || starts("\xff\x4f\xff\x51"sv)) return "JPEG 2000";
  if (starts("\0\0\0\x0cJXL \r\n\x87\n"sv) || starts("\xff\x0a"sv)) return "JPEG XL";
  if (has_text(bytes, 4, "ftyp"sv)) {
    if (has_text(bytes, 8, "avif"sv) || has_text(bytes, 8, "avis"sv)) return "AVIF";
    for (const auto brand : {"heic"sv, "heix"sv, "hevc"sv, "mif1"sv, "msf1"sv}) {
      if (has_text(bytes, 8, brand)) return "HEIC";
    }
  }
  // The sixth to ninth byte are reserved and 0, which letters of a text are not.
  if (starts("BM"sv) && has_text(bytes, 6, "\0\0\0\0"sv)) return "BMP";
  if (bytes.size() > 2 && starts("P"sv)) {
    const auto kind = std::to_integer<unsigned char>(bytes[1]);
    const auto next = std::to_integer<unsigned char>(bytes[2]);
    const bool is_space =
        next == ' ' || next == '\n' || next == '\r' || next == '\t' || next == '#';
    if (kind >= '1' && kind <= '6' && is_space) return "PPM";
  }
  return {};
}

/// What `bytes` start with, for messages: "a WebP picture", or the first bytes in hexadecimal.
[[nodiscard]] inline std::string found_image(std::span<const std::byte> bytes) {
  if (bytes.empty()) return "no bytes at all";
  const std::string_view format = image_format_of(bytes);
  if (!format.empty()) return "a " + std::string{format} + " picture";
  std::string text = "bytes of no known picture:";
  constexpr std::string_view digits = "0123456789abcdef";
  for (std::size_t i = 0; i < bytes.size() && i < 8; ++i) {
    const auto value = std::to_integer<unsigned>(bytes[i]);
    text += ' ';
    text += digits[value >> 4];
    text += digits[value & 15];
  }
  return text;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
