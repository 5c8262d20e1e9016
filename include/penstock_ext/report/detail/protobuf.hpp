// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Writes a message of protocol buffers, field by field. May throw std::bad_alloc.
class protobuf_message {
 public:
  /// A field of an integer type of any width, an enumeration, or bool.
  protobuf_message& number(std::uint32_t field, std::uint64_t value) {
    key(field, 0);
    varint(value);
    return *this;
  }
  /// A field of the type fixed64.
  protobuf_message& fixed64(std::uint32_t field, std::uint64_t value) {
    key(field, 1);
    for (unsigned byte = 0; byte < 8; ++byte) put(value >> (8 * byte));
    return *this;
  }
  /// A field of the type string, bytes, or of a message.
  protobuf_message& bytes(std::uint32_t field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  protobuf_message& message(std::uint32_t field, const protobuf_message& inner) {
    return bytes(field, inner.bytes_);
  }
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

 private:
  void key(std::uint32_t field, std::uint64_t type) { varint(std::uint64_t{field} << 3 | type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) put(value | 0x80);
    put(value);
  }
  void put(std::uint64_t byte) { bytes_ += static_cast<char>(static_cast<unsigned char>(byte)); }

  std::string bytes_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
