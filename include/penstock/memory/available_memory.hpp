// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

#include <penstock/core/support/cgroup.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// The product, or the largest number when it has no room.
constexpr std::uint64_t saturating_product(std::uint64_t a, std::uint64_t b) noexcept {
  constexpr std::uint64_t most = (std::numeric_limits<std::uint64_t>::max)();
  return a != 0 && b > most / a ? most : a * b;
}

/// The system's unused memory, without a look into /proc: less than MemAvailable, since the
/// file cache counts as used.
inline std::uint64_t free_memory() noexcept {
  struct ::sysinfo system {};
  if (::sysinfo(&system) != 0) return (std::numeric_limits<std::uint64_t>::max)();
  return saturating_product(system.freeram + system.bufferram, system.mem_unit);
}

/// What RLIMIT_AS and RLIMIT_DATA (ulimit -v, -d) leave to this process. Without /proc, what it has
/// taken already is not known and counts as nothing.
inline std::uint64_t left_by_limits(const std::string& root) {
  std::uint64_t pages[6] = {};  // statm: size resident shared text lib data
  std::ifstream statm{root + "/proc/self/statm"};
  for (std::uint64_t& field : pages) statm >> field;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::uint64_t left = (std::numeric_limits<std::uint64_t>::max)();
  const auto leaves = [&](auto resource, std::uint64_t used) {
    struct ::rlimit limit {};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    left = (std::min<std::uint64_t>)(left, limit.rlim_cur - (std::min)(limit.rlim_cur, used));
  };
  leaves(RLIMIT_AS, pages[0] * page);
  leaves(RLIMIT_DATA, pages[5] * page);
  return left;
}

}  // namespace detail

/// The bytes that this process may still use: the smallest of MemAvailable (the free memory where
/// there is no /proc), of what its cgroups (v1 and v2) leave, and of what `ulimit -v` and `-d`
/// leave. `root` is for tests: the files of another machine, and nothing that is asked of this
/// one's kernel.
[[nodiscard]] inline std::uint64_t available_memory(const std::string& root = "") {
  std::uint64_t available = (std::numeric_limits<std::uint64_t>::max)();
  if (const auto kib = detail::number_after(root + "/proc/meminfo", "MemAvailable:")) {
    available = detail::saturating_product(*kib, 1024);
  } else if (root.empty()) {
    available = detail::free_memory();
  }
  if (root.empty()) available = (std::min)(available, detail::left_by_limits(root));
  for (const auto& [group, is_unified] : detail::cgroups_of_process(root, "memory")) {
    const auto limit =
        detail::number_in(group + (is_unified ? "memory.max" : "memory.limit_in_bytes"));
    if (!limit) continue;
    const char* const usage_name = is_unified ? "memory.current" : "memory.usage_in_bytes";
    const std::uint64_t usage = detail::number_in(group + usage_name).value_or(0);
    // File cache counts as usage, but the kernel gives it back before it refuses memory.
    const char* const cache_key = is_unified ? "inactive_file" : "total_inactive_file";
    const std::uint64_t cache = detail::number_after(group + "memory.stat", cache_key).value_or(0);
    const std::uint64_t used = usage - (std::min)(usage, cache);
    available = (std::min)(available, *limit - (std::min)(*limit, used));
  }
  return available;
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
