// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>

#include <penstock/core/version.hpp>

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

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
