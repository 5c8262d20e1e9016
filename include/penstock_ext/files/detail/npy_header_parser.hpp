// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <penstock_ext/files/detail/npy_header.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/file_bytes.hpp>
#include <penstock_ext/files/support/little_endian.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Reads the header that a file's bytes start with. `path` and `base`, where in the file the bytes
/// start, are for messages.
class npy_header_parser {
 public:
  npy_header_parser(std::span<const std::byte> bytes, std::string path, std::uint64_t base)
      : bytes_(bytes), path_(std::move(path)), base_(base) {}

  /// Throws `file_truncated`; `file_format_error` for what is no npy file, is of an unknown
  /// version, has columns first, or elements that are no plain numbers; `dimension_mismatch` for a
  /// scalar, and for dimensions whose bytes 64 bits can't count.
  [[nodiscard]] npy_header read() {
    constexpr std::string_view magic = "\x93NUMPY";
    constexpr std::size_t fixed = 8;  // with the version
    const std::string_view start = text(0, (std::min)(bytes_.size(), fixed));
    if (start.substr(0, magic.size()) != magic.substr(0, start.size())) {
      const bool is_zip = start.starts_with("PK");
      refuse(0, "an npy file, which starts with 0x93 and NUMPY",
             is_zip ? "a zip file: an npz is opened by penstock::npz" : "other bytes");
    }
    require(fixed);
    const auto version = std::to_integer<unsigned>(bytes_[6]);
    if (version < 1 || version > 3 || bytes_[7] != std::byte{0}) {
      refuse(6, "version 1.0, 2.0 or 3.0",
             std::to_string(version) + '.' + std::to_string(std::to_integer<unsigned>(bytes_[7])));
    }
    const std::size_t width = version == 1 ? 2 : 4;
    require(fixed + width);
    const std::uint64_t length = little_endian(bytes_.subspan(fixed, width));
    constexpr std::uint64_t longest = std::uint64_t{1} << 20;
    if (length > longest) {
      refuse(fixed, "a header of at most 1 MiB", std::to_string(length) + " bytes");
    }
    at_ = fixed + width;
    header_.data = at_ + length;
    require(static_cast<std::size_t>(header_.data));
    text_ = text(0, static_cast<std::size_t>(header_.data));
    read_dictionary();
    count_bytes();
    return std::move(header_);
  }

 private:
  [[nodiscard]] std::string_view text(std::size_t begin, std::size_t count) const noexcept {
    return {reinterpret_cast<const char*>(bytes_.data()) + begin, count};
  }

  [[noreturn]] void refuse(std::size_t at, const std::string& expected,
                           const std::string& found) const {
    throw file_format_error(path_, base_ + at, expected, found);
  }
  [[noreturn]] void refuse_here(const std::string& expected) const {
    refuse(at_, expected, at_ < text_.size() ? shown(text_[at_]) : "the end of the header");
  }
  [[nodiscard]] static std::string shown(char c) {
    return c >= ' ' && c <= '~' ? std::string{'\'', c, '\''} : hex(static_cast<std::uint8_t>(c));
  }

  void require(std::size_t count) const {
    if (bytes_.size() >= count) return;
    throw file_truncated(path_, base_ + bytes_.size(),
                         "an npy header of " + std::to_string(count) + " bytes or more",
                         "the end of the file");
  }

  void skip_blanks() noexcept {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  // Takes `c`, with blanks before it, if it is there.
  [[nodiscard]] bool take(char c) noexcept {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) refuse_here(shown(c));
  }

  // A string in quotes of either kind, without escapes.
  [[nodiscard]] std::string quoted(const std::string& expected) {
    skip_blanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') refuse_here(expected);
    const std::size_t begin = at_ + 1;
    const std::size_t end = text_.find(quote, begin);
    if (end == std::string_view::npos) refuse(at_, "the end of a string", "the end of the header");
    at_ = end + 1;
    return std::string{text_.substr(begin, end - begin)};
  }

  void read_dictionary() {
    bool has[3] = {};
    expect('{');
    while (!take('}')) {
      skip_blanks();
      const std::size_t key_at = at_;
      const std::string key = quoted("'descr', 'fortran_order' or 'shape'");
      const std::size_t which = key == "descr" ? 0 : key == "fortran_order" ? 1 : 2;
      if ((which == 2 && key != "shape") || has[which]) {
        refuse(key_at, "'descr', 'fortran_order' and 'shape', once each", '\'' + key + '\'');
      }
      has[which] = true;
      expect(':');
      skip_blanks();
      if (which == 0) read_descr();
      if (which == 1) read_order();
      if (which == 2) read_shape();
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (at_ != text_.size()) refuse_here("blanks to the end of the header");
    if (!has[0] || !has[1] || !has[2]) {
      refuse(at_, "'descr', 'fortran_order' and 'shape'", "not all of them");
    }
  }

  void read_descr() {
    header_.descr_at = base_ + at_;
    const std::size_t at = at_;
    if (at_ < text_.size() && text_[at_] == '[') {
      refuse(at, "elements that are plain numbers",
             "a structure: save each of its fields by itself");
    }
    header_.descr = quoted("the elements' type");
    const std::string& type = header_.descr;
    constexpr std::string_view orders = "<>|=";
    if (type.size() < 2 || orders.find(type[0]) == std::string_view::npos) {
      refuse(at, "a type such as '<f4'", '\'' + type + '\'');
    }
    if (type[1] == 'O') {
      refuse(at, "elements that are plain numbers",
             "'|O', pickled objects, which would run code: save numbers");
    }
  }

  void read_order() {
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("True")) {
      refuse(at_, "rows first",
             "columns first (Fortran's order): save numpy.ascontiguousarray of it");
    }
    if (!rest.starts_with("False")) refuse_here("True or False");
    at_ += 5;
  }

  void read_shape() {
    header_.shape_at = base_ + at_;
    expect('(');
    while (!take(')')) {
      skip_blanks();
      std::uint64_t length = 0;
      const char* const begin = text_.data() + at_;
      const auto read_to = std::from_chars(begin, text_.data() + text_.size(), length);
      if (read_to.ec != std::errc{}) refuse_here("a length of 64 bits");
      at_ += static_cast<std::size_t>(read_to.ptr - begin);
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // as Python 2 wrote them
      header_.lengths.push_back(length);
      if (!take(',')) {
        expect(')');
        break;
      }
    }
  }

  void count_bytes() {
    std::uint64_t size = 0;
    const char* const begin = header_.descr.data() + 2;
    const char* const end = header_.descr.data() + header_.descr.size();
    const auto read_to = std::from_chars(begin, end, size);
    if (read_to.ec != std::errc{} || read_to.ptr != end || size > 8) {
      throw element_type_mismatch(path_, header_.descr_at, "numbers of at most 8 bytes",
                                  '\'' + header_.descr + '\'');
    }
    if (header_.lengths.empty()) {
      throw dimension_mismatch(path_, header_.shape_at, "one dimension or more", "a scalar");
    }
    bool is_empty = false;
    bool is_too_large = false;
    header_.bytes = size;
    std::uint64_t counted = size;  // a row has its bytes where there is none, too
    for (const std::uint64_t length : header_.lengths) {
      is_empty = is_empty || length == 0;
      is_too_large =
          __builtin_mul_overflow(counted, length == 0 ? 1 : length, &counted) || is_too_large;
      header_.bytes *= length;
    }
    if (is_empty) header_.bytes = 0;
    if (is_too_large) {
      throw dimension_mismatch(path_, header_.shape_at, "dimensions whose bytes 64 bits can count",
                               "longer ones");
    }
  }

  std::span<const std::byte> bytes_;
  std::string path_;
  std::uint64_t base_;
  std::string_view text_;  // from the file's start to the header's end
  std::size_t at_ = 0;
  npy_header header_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
