// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <cstdlib>

namespace test {

/// Returns the value of a numeric environment variable, or `otherwise` if the variable is not set.
inline std::uint64_t number_in_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace test
