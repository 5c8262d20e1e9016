// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The first number in a file; `std::nullopt` if there is none ("max", or no such file).
inline std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file{path};
  std::uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

/// The number after `key` in a file of lines "key value".
inline std::optional<std::uint64_t> number_after(const std::string& path, const std::string& key) {
  std::ifstream file{path};
  for (std::string word; file >> word;) {
    std::uint64_t value = 0;
    if (word == key && file >> value) return value;
  }
  return std::nullopt;
}

/// A cgroup that limits this process.
struct cgroup {
  std::string folder;       ///< of its files, with a slash at its end
  bool is_unified = false;  ///< whether its hierarchy is that of cgroup v2
};

/// The cgroups of this process that `controller` may limit, each followed by its ancestors. `root`
/// is "" or, in tests, a copy of another machine's files.
[[nodiscard]] inline std::vector<cgroup> cgroups_of_process(const std::string& root,
                                                            std::string_view controller) {
  std::vector<cgroup> all;
  std::ifstream groups{root + "/proc/self/cgroup"};
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view text = line;
    const auto controllers = text.substr(first + 1, second - first - 1);
    const bool is_unified = controllers.empty();
    if (!is_unified &&
        joined({",", controllers, ","}).find(joined({",", controller, ","})) == std::string::npos) {
      continue;
    }
    const std::string mount =
        joined({root, "/sys/fs/cgroup", is_unified ? "" : "/", is_unified ? "" : controller});
    for (auto group = text.substr(second + 1);;) {
      all.push_back({joined({mount, group == "/" ? "" : group, "/"}), is_unified});
      const auto slash = group.find_last_of('/');
      if (group == "/" || slash == std::string_view::npos) break;
      group = slash == 0 ? "/" : group.substr(0, slash);
    }
  }
  return all;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
