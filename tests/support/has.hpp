// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string_view>

#include "support/catch.hpp"

namespace test {

/// Whether a text has another one in it; if not, the text is shown.
inline bool has(std::string_view text, std::string_view part) {
  const bool is_there = text.find(part) != std::string_view::npos;
  if (!is_there) WARN(text);
  return is_there;
}

/// Whether a text does not have another one in it; if it does, the text is shown.
inline bool lacks(std::string_view text, std::string_view part) {
  const bool is_there = text.find(part) != std::string_view::npos;
  if (is_there) WARN(text);
  return !is_there;
}

}  // namespace test
