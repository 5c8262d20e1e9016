// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>
#include <penstock_ext/files/support/file_bytes.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A label of a row of a CIFAR file.
struct cifar_label {
  const char* name;
  std::uint8_t classes;
};

inline constexpr std::size_t cifar_image_bytes = std::size_t{3} * 32 * 32;

/// What a CIFAR file is, found out by its first bytes, where it is not one: with what to do, after
/// a comma; else "".
[[nodiscard]] inline std::string_view foreign_to_cifar(std::span<const std::byte> bytes) noexcept {
  const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  if (text.starts_with("\x1f\x8b")) return ", a gzip file: unpack it by tar -xzf";
  if (text.size() > 262 && text.substr(257, 5) == "ustar") return ", a tar file: unpack it";
  if (text.starts_with("\x80\x02") || text.starts_with("\x80\x03")) {
    return ", a pickle of Python: take the binary version of the data set";
  }
  return {};
}

/// Reads a file of CIFAR's binary version: rows of a byte for each of `labels` and an image. Throws
/// `file_truncated` where it ends within a row or has none, `file_format_error` for a label that no
/// class has, and what the source throws. Takes no more memory than what the file holds and a
/// mebibyte, unless it grows meanwhile.
template <byte_source Source>
[[nodiscard]] std::vector<std::byte> read_cifar(Source& source,
                                                std::span<const cifar_label> labels) {
  std::vector<std::byte> bytes;
  append_bytes(source, bytes, source.available());
  std::byte next{};
  if (source.read({&next, 1}) != 0) {  // the source did not know how much there was
    bytes.push_back(next);
    append_bytes(source, bytes, (std::numeric_limits<std::uint64_t>::max)());
  }
  const std::size_t row = labels.size() + cifar_image_bytes;
  const std::string foreign{foreign_to_cifar(bytes)};
  if (bytes.empty() || bytes.size() % row != 0) {
    throw file_truncated(
        source.path(), bytes.size(), "the end of a row of " + std::to_string(row) + " bytes",
        "the end of the file" +
            (bytes.empty()
                 ? ", which is empty"
                 : ", " + std::to_string(bytes.size() % row) + " bytes after the last whole row") +
            foreign);
  }
  for (std::size_t begin = 0; begin < bytes.size(); begin += row) {
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const auto found = std::to_integer<unsigned>(bytes[begin + i]);
      if (found < labels[i].classes) continue;
      throw file_format_error(
          source.path(), begin + i,
          std::string{labels[i].name} + " below " + std::to_string(unsigned{labels[i].classes}),
          std::to_string(found) + foreign);
    }
  }
  return bytes;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
