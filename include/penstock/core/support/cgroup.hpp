// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/support/text_of_file.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A cgroup that limits this process.
struct cgroup {
  std::string folder;       ///< folder that contains the cgroup files, with a trailing slash
  bool is_unified = false;  ///< true for cgroup v2
};

/// Returns the cgroups in which `controller` may limit this process, each followed by its
/// ancestors. `root` is empty or, in tests, a folder with files copied from another machine.
[[nodiscard]] inline std::vector<cgroup> cgroups_of_process(const std::string& root,
                                                            std::string_view controller) {
  std::vector<cgroup> all;
  const std::string text = text_of_file(root + "/proc/self/cgroup");
  for (std::string_view lines = text; !lines.empty();) {
    std::string_view group = cut_before(lines, '\n');  // such as "4:cpu,cpuacct:/outer/inner"
    static_cast<void>(cut_before(group, ':'));
    std::string_view controllers = cut_before(group, ':');
    const bool is_unified = controllers.empty();
    bool is_listed = is_unified;
    while (!controllers.empty()) is_listed |= cut_before(controllers, ',') == controller;
    if (!is_listed || group.empty()) continue;
    const std::string mount = str_cat({root, "/sys/fs/cgroup/", is_unified ? "" : controller});
    for (bool is_top = false; !is_top;) {  // the cgroup "/" is last
      is_top = group.size() <= 1;
      all.push_back({str_cat({mount, is_top ? "" : group, "/"}), is_unified});
      const auto slash = group.rfind('/');
      group = group.substr(0, slash == std::string_view::npos ? 0 : slash);
    }
  }
  return all;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
