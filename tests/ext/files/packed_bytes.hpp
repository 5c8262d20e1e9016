// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <penstock_ext/files/support/system_file.hpp>

#include "support/catch.hpp"
#include "support/some_bytes.hpp"
#include "support/temp_dir.hpp"

/// Helpers for tests of compressed files.
namespace test {

/// Returns bytes that compress badly, so that the compressed file needs several input buffers.
inline file_bytes noise(std::size_t size) { return some_bytes<file_bytes>(size); }

inline file_bytes joined(file_bytes first, const file_bytes& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// Converts bytes to `file_bytes`.
inline file_bytes as_file_bytes(const auto& bytes) {
  file_bytes made;
  for (const std::byte byte : bytes) made.push_back(std::to_integer<std::uint8_t>(byte));
  return made;
}

/// Returns the contents of the file `path`, opened with `open`. Throws if there are more than `max`
/// bytes.
inline auto content_by(const auto& open, const std::string& path,
                       std::uint64_t max = ~std::uint64_t{0}) {
  auto source = open(path);
  return penstock::detail::read_bytes(source, max);
}

/// Returns the decompressed contents of a file with this name and these bytes, opened with `open`.
inline file_bytes unpacked_by(const auto& open, const std::string& name, const file_bytes& file) {
  const temp_dir dir;
  return as_file_bytes(content_by(open, dir.write(name, file)));
}

/// Checks that every truncated version of a compressed file is rejected with an error at its end.
/// `error_in` returns the error for the bytes of a file.
inline void check_every_beginning(const file_bytes& whole, const auto& error_in) {
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK(error_in({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}).offset() ==
          size);
  }
  // A compressed file may consist of several parts. Therefore, one additional byte is read as the
  // start of an incomplete part.
  file_bytes two = joined(whole, whole);
  two.resize(whole.size() + 1);
  CHECK(error_in(two).offset() == whole.size() + 1);
}

}  // namespace test
