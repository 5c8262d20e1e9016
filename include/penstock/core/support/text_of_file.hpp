// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns the first 16 KiB of a system file, such as a file in /proc, or an empty string if the
/// file cannot be read. Does not use a file stream, because its constructor and destructor would be
/// compiled into each caller.
[[nodiscard, gnu::noinline]] inline std::string text_of_file(const std::string& path) {
  std::array<char, 16384> text;
  std::size_t length = 0;
  if (const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC); file >= 0) {
    for (::ssize_t more = 1; more > 0 && length < text.size();) {
      more = ::read(file, text.data() + length, text.size() - length);
      if (more > 0) length += static_cast<std::size_t>(more);
    }
    ::close(file);
  }
  return {text.data(), length};
}

/// Parses up to `into.size()` integers at the start of `text`. Returns the number of integers
/// parsed.
inline std::size_t read_numbers(const char* text, std::span<std::uint64_t> into) noexcept {
  std::size_t count = 0;
  for (char* end = nullptr; count < into.size(); ++count, text = end) {
    into[count] = std::strtoull(text, &end, 10);
    if (end == text) break;
  }
  return count;
}

/// Returns the first integer in a file, or `std::nullopt` if the file contains no integer ("max")
/// or does not exist.
inline std::optional<std::uint64_t> number_in(const std::string& path) {
  std::uint64_t value = 0;
  if (read_numbers(text_of_file(path).c_str(), {&value, 1}) == 0) return std::nullopt;
  return value;
}

/// Returns the integer after `key` in a file of "key value" lines, or `std::nullopt`.
inline std::optional<std::uint64_t> number_after(const std::string& path, std::string_view key) {
  const std::string text = text_of_file(path);
  std::uint64_t value = 0;
  for (std::size_t at = 0; (at = text.find(key, at)) != std::string::npos;) {
    const bool begins_line = at == 0 || text[at - 1] == '\n';
    at += key.size();
    const bool is_whole = text[at] == ' ' || text[at] == '\t';
    if (begins_line && is_whole && read_numbers(&text[at], {&value, 1}) == 1) return value;
  }
  return std::nullopt;
}

/// Removes and returns the part of `rest` before the first `end`, and also removes `end`. Without
/// an `end`, removes and returns all of `rest`.
[[nodiscard, gnu::noinline]] inline std::string_view cut_before(std::string_view& rest,
                                                                char end) noexcept {
  const std::string_view part = rest.substr(0, rest.find(end));
  rest.remove_prefix((std::min)(rest.size(), part.size() + 1));
  return part;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
