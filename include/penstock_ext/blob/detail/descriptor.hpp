// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>

#include <string>

#include <penstock_ext/blob/blob_error.hpp>
#include <penstock_ext/files/support/descriptor.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Opens the directory `name`, looked up from the directory `base`. Throws `folder_unreadable` with
/// the path `path`.
[[nodiscard]] inline descriptor open_folder(int base, const char* name, const std::string& path) {
  descriptor folder = open_at(base, name, O_DIRECTORY);
  if (folder.get() < 0) throw folder_unreadable(path, "a readable folder", system_reason());
  return folder;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
