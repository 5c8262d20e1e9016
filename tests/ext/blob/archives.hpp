// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace test {

/// Returns a tar header in POSIX format. After a change, the header must be passed to `sealed`
/// again.
inline std::string tar_header_of(std::string_view name, std::uint64_t size, char type = '0',
                                 std::string_view prefix = {}) {
  std::string block(512, '\0');
  name.copy(block.data(), 100);
  std::snprintf(block.data() + 100, 8, "0000644");
  std::snprintf(block.data() + 108, 8, "0000000");
  std::snprintf(block.data() + 116, 8, "0000000");
  std::snprintf(block.data() + 124, 12, "%011llo", static_cast<unsigned long long>(size));
  std::snprintf(block.data() + 136, 12, "00000000000");
  block[156] = type;
  std::memcpy(block.data() + 257,
              "ustar\0"
              "00",
              8);
  prefix.copy(block.data() + 345, 155);
  return block;
}

/// Returns the header with a valid checksum.
inline std::string sealed(std::string block) {
  std::memset(block.data() + 148, ' ', 8);
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  std::snprintf(block.data() + 148, 8, "%06o", sum);
  return block;
}

/// A tar archive that a test builds member by member.
struct archive {
  std::string bytes;

  /// Appends bytes, padded to a whole number of blocks.
  archive& raw(std::string_view content) {
    bytes += content;
    bytes.resize((bytes.size() + 511) / 512 * 512, '\0');
    return *this;
  }
  /// Adds a member of any type.
  archive& add(std::string_view name, std::string_view content, char type = '0') {
    return raw(sealed(tar_header_of(name, content.size(), type))).raw(content);
  }
  /// Adds a pax extended header with a single record. The record applies to the next member or,
  /// with type 'g', to all later members.
  archive& pax(std::string_view key, std::string_view value, char type = 'x') {
    const std::string rest = ' ' + std::string{key} + '=' + std::string{value} + '\n';
    std::size_t length = rest.size() + 1;
    while (std::to_string(length).size() + rest.size() != length) ++length;
    return add("PaxHeaders/x", std::to_string(length) + rest, type);
  }
  /// Adds a GNU long-name header.
  archive& long_name(std::string_view name) {
    return add("././@LongLink", std::string{name} + '\0', 'L');
  }
  /// Returns the archive including its end marker.
  [[nodiscard]] std::string ended() const { return bytes + std::string(1024, '\0'); }
};

/// An in-memory archive with the interface that a walk requires.
class archive_in_memory {
 public:
  explicit archive_in_memory(std::string_view bytes) : bytes_(bytes) {}
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> out) const {
    if (offset >= bytes_.size()) return 0;
    const std::string_view piece = bytes_.substr(static_cast<std::size_t>(offset), out.size());
    std::memcpy(out.data(), piece.data(), piece.size());
    return piece.size();
  }
  [[nodiscard]] std::uint64_t size() const { return bytes_.size(); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string_view bytes_;
  std::string path_ = "in memory";
};

}  // namespace test
