// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/http/detail/answer.hpp>
#include <penstock_ext/store/http/http_options.hpp>
#include <penstock_ext/store/remote_error.hpp>

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

/// What %XX and '+' stand for; nothing for a '%' without two digits.
[[nodiscard]] inline std::optional<std::string> percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const int high = digit(text[i + 1]);
    const int low = digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

/// One page of a bucket's listing: the answer to ListObjectsV2.
struct list_answer {
  std::vector<s3_object> objects = {};
  std::string next = {};  ///< asks for the page after it; "" where this is the last one

  /// Reads `text`, the answer of `url`, which errors name. Throws `bad_response` with the byte in
  /// the answer.
  [[nodiscard]] static list_answer parse(std::string_view text, const std::string& url) {
    list_answer answer;
    xml_reader reader{text};
    const auto require = [&](bool holds, const char* expected, const std::string& found) {
      if (!holds) throw bad_response(url, reader.position(), expected, found);
    };
    // S3 has keys of 1024 bytes, each three where it is encoded; libcurl has URLs of 8 MB.
    const auto require_short = [&](const char* expected, std::size_t most, std::size_t found,
                                   const char* remedy) {
      require(found <= most, expected, "one of " + std::to_string(found) + " bytes: " + remedy);
    };
    bool is_encoded = false;
    bool is_cut = false;
    s3_object object;
    bool has_size = false;
    while (true) {
      const xml_reader::step step = reader.next();
      if (step == xml_reader::step::done) break;
      require(step != xml_reader::step::wrong, "the XML of a bucket's listing", "another text");
      const auto& path = reader.path();
      require(path.front() == "ListBucketResult", "ListBucketResult", std::string{path.front()});
      if (step == xml_reader::step::begin) {
        if (path.size() == 2 && path[1] == "Contents") {
          object = {};
          has_size = false;
        }
        continue;
      }
      const std::string& content = reader.content();
      if (path.size() == 3 && path[1] == "Contents") {
        if (path[2] == "Key") {
          require_short("a key of at most 8192 bytes", 8192, content.size(),
                        "no request can name it: list by a prefix that leaves it out");
          object.key = content;
        }
        if (path[2] == "Size") {
          const auto size = whole_number(content);
          has_size = size.has_value();
          object.size = size.value_or(0);
        }
      } else if (path.size() == 2 && path[1] == "Contents") {
        require(!object.key.empty(), "the key of an object", "none");
        require(has_size, "the size of an object", "none");
        answer.objects.push_back(object);
      } else if (path.size() == 2 && path[1] == "IsTruncated") {
        is_cut = content == "true";
      } else if (path.size() == 2 && path[1] == "NextContinuationToken") {
        require_short("a token of at most 65536 bytes", 65536, content.size(),
                      "no request can hold it: list by longer prefixes");
        answer.next = content;
      } else if (path.size() == 2 && path[1] == "EncodingType") {
        is_encoded = content == "url";
      }
    }
    require(is_cut == !answer.next.empty(), "a token for the next page where there is one",
            is_cut ? "none" : "one at the end of the listing");
    if (!is_encoded) return answer;
    for (s3_object& one : answer.objects) {
      auto decoded = percent_decoded(one.key);
      require(decoded.has_value(), "a percent-encoded key", one.key);
      one.key = *std::move(decoded);
    }
    return answer;
  }
};

/// The text of the element `name` right below <Error>, what S3 says in an error's body; "" where
/// it is not there or has other characters than letters, digits, dots and dashes.
[[nodiscard]] inline std::string error_word(std::string_view body, std::string_view name) {
  xml_reader reader{body};
  while (true) {
    const xml_reader::step step = reader.next();
    if (step == xml_reader::step::done || step == xml_reader::step::wrong) return {};
    const auto& path = reader.path();
    if (step != xml_reader::step::end || path.size() != 2 || path[0] != "Error" ||
        path[1] != name) {
      continue;
    }
    for (const char c : reader.content()) {
      const bool is_fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || c == '.' || c == '-';
      if (!is_fine) return {};
    }
    return reader.content().substr(0, 64);
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
