// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace test {

/// Returns pseudo-random bytes, which compress badly.
template <class Bytes = std::string>
Bytes some_bytes(std::size_t count, std::uint32_t seed = 1) {
  Bytes bytes;
  bytes.resize(count);
  std::uint32_t state = seed * 2'654'435'761U + 1;
  for (auto& byte : bytes) {
    state = state * 1'664'525U + 1'013'904'223U;
    byte = static_cast<typename Bytes::value_type>(state >> 24U);
  }
  return bytes;
}

}  // namespace test
