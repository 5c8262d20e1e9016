// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include <penstock/core/version.hpp>
#include <penstock_ext/table/arrow_abi.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What is done with values of a type. Dates, times and durations are signed integers here.
enum class arrow_kind : std::uint8_t {
  boolean,
  signed_integer,
  unsigned_integer,
  floating,
  fixed_binary,
  binary,        // and texts, with offsets of 32 bits
  large_binary,  // with offsets of 64 bits
  list,
  large_list,
  fixed_list,
  structure,
  view,  // of binary, texts and lists: in a layout of their own
  other
};

/// A type as a format string says it.
struct arrow_type {
  arrow_kind kind = arrow_kind::other;
  std::uint64_t size = 0;  // bytes of a number or a fixed binary; elements of a fixed list
  std::string words = {};  // its name for people: "float32"
};

/// The number after the colon of "w:784"; 0 for what is none, or has no room in 31 bits.
[[nodiscard]] inline std::uint64_t arrow_length(std::string_view digits) noexcept {
  std::int32_t number = 0;
  const auto read_to = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_all = read_to.ec == std::errc{} && read_to.ptr == digits.data() + digits.size();
  return is_all && number > 0 ? static_cast<std::uint64_t>(number) : 0;
}

/// The type that `format` says. One that is not known here is `other`, with the format as its name.
[[nodiscard]] inline arrow_type arrow_type_of(std::string_view format) {
  using kind = arrow_kind;
  struct row {
    std::string_view format;
    kind is;
    std::uint64_t size;
    std::string_view words;
  };
  constexpr std::array rows{row{"b", kind::boolean, 1, "bool"},
                            row{"c", kind::signed_integer, 1, "int8"},
                            row{"C", kind::unsigned_integer, 1, "uint8"},
                            row{"s", kind::signed_integer, 2, "int16"},
                            row{"S", kind::unsigned_integer, 2, "uint16"},
                            row{"i", kind::signed_integer, 4, "int32"},
                            row{"I", kind::unsigned_integer, 4, "uint32"},
                            row{"l", kind::signed_integer, 8, "int64"},
                            row{"L", kind::unsigned_integer, 8, "uint64"},
                            row{"e", kind::floating, 2, "float16"},
                            row{"f", kind::floating, 4, "float32"},
                            row{"g", kind::floating, 8, "float64"},
                            row{"z", kind::binary, 0, "binary"},
                            row{"Z", kind::large_binary, 0, "large_binary"},
                            row{"u", kind::binary, 0, "utf8"},
                            row{"U", kind::large_binary, 0, "large_utf8"},
                            row{"vz", kind::view, 0, "binary_view"},
                            row{"vu", kind::view, 0, "utf8_view"},
                            row{"n", kind::other, 0, "null"},
                            row{"tdD", kind::signed_integer, 4, "date32"},
                            row{"tdm", kind::signed_integer, 8, "date64"},
                            row{"tts", kind::signed_integer, 4, "time32"},
                            row{"ttm", kind::signed_integer, 4, "time32"},
                            row{"ttu", kind::signed_integer, 8, "time64"},
                            row{"ttn", kind::signed_integer, 8, "time64"},
                            row{"tDs", kind::signed_integer, 8, "duration"},
                            row{"tDm", kind::signed_integer, 8, "duration"},
                            row{"tDu", kind::signed_integer, 8, "duration"},
                            row{"tDn", kind::signed_integer, 8, "duration"},
                            row{"+s", kind::structure, 0, "struct"},
                            row{"+l", kind::list, 0, "list"},
                            row{"+L", kind::large_list, 0, "large_list"},
                            row{"+vl", kind::view, 0, "list_view"},
                            row{"+vL", kind::view, 0, "large_list_view"},
                            row{"+m", kind::other, 0, "map"},
                            row{"+r", kind::other, 0, "run_end_encoded"}};
  for (const row& one : rows) {
    if (one.format == format) return {one.is, one.size, std::string{one.words}};
  }
  if (format.starts_with("w:")) {
    const std::uint64_t bytes = arrow_length(format.substr(2));
    if (bytes > 0) {
      return {kind::fixed_binary, bytes, "fixed_size_binary(" + std::to_string(bytes) + ")"};
    }
  }
  if (format.starts_with("+w:")) {
    const std::uint64_t length = arrow_length(format.substr(3));
    if (length > 0) return {kind::fixed_list, length, "fixed_size_list"};
  }
  if (format.size() > 3 && format.starts_with("ts") && format[3] == ':' &&
      std::string_view{"smun"}.find(format[2]) != std::string_view::npos) {
    return {kind::signed_integer, 8, "timestamp"};
  }
  return {kind::other, 0, "type '" + std::string{format.substr(0, 40)} + "'"};
}

/// The name of a column; "" where it has none.
[[nodiscard]] inline std::string arrow_name(const ArrowSchema& node) {
  return node.name == nullptr ? "" : node.name;
}

/// The type of `node` for people: "fixed_size_list<uint8>[784]". The schema was looked at by
/// `require_schema`.
[[nodiscard]] inline std::string arrow_words(const ArrowSchema& node) {
  const arrow_type type = arrow_type_of(node.format);
  if (node.dictionary != nullptr) return "dictionary<" + type.words + ">";
  switch (type.kind) {
    case arrow_kind::list:
    case arrow_kind::large_list:
      return type.words + "<" + arrow_words(*node.children[0]) + ">";
    case arrow_kind::fixed_list:
      return type.words + "<" + arrow_words(*node.children[0]) + ">[" + std::to_string(type.size) +
             "]";
    case arrow_kind::structure: {
      std::string all = "struct<";
      for (std::int64_t i = 0; i < node.n_children; ++i) {
        const ArrowSchema& child = *node.children[i];
        all += (i == 0 ? "" : ", ") + arrow_name(child) + ": " + arrow_words(child);
      }
      return all + ">";
    }
    default:
      return type.words;
  }
}

/// The columns of a table for people: "label: int64, image: fixed_size_list<uint8>[784]".
[[nodiscard]] inline std::string arrow_columns(const ArrowSchema& table) {
  std::string all = arrow_words(table).substr(std::string_view{"struct<"}.size());
  all.pop_back();
  return all.empty() ? "no column" : all;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
