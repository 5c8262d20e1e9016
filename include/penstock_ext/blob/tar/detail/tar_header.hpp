// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// All of a tar archive comes in blocks of this many bytes.
inline constexpr std::size_t tar_block = 512;

/// The most characters of a path that a header's own field has room for.
inline constexpr std::size_t tar_name_length = 100;

/// From this size on, in bytes, the octal digits of a header do not say how long a member is.
inline constexpr std::uint64_t tar_octal_end = std::uint64_t{1} << 33;

/// A number of a header: octal digits between blanks, or, where the first bit is set, big-endian
/// binary. Nothing for what is no number, is negative, or has no room in 64 bits.
[[nodiscard]] inline std::optional<std::uint64_t> tar_number(std::string_view field) noexcept {
  std::uint64_t value = 0;
  const auto first = static_cast<unsigned char>(field.empty() ? '\0' : field.front());
  if ((first & 0x80U) != 0) {
    if ((first & 0x7fU) != 0) return std::nullopt;  // negative, or above 64 bits
    for (const char c : field.substr(1)) {
      if (value >> 56U != 0) return std::nullopt;
      value = value << 8U | static_cast<unsigned char>(c);
    }
    return value;
  }
  const auto is_blank = [](char c) { return c == ' ' || c == '\0'; };
  const auto* at = std::find_if_not(field.begin(), field.end(), is_blank);
  for (; at != field.end() && *at >= '0' && *at <= '7'; ++at) {
    if (value >> 61U != 0) return std::nullopt;
    value = value << 3U | static_cast<std::uint64_t>(*at - '0');
  }
  return std::all_of(at, field.end(), is_blank) ? std::optional{value} : std::nullopt;
}

/// The header of a tar archive's member, where it lies: POSIX's ustar, GNU's, or that of the
/// seventh edition of Unix, which has no prefix.
class tar_header {
 public:
  /// Refers to a block.
  explicit tar_header(std::span<const std::byte> block) noexcept
      : text_(reinterpret_cast<const char*>(block.data()), tar_block) {}

  /// Whether all its bytes are 0, as at the end of an archive.
  [[nodiscard]] bool is_zero() const noexcept {
    return std::all_of(text_.begin(), text_.end(), [](char c) { return c == '\0'; });
  }

  /// Whether the checksum is that of the bytes, which some programs add up as signed ones.
  [[nodiscard]] bool sum_is_right() const noexcept {
    const auto stated = tar_number(text_.substr(sum_begin, sum_length));
    if (!stated) return false;
    std::uint32_t sum = 0;
    for (const char c : text_) sum += static_cast<unsigned char>(c);
    std::uint32_t negative = 0;  // bytes that a signed sum takes 256 less for
    for (const char c : text_) negative += static_cast<unsigned char>(c) >> 7U;
    // The field itself counts as blanks.
    for (const char c : text_.substr(sum_begin, sum_length)) {
      sum += static_cast<std::uint32_t>(' ') - static_cast<unsigned char>(c);
      negative -= static_cast<unsigned char>(c) >> 7U;
    }
    const std::int64_t signed_sum = std::int64_t{sum} - std::int64_t{256} * negative;
    return *stated == sum || std::cmp_equal(*stated, signed_sum);
  }

  /// What the member is, by POSIX's letter: '0' a file, also where it is a NUL, '5' a folder.
  [[nodiscard]] char type() const noexcept {
    const char letter = text_[156];
    if (letter != '\0') return letter;
    const std::string_view of = name();
    return !of.empty() && of.back() == '/' ? '5' : '0';
  }

  /// How many bytes the member has; nothing where that is no number.
  [[nodiscard]] std::optional<std::uint64_t> size() const noexcept {
    return tar_number(text_.substr(124, 12));
  }

  /// The path, or its part after the prefix.
  [[nodiscard]] std::string_view name() const noexcept { return field(0, tar_name_length); }

  /// What stands before the name, without the slash between them; "" if nothing.
  [[nodiscard]] std::string_view prefix() const noexcept {
    // GNU's magic has a blank in place of the NUL, and other things where the prefix is.
    constexpr std::string_view posix{"ustar\0", 6};
    return text_.substr(257, posix.size()) == posix ? field(345, 155) : std::string_view{};
  }

  /// Whether the header's own fields say the path `path`; from its character `folded` on, capital
  /// letters of the header count as small ones.
  [[nodiscard]] bool is_named(std::string_view path,
                              std::size_t folded = std::string_view::npos) const noexcept {
    const auto is_same = [&](std::string_view said, std::size_t begin) {
      for (std::size_t i = 0; i < said.size(); ++i) {
        const bool is_capital = said[i] >= 'A' && said[i] <= 'Z' && begin + i >= folded;
        const char c = is_capital ? static_cast<char>(said[i] - 'A' + 'a') : said[i];
        if (c != path[begin + i]) return false;
      }
      return true;
    };
    const std::string_view before = prefix();
    const std::string_view after = name();
    const std::size_t begin = before.empty() ? 0 : before.size() + 1;
    if (path.size() != begin + after.size() || !is_same(after, begin)) return false;
    return before.empty() || (is_same(before, 0) && path[begin - 1] == '/');
  }

 private:
  static constexpr std::size_t sum_begin = 148;
  static constexpr std::size_t sum_length = 8;

  // A text, which ends with a NUL unless it fills its field.
  [[nodiscard]] std::string_view field(std::size_t begin, std::size_t length) const noexcept {
    const std::string_view all = text_.substr(begin, length);
    return all.substr(0, all.find('\0'));
  }

  std::string_view text_;
};

/// Whether a path is one that every program writes into a header's own field, so that a header that
/// says another one is another member's.
[[nodiscard]] inline bool is_plain_tar_name(std::string_view path) noexcept {
  return path.size() <= tar_name_length && std::all_of(path.begin(), path.end(), [](char c) {
           return static_cast<unsigned char>(c) < 0x80;
         });
}

/// What is wrong with the block before a member's bytes, if that is to be the header of a file of
/// this path, compared as by `is_named`, and of this size; "" if nothing is. A path that is "", or
/// that some programs put elsewhere, is not compared.
[[nodiscard]] inline std::string foreign_header(std::span<const std::byte> block,
                                                std::string_view path, std::uint64_t size,
                                                std::size_t folded = std::string_view::npos) {
  const tar_header header{block};
  if (!header.sum_is_right()) return "no header, or a damaged one";
  if (header.type() != '0' && header.type() != '7') return "the header of what is no file";
  if (!path.empty() && is_plain_tar_name(path) && !header.is_named(path, folded)) {
    return "the header of '" + std::string{header.name()} + "'";
  }
  if (size < tar_octal_end && header.size() != size) {
    const auto found = header.size();
    return found ? "the header of a file of " + std::to_string(*found) + " bytes"
                 : "a header without a size";
  }
  return {};
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
