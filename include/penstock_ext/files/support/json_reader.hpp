// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Appends the character `code`, below 0x110000, to `text` as UTF-8.
inline void append_utf8(std::string& text, std::uint32_t code) {
  const auto add = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  const auto follow = [&](unsigned shift) { add(0x80U | (code >> shift & 0x3fU)); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xc0U | code >> 6U);
  } else if (code < 0x10000) {
    add(0xe0U | code >> 12U);
    follow(6);
  } else {
    add(0xf0U | code >> 18U);
    follow(12);
    follow(6);
  }
  follow(0);
}

/// Reads a JSON text (RFC 8259) from its start to its end, value by value, without making a tree of
/// it: what a file of settings or an index needs. Refers to the text. Each member reads the value
/// that comes next, or throws `file_format_error` with the byte at which another one stands, also
/// where a value is nested deeper than `deepest`, so that no text exhausts the stack. Single-use.
class json_reader {
 public:
  /// Reads `text`; `path` is for messages.
  json_reader(std::string_view text, std::string path) : text_(text), path_(std::move(path)) {
    skip_space();
  }

  /// Where reading is, in bytes.
  [[nodiscard]] std::size_t offset() const noexcept { return at_; }

  /// An object: calls `member(key)` for each of its members, which reads the value.
  template <class Member>
  void object(const Member& member) {
    const nesting inside{*this};
    expect('{', "an object");
    for (bool first = true; !ends('}', first); first = false) {
      const std::string key = string();
      expect(':', "':'");
      member(std::string_view{key});
    }
  }

  /// An array: calls `element()` for each of its elements, which reads it.
  template <class Element>
  void array(const Element& element) {
    const nesting inside{*this};
    expect('[', "an array");
    for (bool first = true; !ends(']', first); first = false) element();
  }

  /// A string, as UTF-8. Escapes are resolved; a half of a surrogate pair is refused.
  [[nodiscard]] std::string string() {
    if (peek() != '"') refuse("a string");
    ++at_;
    std::string value;
    while (true) {
      const std::size_t begin = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' && !is_control()) ++at_;
      value.append(text_.substr(begin, at_ - begin));
      if (at_ == text_.size() || is_control()) refuse("the end of a string");
      if (text_[at_++] == '"') break;
      append_escaped(value);
    }
    skip_space();
    return value;
  }

  /// A whole number of 64 bits, not negative, in digits alone.
  [[nodiscard]] std::uint64_t number() {
    const std::size_t begin = at_;
    skip_number();
    std::uint64_t value = 0;
    for (std::size_t i = begin; i < at_; ++i) {
      const auto digit = static_cast<std::uint64_t>(text_[i] - '0');
      constexpr std::uint64_t most = (std::numeric_limits<std::uint64_t>::max)();
      if (text_[i] < '0' || text_[i] > '9' || value > (most - digit) / 10) {
        at_ = begin;
        refuse("a whole number below 2^64");
      }
      value = value * 10 + digit;
    }
    skip_space();
    return value;
  }

  /// Reads `null` if that is what comes; false, and nothing is read, if not.
  [[nodiscard]] bool null() { return is_next("null"); }

  /// Reads any value and forgets it.
  void skip() {
    switch (peek()) {
      case '{':
        object([this](std::string_view) { skip(); });
        break;
      case '[':
        array([this] { skip(); });
        break;
      case '"':
        static_cast<void>(string());
        break;
      default:
        if (is_next("true") || is_next("false") || is_next("null")) break;
        skip_number();
        skip_space();
    }
  }

  /// Throws unless all of the text has been read.
  void finish() const {
    if (at_ != text_.size()) refuse("the end");
  }

  /// Throws `file_format_error` at the byte `offset`.
  [[noreturn]] void refuse(std::size_t offset, std::string expected, std::string found) const {
    throw file_format_error(path_, offset, std::move(expected), std::move(found));
  }
  /// Throws `file_format_error` for what comes next.
  [[noreturn]] void refuse(std::string expected) const {
    const std::string next{text_.substr(at_, 12)};
    refuse(at_, std::move(expected), next.empty() ? std::string{"the end"} : '\'' + next + '\'');
  }

 private:
  static constexpr std::size_t deepest = 64;

  // One more object or array is open while it lives.
  class nesting {
   public:
    explicit nesting(json_reader& in) : in_(in) {
      if (in_.depth_ == deepest) in_.refuse("at most 64 objects and arrays in each other");
      ++in_.depth_;
    }
    nesting(const nesting&) = delete;
    nesting& operator=(const nesting&) = delete;
    ~nesting() { --in_.depth_; }

   private:
    json_reader& in_;
  };

  [[nodiscard]] char peek() const noexcept { return at_ < text_.size() ? text_[at_] : '\0'; }
  [[nodiscard]] bool is_control() const noexcept {
    return static_cast<unsigned char>(text_[at_]) < 0x20;
  }
  void skip_space() noexcept {
    while (at_ < text_.size() && std::string_view{" \t\r\n"}.find(text_[at_]) != text_.npos) ++at_;
  }
  void expect(char mark, const char* what) {
    if (at_ == text_.size() || text_[at_] != mark) refuse(what);
    ++at_;
    skip_space();
  }
  [[nodiscard]] bool is_next(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    skip_space();
    return true;
  }

  // Reads the comma before another part, or the mark that ends an object or array.
  [[nodiscard]] bool ends(char mark, bool is_first) {
    if (at_ < text_.size() && text_[at_] == mark) {
      ++at_;
      skip_space();
      return true;
    }
    if (!is_first) expect(',', mark == '}' ? "',' or '}'" : "',' or ']'");
    return false;
  }

  void skip_digits() {
    const std::size_t begin = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    if (at_ == begin) refuse("a digit");
  }

  void skip_number() {
    if (peek() != '-' && (peek() < '0' || peek() > '9')) refuse("a value");
    if (peek() == '-') ++at_;
    if (peek() == '0') {
      ++at_;  // and no digit after it
    } else {
      skip_digits();
    }
    if (peek() == '.') {
      ++at_;
      skip_digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      skip_digits();
    }
  }

  [[nodiscard]] std::uint32_t four_digits() {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const std::size_t digit = std::string_view{"0123456789abcdefABCDEF"}.find(peek());
      if (digit == text_.npos || at_ == text_.size()) refuse("four hexadecimal digits");
      value = value << 4U | static_cast<std::uint32_t>(digit < 16 ? digit : digit - 6);
    }
    return value;
  }

  void append_escaped(std::string& value) {
    constexpr std::string_view marks = "\"\\/bfnrt";
    constexpr std::string_view meant = "\"\\/\b\f\n\r\t";
    if (const std::size_t which = marks.find(peek()); at_ < text_.size() && which != marks.npos) {
      value += meant[which];
      ++at_;
      return;
    }
    if (peek() != 'u') refuse("an escape");
    ++at_;
    std::uint32_t code = four_digits();
    if (code >= 0xd800 && code < 0xe000) {
      const bool is_first = code < 0xdc00 && text_.substr(at_).starts_with("\\u");
      if (!is_first) refuse("the other half of a surrogate pair");
      at_ += 2;
      const std::uint32_t low = four_digits();
      if (low < 0xdc00 || low >= 0xe000) refuse("the other half of a surrogate pair");
      code = 0x10000 + ((code - 0xd800) << 10U) + (low - 0xdc00);
    }
    append_utf8(value, code);
  }

  std::string_view text_;
  std::string path_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
