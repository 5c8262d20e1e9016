// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <glob.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Returns the paths that match a shell pattern such as `"fineweb/train_*.bin"`. `*`, `?` and
/// `[a-z]` do not match a slash or the leading dot of a name. The paths are sorted bytewise, so
/// that the order is the same on all machines and in all locales. Throws `file_unreadable` if no
/// path matches, or if a folder that the pattern searches cannot be read. Throws `std::bad_alloc`.
[[nodiscard]] inline std::vector<std::string> glob(const std::string& pattern) {
  ::glob_t found{};
  const std::unique_ptr<::glob_t, void (*)(::glob_t*)> owner{&found, &::globfree};
  errno = 0;
  const int problem = ::glob(pattern.c_str(), GLOB_ERR | GLOB_NOSORT, nullptr, &found);
  if (problem == GLOB_NOSPACE) throw std::bad_alloc{};
  if (problem != 0) {
    const std::string reason = problem == GLOB_NOMATCH ? "none" : detail::system_reason();
    throw file_unreadable(pattern, 0, "a path that matches this pattern", reason);
  }
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
