// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Goes through the elements of a small XML text, as S3 answers with. Attributes, comments and
/// processing instructions are left out; document types and CDATA are refused, so that nothing can
/// expand. Holds on to the text.
class xml_reader {
 public:
  static constexpr std::size_t deepest = 16;

  explicit xml_reader(std::string_view text) noexcept : text_(text) {}

  enum class step { begin, end, done, wrong };

  /// Goes to the next begin or end of an element; `done` after the end of the first one, `wrong`
  /// for a text that is not well formed, at `position()`.
  [[nodiscard]] step next() {
    content_.clear();
    if (was_end_) {
      path_.pop_back();
      was_end_ = false;
      if (path_.empty()) return step::done;
    } else if (is_empty_element_) {
      is_empty_element_ = false;
      return end_here();
    }
    while (true) {
      const std::size_t tag = text_.find('<', place_);
      if (tag == std::string_view::npos) return step::wrong;
      if (!take_text(text_.substr(place_, tag - place_))) return step::wrong;
      place_ = tag + 1;
      const std::string_view rest = text_.substr(place_);
      if (rest.starts_with("?")) {
        if (!skip_past("?>")) return step::wrong;
      } else if (rest.starts_with("!--")) {
        if (!skip_past("-->")) return step::wrong;
      } else if (rest.starts_with("!")) {
        return step::wrong;
      } else {
        return rest.starts_with("/") ? take_end() : take_begin();
      }
    }
  }

  /// The names of the elements around this place, from the outermost on; at an end with the one
  /// that ends here.
  [[nodiscard]] const std::vector<std::string_view>& path() const noexcept { return path_; }
  /// At an end: the text directly before it, without markup.
  [[nodiscard]] const std::string& content() const noexcept { return content_; }
  /// Where in the text, in bytes.
  [[nodiscard]] std::size_t position() const noexcept { return place_; }

 private:
  [[nodiscard]] bool skip_past(std::string_view mark) noexcept {
    const std::size_t found = text_.find(mark, place_);
    if (found == std::string_view::npos) return false;
    place_ = found + mark.size();
    return true;
  }

  [[nodiscard]] static bool is_name(std::string_view name) noexcept {
    if (name.empty()) return false;
    for (const char c : name) {
      const bool is_fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || c == '-' || c == '_' || c == ':' || c == '.';
      if (!is_fine) return false;
    }
    return true;
  }

  [[nodiscard]] step take_begin() {
    std::size_t end = place_;
    for (char quote = 0; end < text_.size(); ++end) {
      const char c = text_[end];
      if (quote != 0) {
        if (c == quote) quote = 0;
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == '>') {
        break;
      } else if (c == '<') {
        return step::wrong;
      }
    }
    if (end >= text_.size() || path_.size() >= deepest) return step::wrong;
    std::string_view tag = text_.substr(place_, end - place_);
    is_empty_element_ = tag.ends_with('/');
    if (is_empty_element_) tag.remove_suffix(1);
    const std::string_view name = tag.substr(0, tag.find_first_of(" \t\r\n"));
    if (!is_name(name)) return step::wrong;
    place_ = end + 1;
    path_.push_back(name);
    return step::begin;
  }

  [[nodiscard]] step take_end() {
    const std::size_t end = text_.find('>', place_);
    if (end == std::string_view::npos) return step::wrong;
    std::string_view name = text_.substr(place_ + 1, end - place_ - 1);
    name = name.substr(0, name.find_first_of(" \t\r\n"));
    if (path_.empty() || path_.back() != name) return step::wrong;
    place_ = end + 1;
    return end_here();
  }

  [[nodiscard]] step end_here() noexcept {
    was_end_ = true;
    return step::end;
  }

  // Appends text, its references resolved.
  [[nodiscard]] bool take_text(std::string_view text) {
    while (!text.empty()) {
      const std::size_t plain = text.find('&');
      content_.append(text.substr(0, plain));
      if (plain == std::string_view::npos) return true;
      text.remove_prefix(plain + 1);
      const std::size_t end = text.find(';');
      if (end == std::string_view::npos || !take_reference(text.substr(0, end))) return false;
      text.remove_prefix(end + 1);
    }
    return true;
  }

  [[nodiscard]] bool take_reference(std::string_view name) {
    if (name.starts_with('#')) {
      const int base = name.substr(1).starts_with('x') ? 16 : 10;
      const std::string_view digits = name.substr(base == 16 ? 2 : 1);
      std::uint32_t code = 0;
      const char* const end = digits.data() + digits.size();
      const auto [stop, error] = std::from_chars(digits.data(), end, code, base);
      if (digits.empty() || error != std::errc{} || stop != end) return false;
      return append_utf8(code);
    }
    const char c = name == "amp"    ? '&'
                   : name == "lt"   ? '<'
                   : name == "gt"   ? '>'
                   : name == "quot" ? '"'
                   : name == "apos" ? '\''
                                    : '\0';
    if (c == '\0') return false;
    content_ += c;
    return true;
  }

  [[nodiscard]] bool append_utf8(std::uint32_t code) {
    if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return false;
    const auto tail = [&](unsigned shift) {
      content_ += static_cast<char>(0x80U | (code >> shift & 0x3fU));
    };
    if (code < 0x80) {
      content_ += static_cast<char>(code);
    } else if (code < 0x800) {
      content_ += static_cast<char>(0xc0U | code >> 6U);
      tail(0);
    } else if (code < 0x10000) {
      content_ += static_cast<char>(0xe0U | code >> 12U);
      tail(6);
      tail(0);
    } else {
      content_ += static_cast<char>(0xf0U | code >> 18U);
      tail(12);
      tail(6);
      tail(0);
    }
    return true;
  }

  std::string_view text_;
  std::size_t place_ = 0;
  std::vector<std::string_view> path_;
  std::string content_;
  bool was_end_ = false;
  bool is_empty_element_ = false;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
