#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include <penstock/core/error.hpp>

namespace penstock::inline PENSTOCK_ABI {

/// The host slots would take more memory than allowed. The message says the need, the limit and what
/// to lower; nothing has been taken.
class pinned_budget_exceeded : public error {
 public:
  pinned_budget_exceeded(std::uint64_t slots, std::uint64_t slot_bytes, std::uint64_t limit);
  /// How many bytes all slots would take.
  [[nodiscard]] std::uint64_t need() const noexcept { return need_; }
  /// How many bytes are allowed.
  [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }

 private:
  std::uint64_t need_;
  std::uint64_t limit_;
};

/// Bytes as people read them: "3.2 GiB", "512 bytes".
[[nodiscard]] inline std::string readable_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " bytes";
  static constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (value /= 1024.0; value >= 1023.95 && unit < 5; ++unit) value /= 1024.0;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", value, units[unit]);
  return text;
}

namespace detail {

/// The product, or the largest number when it has no room.
constexpr std::uint64_t saturating_product(std::uint64_t a, std::uint64_t b) noexcept {
  constexpr std::uint64_t most = (std::numeric_limits<std::uint64_t>::max)();
  return a != 0 && b > most / a ? most : a * b;
}

/// The first number of a file; nothing when there is none ("max", no such file).
inline std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file{path};
  std::uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

/// The number behind `key` in a file of lines "key value".
inline std::optional<std::uint64_t> number_behind(const std::string& path, const std::string& key) {
  std::ifstream file{path};
  for (std::string word; file >> word;) {
    std::uint64_t value = 0;
    if (word == key && file >> value) return value;
  }
  return std::nullopt;
}

/// What is left under the limits of one cgroup and all above it; `group` begins with '/'.
inline std::uint64_t left_in_cgroup(const std::string& mount, std::string group,
                                    const char* limit_name, const char* usage_name,
                                    const char* cache_key) {
  std::uint64_t left = (std::numeric_limits<std::uint64_t>::max)();
  for (;;) {
    const std::string at = mount + (group == "/" ? "" : group) + "/";
    if (const auto limit = number_in(at + limit_name)) {
      const std::uint64_t usage = number_in(at + usage_name).value_or(0);
      // File cache counts as usage, but the kernel gives it back before it refuses memory.
      const std::uint64_t cache = number_behind(at + "memory.stat", cache_key).value_or(0);
      const std::uint64_t used = usage - (std::min)(usage, cache);
      left = (std::min)(left, *limit - (std::min)(*limit, used));
    }
    const auto slash = group.find_last_of('/');
    if (group == "/" || slash == std::string::npos) return left;
    group = slash == 0 ? "/" : group.substr(0, slash);
  }
}

}  // namespace detail

/// The bytes that this process may still use: the smallest of MemAvailable and what its cgroups
/// (v1 and v2) leave. The largest number where nothing is known. `root` is for tests.
[[nodiscard]] inline std::uint64_t available_memory(const std::string& root = "") {
  std::uint64_t available = (std::numeric_limits<std::uint64_t>::max)();
  if (const auto kib = detail::number_behind(root + "/proc/meminfo", "MemAvailable:")) {
    available = detail::saturating_product(*kib, 1024);
  }
  std::ifstream groups{root + "/proc/self/cgroup"};
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      available =
          (std::min)(available, detail::left_in_cgroup(root + "/sys/fs/cgroup", group, "memory.max",
                                                       "memory.current", "inactive_file"));
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      available = (std::min)(
          available,
          detail::left_in_cgroup(root + "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
                                 "memory.usage_in_bytes", "total_inactive_file"));
    }
  }
  return available;
}

/// How much memory the host slots may take: a number of bytes, or 0 for a quarter of
/// `available_memory()` now.
[[nodiscard]] inline std::uint64_t pinned_budget(std::uint64_t bytes) {
  return bytes != 0 ? bytes : available_memory() / 4;
}

/// Throws `pinned_budget_exceeded` when `slots` slots of `slot_bytes` do not fit into `limit`.
inline void require_within_budget(std::uint64_t slots, std::uint64_t slot_bytes,
                                  std::uint64_t limit) {
  if (detail::saturating_product(slots, slot_bytes) > limit) {
    throw pinned_budget_exceeded(slots, slot_bytes, limit);
  }
}

inline pinned_budget_exceeded::pinned_budget_exceeded(std::uint64_t slots, std::uint64_t slot_bytes,
                                                      std::uint64_t limit)
    : error("pinned_budget_exceeded: " +
            readable_bytes(detail::saturating_product(slots, slot_bytes)) + " needed for " +
            std::to_string(slots) + " slots of " + readable_bytes(slot_bytes) + ", limit " +
            readable_bytes(limit) + ": lower prefetch or batch_size, or raise pinned_budget_bytes"),
      need_(detail::saturating_product(slots, slot_bytes)),
      limit_(limit) {}

}  // namespace penstock::inline PENSTOCK_ABI
