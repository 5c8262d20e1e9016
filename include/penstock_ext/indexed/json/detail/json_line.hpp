// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <simdjson.h>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/mapped_file.hpp>
#include <penstock_ext/indexed/json/json_line_error.hpp>
#include <penstock_ext/indexed/text_lines.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The memory with which a thread parses lines. A copy has memory of its own.
struct json_memory {
  json_memory() = default;
  json_memory(const json_memory&) : json_memory() {}
  json_memory& operator=(const json_memory&) = delete;

  simdjson::ondemand::parser parser;
  std::string padded;  // a line at the end of the file, followed by padding
  std::vector<std::uint32_t> tokens;
  line_cursor cursor;
};

/// True if a field of T takes the bytes of a string.
template <class T>
inline constexpr bool is_json_byte =
    sizeof(T) == 1 && !std::same_as<T, bool> && (std::integral<T> || std::same_as<T, std::byte>);

/// True if a field of T takes the tokens of a string.
template <class T>
inline constexpr bool is_json_token =
    std::integral<T> && !std::same_as<T, bool> && !is_json_byte<T>;

/// Returns a description of the JSON values that T can hold.
template <class T>
[[nodiscard]] std::string json_text_of() {
  if constexpr (std::same_as<T, bool>) {
    return "true or false";
  } else if constexpr (std::floating_point<T>) {
    return std::same_as<T, float> ? "a number in the range of float" : "a number";
  } else if constexpr (std::same_as<T, std::byte>) {
    return json_text_of<std::uint8_t>();
  } else {
    return "an integer from " + std::to_string((std::numeric_limits<T>::min)()) + " to " +
           std::to_string((std::numeric_limits<T>::max)());
  }
}

/// A line that is being parsed. All functions throw `json_line_error`.
class json_line {
 public:
  using value_type = simdjson::ondemand::value;

  /// Starts to parse `text`, line `index` of `file`, counted from 0. A member that no function
  /// reads is not parsed, so errors in its value may remain undetected.
  json_line(const mapped_file& file, std::uint64_t index, std::string_view text,
            json_memory& memory)
      : file_(&file), index_(index) {
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
    if (index == 0 && text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
    const auto all = file.bytes();
    const auto* const begin = reinterpret_cast<const char*>(all.data());
    offset_ = static_cast<std::size_t>(text.data() - begin);
    std::size_t readable = all.size() - offset_;
    // simdjson reads beyond the end of the text, which may be the end of the mapping.
    if (readable - text.size() < simdjson::SIMDJSON_PADDING) {
      readable = text.size() + simdjson::SIMDJSON_PADDING;
      memory.padded.assign(text);
      memory.padded.resize(readable);
      text = std::string_view{memory.padded}.substr(0, text.size());
    }
    text_ = text;
    const auto problem = memory.parser.iterate(text.data(), text.size(), readable).get(document_);
    if (problem != simdjson::SUCCESS) fail_to_parse(problem);
    if (document_.get_object().get(object_) == simdjson::SUCCESS) return;
    const std::size_t first = text.find_first_not_of(" \t\r");
    if (text[first] != '{') fail(first, "a JSON object", shortened(text.substr(first)));
    const std::size_t last = text.find_last_not_of(" \t\r");
    fail(last, "a JSON object that ends in }", shortened(text.substr(last)));
  }
  json_line(const json_line&) = delete;  // the object refers to the document
  json_line& operator=(const json_line&) = delete;

  /// Calls `use(key, value)` for all members of the object.
  template <class Use>
  void each_member(const Use& use) {
    for (auto member : object_) {
      simdjson::ondemand::field field;
      require_syntax(std::move(member).get(field));
      const std::size_t at = position(field.key().raw());
      std::string_view key;
      if (field.unescaped_key().get(key) != simdjson::SUCCESS) {
        fail(at, "a key with valid escapes", shortened(text_.substr(at)));
      }
      use(key, field.value());
    }
    const char* rest = nullptr;
    if (document_.current_location().get(rest) == simdjson::SUCCESS) {
      const std::size_t at = position(rest);
      fail(at, "the end of the line", shortened(text_.substr(at)));
    }
  }
  /// Calls `use(value)` for all elements of the array `value` of field `name`.
  template <class Use>
  void each_element(value_type value, const std::string& name, const Use& use) {
    simdjson::ondemand::array array;
    if (value.get_array().get(array) != simdjson::SUCCESS) fail_at(value, "an array", name);
    for (auto element : array) {
      value_type one;
      require_syntax(std::move(element).get(one));
      use(one);
    }
  }
  /// Returns a value of field `name`.
  template <class T>
  [[nodiscard]] T scalar(value_type& value, const std::string& name) const {
    if constexpr (std::same_as<T, bool>) {
      bool found = false;
      if (value.get_bool().get(found) == simdjson::SUCCESS) return found;
    } else if constexpr (std::floating_point<T>) {
      double found = 0;
      if (value.get_double().get(found) == simdjson::SUCCESS) {
        const auto kept = static_cast<T>(found);
        if (std::abs(kept) <= (std::numeric_limits<T>::max)()) return kept;
      }
    } else if constexpr (std::same_as<T, std::byte>) {
      return static_cast<std::byte>(scalar<std::uint8_t>(value, name));
    } else {
      std::conditional_t<std::signed_integral<T>, std::int64_t, std::uint64_t> found = 0;
      if (value.get(found) == simdjson::SUCCESS) {
        const auto kept = static_cast<T>(found);
        if (kept == found) return kept;
      }
    }
    fail_at(value, json_text_of<T>(), name);
  }
  /// Returns true for a string.
  [[nodiscard]] static bool is_string(value_type& value) noexcept {
    simdjson::ondemand::json_type type{};
    return value.type().get(type) == simdjson::SUCCESS &&
           type == simdjson::ondemand::json_type::string;
  }
  /// Returns a string of field `name` without escapes, valid while the line is parsed.
  [[nodiscard]] std::string_view string(value_type value, const std::string& name) const {
    std::string_view text;
    if (value.get_string().get(text) != simdjson::SUCCESS) {
      fail_at(value, "a string with valid escapes", name);
    }
    return text;
  }
  /// Returns the position of `value`, which must not have been read.
  [[nodiscard]] std::size_t position(value_type& value) const noexcept {
    return position(value.raw_json_token().data());
  }

  [[noreturn]] void fail(std::size_t at, std::string expected, std::string_view found) const {
    throw json_line_error(file_->path(), offset_ + at, index_ + 1, at + 1, std::move(expected),
                          found);
  }
  [[noreturn]] void fail_at(value_type& value, const std::string& expected,
                            const std::string& name) const {
    const std::string_view token = value.raw_json_token();
    const std::string found = token.starts_with('[')   ? "an array"
                              : token.starts_with('{') ? "an object"
                                                       : shortened(token);
    fail(position(token.data()), expected + " for field \"" + name + '"', found);
  }

 private:
  [[nodiscard]] std::size_t position(const char* at) const noexcept {
    return static_cast<std::size_t>(at - text_.data());
  }
  // Returns the start of `text` as it can be printed.
  [[nodiscard]] static std::string shortened(std::string_view text) {
    constexpr std::size_t max = 40;
    std::size_t size = (std::min)(text.size(), max);
    const auto is_within_character = [&] {
      return size > 0 && size < text.size() && (static_cast<unsigned char>(text[size]) >> 6U) == 2;
    };
    while (is_within_character()) --size;
    std::string all{text.substr(0, size)};
    std::replace_if(
        all.begin(), all.end(), [](char one) { return static_cast<unsigned char>(one) < 0x20; },
        ' ');
    all.erase(all.find_last_not_of(' ') + 1);
    return size < text.size() ? all + "..." : all;
  }

  void require_syntax(simdjson::error_code problem) {
    if (problem == simdjson::SUCCESS) return;
    const char* place = nullptr;
    std::size_t at = text_.size();
    if (document_.current_location().get(place) == simdjson::SUCCESS) {
      at = (std::min)(position(place), at);
    }
    fail(at, "valid JSON", simdjson::error_message(problem));
  }
  [[noreturn]] void fail_to_parse(simdjson::error_code problem) const {
    const auto byte_at = [&](std::size_t at) {
      return "byte " + std::to_string(static_cast<unsigned char>(text_[at]));
    };
    switch (problem) {
      case simdjson::EMPTY:
        fail(0, "a JSON object", "an empty line: remove it");
      case simdjson::MEMALLOC:
        throw std::bad_alloc{};
      case simdjson::CAPACITY:
        fail(0, "less than 4 GiB in a line", "more");
      case simdjson::UNCLOSED_STRING:
        fail(text_.size(), "a \" that ends the string", "the end of the line");
      case simdjson::UTF8_ERROR:
        for (std::size_t at = 0; at < text_.size();) {
          const auto first = static_cast<unsigned char>(text_[at]);
          const std::size_t size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
          const auto one = text_.substr(at, size);
          if (!simdjson::validate_utf8(one.data(), one.size())) fail(at, "UTF-8", byte_at(at));
          at += size;
        }
        break;
      case simdjson::UNESCAPED_CHARS: {
        bool is_inside = false;
        for (std::size_t at = 0; at < text_.size(); ++at) {
          if (text_[at] == '"') is_inside = !is_inside;
          if (!is_inside) continue;
          if (text_[at] == '\\')
            ++at;
          else if (static_cast<unsigned char>(text_[at]) < 0x20)
            fail(at, "an escape such as \\u0001 for a control character", byte_at(at));
        }
        break;
      }
      default:
        break;
    }
    fail(0, "a JSON object", simdjson::error_message(problem));
  }

  const mapped_file* file_;
  std::uint64_t index_;
  std::size_t offset_ = 0;  // position of the text in the file
  std::string_view text_;
  simdjson::ondemand::document document_;
  simdjson::ondemand::object object_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
