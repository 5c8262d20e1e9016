// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A piece of a message: a string, which must outlive it, or an integer in decimal.
class text_piece {
 public:
  text_piece(const char* text) noexcept : text_(text), kind_(kind::to_zero) {}
  text_piece(const std::string& text) noexcept : text_(text.data()), value_(text.size()) {}
  text_piece(std::string_view text) noexcept : text_(text.data()), value_(text.size()) {}
  template <std::unsigned_integral Number>
  text_piece(Number whole) noexcept : value_(whole), kind_(kind::number) {}
  template <std::signed_integral Number>
  text_piece(Number whole) noexcept
      : value_(static_cast<std::uint64_t>(whole)),
        kind_(whole < 0 ? kind::negative : kind::number) {}
  text_piece(bool) = delete;
  text_piece(char) = delete;    // it would be a number
  text_piece(double) = delete;  // say how: no rounding here

  void append_to(std::string& all) const {
    switch (kind_) {
      case kind::text:
        all.append(std::string_view{text_, static_cast<std::size_t>(value_)});
        return;
      case kind::to_zero:
        all += text_;
        return;
      case kind::number:
        all += std::to_string(value_);
        return;
      case kind::negative:
        all += std::to_string(static_cast<std::int64_t>(value_));
        return;
    }
  }

 private:
  enum class kind : unsigned char { text, to_zero, number, negative };

  const char* text_ = nullptr;
  std::uint64_t value_ = 0;  // the number, or the length of the string
  kind kind_ = kind::text;
};

/// Concatenates the pieces in one call. A chain of `+` would compile all temporaries and their
/// cleanup into every caller.
[[nodiscard, gnu::noinline]] inline std::string joined(std::initializer_list<text_piece> pieces) {
  std::string all;
  for (const text_piece& piece : pieces) piece.append_to(all);
  return all;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
