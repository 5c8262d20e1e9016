// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace mlp {

/// A number as it lies at the start of `bytes`, which are enough, in the byte order of the machine.
template <class T>
[[nodiscard]] T raw_value(std::span<const std::byte> bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value{};
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// The reverse: puts a number at the end of `to`.
template <class T>
void append_raw(std::vector<std::byte>& to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto bytes = std::as_bytes(std::span{&value, 1});
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace mlp
