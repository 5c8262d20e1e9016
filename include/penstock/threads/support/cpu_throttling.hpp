// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <penstock/core/support/cgroup.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// How often and for how long the threads of a container had to stop because its quota of processor
/// time was used up.
struct cpu_throttling {
  std::uint64_t count = 0;  ///< periods in which they did
  std::chrono::nanoseconds time{0};
};

/// That of this process's cgroups (v1 and v2) and all above them, since they exist; nothing where
/// there is no quota. Reads files. `root` is for tests: the files of another machine.
[[nodiscard]] inline cpu_throttling cpu_throttling_so_far(const std::string& root = "") {
  cpu_throttling all;
  for (const auto& [group, is_unified] : cgroups_of_process(root, "cpu")) {
    const std::string file = group + "cpu.stat";
    all.count += number_after(file, "nr_throttled").value_or(0);
    if (is_unified) {
      all.time += std::chrono::microseconds{number_after(file, "throttled_usec").value_or(0)};
    } else {
      all.time += std::chrono::nanoseconds{number_after(file, "throttled_time").value_or(0)};
    }
  }
  return all;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
