// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace test {

/// Returns the masked CRC-32C of `bytes`, computed bit by bit.
inline std::uint32_t slow_masked_crc(std::string_view bytes) {
  std::uint32_t state = 0xffffffffU;
  for (const char byte : bytes) {
    state ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) state = state >> 1U ^ (state % 2 == 1 ? 0x82f63b78U : 0U);
  }
  state = ~state;
  return (state >> 15U | state << 17U) + 0xa282ead8U;
}

/// Returns the bytes of a number, least significant byte first.
template <class Number>
std::string number_bytes(Number number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

/// Returns `data` as a record of a TFRecord file.
inline std::string tf_record(const std::string& data) {
  const std::string length = number_bytes(std::uint64_t{data.size()});
  return length + number_bytes(slow_masked_crc(length)) + data +
         number_bytes(slow_masked_crc(data));
}

/// Returns a protobuf varint.
inline std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80U; value >>= 7U) bytes += static_cast<char>(value % 0x80U | 0x80U);
  return bytes + static_cast<char>(value);
}

/// Returns a protobuf field with a length.
inline std::string message(std::uint64_t number, const std::string& bytes) {
  return varint(number * 8 + 2) + varint(bytes.size()) + bytes;
}

/// Returns an entry of the map of features. `kind` is 1 for bytes, 2 for float, 3 for int64.
inline std::string feature(const std::string& key, std::uint64_t kind, const std::string& list) {
  return message(1, message(1, key) + message(2, message(kind, list)));
}

/// Returns a tf.Example with these entries.
inline std::string example(const std::string& entries) { return message(1, entries); }

}  // namespace test
