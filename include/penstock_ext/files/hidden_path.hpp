// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns an ASCII letter in lower case, and any other byte unchanged.
[[nodiscard]] constexpr char lowered(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

/// Returns true if `text` equals `wanted`, ignoring case. `wanted` must be in lower case.
[[nodiscard]] constexpr bool is_in_any_case(std::string_view text,
                                            std::string_view wanted) noexcept {
  return std::equal(text.begin(), text.end(), wanted.begin(), wanted.end(),
                    [](char a, char b) { return lowered(a) == b; });
}

}  // namespace detail

/// Returns true if a component of `path` is a file or folder that systems and tools create next to
/// data. The name of such a component starts with a dot (`.ipynb_checkpoints`, `.DS_Store`,
/// `._1.jpg`), or is `__MACOSX`, `Thumbs.db` or `desktop.ini`. The components `.` and `..` are not
/// hidden. `image_folder` and `tar_shards` skip such entries, and a program that lists a store can
/// do the same.
[[nodiscard]] constexpr bool is_hidden_path(std::string_view path) noexcept {
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    path.remove_prefix((std::min)(part.size() + 1, path.size()));
    if (part.starts_with('.') ? part != "." && part != ".."
                              : part == "__MACOSX" || detail::is_in_any_case(part, "thumbs.db") ||
                                    detail::is_in_any_case(part, "desktop.ini")) {
      return true;
    }
  }
  return false;
}

namespace detail {

/// Counts the entries that a listing skipped because of their names.
struct hidden_entries {
  std::uint64_t count = 0;
  std::string example = {};  ///< path of the first entry

  /// Counts the entry `path`.
  void add(std::string_view path) {
    if (count++ == 0) example = path;
  }
  /// Adds the counts of another listing.
  void add(const hidden_entries& other) {
    if (count == 0) example = other.example;
    count += other.count;
  }
  /// Returns a warning, or nothing if no entry was skipped. In the warning, `kind` follows the
  /// number of entries.
  [[nodiscard]] std::vector<std::string> warnings(const std::string& where,
                                                  const std::string& kind) const {
    if (count == 0) return {};
    return {where + ": left out " + std::to_string(count) + ' ' + kind + ", such as " + example};
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
