// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string_view>

#include "support/catch.hpp"

namespace test {

/// Returns true if `text` contains `part`; otherwise prints the text.
inline bool has(std::string_view text, std::string_view part) {
  const bool is_there = text.find(part) != std::string_view::npos;
  if (!is_there) WARN(text);
  return is_there;
}

/// Returns true if `text` does not contain `part`; otherwise prints the text.
inline bool lacks(std::string_view text, std::string_view part) {
  const bool is_there = text.find(part) != std::string_view::npos;
  if (is_there) WARN(text);
  return !is_there;
}

}  // namespace test
