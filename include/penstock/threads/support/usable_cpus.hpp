// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

#include <penstock/core/support/cgroup.hpp>
#include <penstock/threads/support/cpu_affinity.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The cores that the calling thread may run on at once; what the machine has where the system does
/// not say.
[[nodiscard]] inline std::size_t cpus_of_affinity() {
  const auto mask = affinity_of_this_thread();
  if (mask && !mask->empty()) return mask->size();
  return (std::max)(1U, std::thread::hardware_concurrency());
}

/// The cores that the quotas of this process's cgroups (v1 and v2), and of all above them, pay for:
/// whole ones, at least 1; the largest number without a quota. Reads files. `root` is for tests.
[[nodiscard]] inline std::size_t cpus_of_quota(const std::string& root = "") {
  std::uint64_t cpus = (std::numeric_limits<std::size_t>::max)();
  const auto limit = [&](std::uint64_t quota, std::uint64_t period) {
    if (period != 0) cpus = (std::min)(cpus, std::max<std::uint64_t>(1, quota / period));
  };
  for (const auto& [group, is_unified] : cgroups_of_process(root, "cpu")) {
    if (is_unified) {  // "max 100000", or two numbers, in microseconds
      std::ifstream file{group + "cpu.max"};
      std::uint64_t quota = 0;
      std::uint64_t period = 0;
      if (file >> quota >> period) limit(quota, period);
    } else {  // -1: no quota
      std::ifstream file{group + "cpu.cfs_quota_us"};
      std::int64_t quota = -1;
      const auto period = number_in(group + "cpu.cfs_period_us");
      if (file >> quota && quota > 0 && period) limit(static_cast<std::uint64_t>(quota), *period);
    }
  }
  return static_cast<std::size_t>(cpus);
}

/// The cores that this process may use at once, at least 1.
[[nodiscard]] inline std::size_t usable_cpus() {
  return (std::min)(cpus_of_affinity(), cpus_of_quota());
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
