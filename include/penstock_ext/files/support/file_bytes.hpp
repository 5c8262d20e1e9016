// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A byte as the messages of file errors have it.
inline std::string hex(std::uint8_t byte) {
  constexpr char digits[] = "0123456789abcdef";
  return std::string{"0x"} + digits[byte >> 4U] + digits[byte & 0xfU];
}

/// Appends up to `count` bytes of `source` to `bytes`, less only at the end of the content, and
/// returns how many. Memory grows with what is there and not with `count`: a file may announce
/// anything.
template <byte_source Source>
std::uint64_t append_bytes(Source& source, std::vector<std::byte>& bytes, std::uint64_t count) {
  constexpr std::uint64_t step = std::uint64_t{1} << 20;
  std::uint64_t done = 0;
  while (done < count) {
    const std::uint64_t piece =
        (std::min)(count - done, std::max<std::uint64_t>(step, source.available()));
    const std::size_t old_size = bytes.size();
    bytes.resize(old_size + static_cast<std::size_t>(piece));
    const std::size_t filled = source.read(std::span{bytes}.subspan(old_size));
    done += filled;
    if (filled < piece) {
      bytes.resize(old_size + filled);
      break;
    }
  }
  return done;
}

/// The whole content of `source`. Throws `file_format_error` if it is longer than `max_bytes`, and
/// what the source throws.
template <byte_source Source>
[[nodiscard]] std::vector<std::byte> read_bytes(
    Source& source, std::uint64_t max_bytes = (std::numeric_limits<std::uint64_t>::max)()) {
  std::vector<std::byte> bytes;
  append_bytes(source, bytes, max_bytes);
  std::byte next{};
  // Also asked for when all has come: only at the end does a compressed file prove to be whole.
  if (source.read({&next, 1}) != 0) {
    throw file_format_error(source.path(), max_bytes,
                            "at most " + std::to_string(max_bytes) + " bytes", "more");
  }
  return bytes;
}

/// The whole content of the file `path`. Throws `file_unreadable`, and `file_format_error` if it is
/// longer than `max_bytes`.
[[nodiscard]] inline std::vector<std::byte> read_file(
    std::string path, std::uint64_t max_bytes = (std::numeric_limits<std::uint64_t>::max)()) {
  file_source source{std::move(path)};
  return read_bytes(source, max_bytes);
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
