// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/core/error.hpp>
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

namespace detail {

/// Bytes as people read them: "3.2 GiB", "512 bytes".
[[nodiscard]] inline std::string readable_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return joined({bytes, " bytes"});
  static constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (value /= 1024.0; value >= 1023.95 && unit < 5; ++unit) value /= 1024.0;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", value, units[unit]);
  return text;
}

}  // namespace detail

class memory_budget;

namespace detail {

/// A demand for slots of host memory, made to a `memory_budget`.
struct slot_demand {
  std::uint64_t slot_count = 0;              ///< as many as are asked for
  std::uint64_t least = 0;                   ///< fewer than these are of no use
  std::uint64_t slot_bytes = 0;              ///< bytes of each
  std::string_view lower = "batch_size";     ///< the option that makes them smaller
  std::string_view raise = "memory.budget";  ///< the option that is the budget
};

/// What the copies of a budget share with the reservations out of it.
struct budget_account {
  explicit budget_account(std::uint64_t bytes) : limit(bytes) {}

  const std::uint64_t limit;
  std::mutex mutex;
  std::uint64_t used = 0;  // guarded; invariant: the sum of all reservations, at most limit
};

/// Memory that was granted by a `memory_budget`, given back at its end. Move-only. Used by one
/// thread at a time; may end on any, also after the budget.
class memory_reservation {
 public:
  /// Nothing, of no budget.
  memory_reservation() = default;
  memory_reservation(memory_reservation&&) noexcept = default;
  ~memory_reservation() {
    if (account_ == nullptr) return;
    const std::lock_guard lock{account_->mutex};
    account_->used -= bytes_;
  }

  /// How many slots were asked for.
  [[nodiscard]] std::uint64_t asked() const noexcept { return asked_; }
  /// How many were granted.
  [[nodiscard]] std::uint64_t slot_count() const noexcept { return slots_; }
  /// How many bytes these take.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  friend class penstock::memory_budget;

  memory_reservation(std::shared_ptr<budget_account> account, const slot_demand& demand,
                     std::uint64_t slot_count) noexcept
      : account_(std::move(account)),
        asked_(demand.slot_count),
        slots_(slot_count),
        bytes_(slot_count * demand.slot_bytes) {}

  std::shared_ptr<budget_account> account_;
  std::uint64_t asked_ = 0;
  std::uint64_t slots_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace detail

/// The host slots would take more memory than allowed, pinned or not. The message says the need,
/// the limit and what to lower; nothing has been taken.
class [[gnu::visibility("default")]] pinned_budget_exceeded : public error {
 public:
  /// For `demand` on a budget of `limit` bytes, of which `used` are taken.
  pinned_budget_exceeded(const detail::slot_demand& demand, std::uint64_t limit, std::uint64_t used)
      : error(text(demand, limit, used)),
        need_(detail::saturating_product(demand.least, demand.slot_bytes)),
        limit_(limit),
        used_(used) {}
  /// How many bytes the slots would take: all that were asked for, or the least that would do.
  [[nodiscard]] std::uint64_t need() const noexcept { return need_; }
  /// How many bytes are allowed in all.
  [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }
  /// How many of these were taken already, by loaders that share the budget.
  [[nodiscard]] std::uint64_t used() const noexcept { return used_; }

 private:
  [[gnu::cold]] static std::string text(const detail::slot_demand& demand, std::uint64_t limit,
                                        std::uint64_t used) {
    const bool is_least = demand.least < demand.slot_count;
    std::string what = detail::joined(
        {"pinned_budget_exceeded: ",
         detail::readable_bytes(detail::saturating_product(demand.least, demand.slot_bytes)),
         " needed for ", is_least ? "at least " : "", demand.least,
         demand.least == 1 ? " slot of " : " slots of ", detail::readable_bytes(demand.slot_bytes),
         ", limit ", detail::readable_bytes(limit)});
    if (used != 0) {
      what += detail::joined({", of which ", detail::readable_bytes(used), " are taken already"});
    }
    what += is_least ? detail::joined({": lower ", demand.lower, ", or raise ", demand.raise})
                     : ": lower prefetch or batch_size, raise memory.budget, or say "
                       "budget_action::fewer_slots";
    return what;
  }

  std::uint64_t need_;
  std::uint64_t limit_;
  std::uint64_t used_;
};

/// How much host memory the slots of one loader, or of several that are given the same budget, may
/// take: a handle whose copies share one account. Thread-safe.
///
///     const auto budget = ps::memory_budget::share(0.5);
///     ps::loader train{digits, ps::shuffled{}, {.batch_size = 64, .memory = {.budget = budget}}};
///     ps::loader test{others, ps::sequential{}, {.batch_size = 64, .memory = {.budget = budget}}};
///
/// The limit is fixed when the budget is made. What a loader takes comes back when its slots go:
/// with the loader, or with the last lease, range or abandoned reader that outlives it.
class memory_budget {
 public:
  /// `limit` bytes; 0 grants nothing.
  [[nodiscard]] static memory_budget bytes(std::uint64_t limit) { return memory_budget{limit}; }

  /// A part, above 0 and up to 1, of `available_memory()` now. Throws `option_error` for another.
  /// `root` is for tests.
  [[nodiscard]] static memory_budget share(double part, const std::string& root = "") {
    if (!(part > 0.0 && part <= 1.0)) {
      detail::refuse_option("budget share",
                            {std::to_string(part), " is not above 0 and at most 1"});
    }
    const std::uint64_t available = available_memory(root);
    // Not computed for 1: as a double the largest number is 2^64, which has no way back.
    return memory_budget{part == 1.0
                             ? available
                             : static_cast<std::uint64_t>(part * static_cast<double>(available))};
  }

  /// A copy shares the account. There are no moves: a budget that was moved from would have none.
  memory_budget(const memory_budget&) = default;
  memory_budget& operator=(const memory_budget&) = default;

  /// How many bytes there are in all.
  [[nodiscard]] std::uint64_t limit() const noexcept { return account_->limit; }
  /// How many are reserved at the moment; may have changed when you look.
  [[nodiscard]] std::uint64_t used() const noexcept {
    const std::lock_guard lock{account_->mutex};
    return account_->used;
  }

  /// Reserves as many slots as fit, at most those asked for. Throws `pinned_budget_exceeded` where
  /// fewer than the least fit; nothing is reserved then.
  [[nodiscard]] detail::memory_reservation reserve(const detail::slot_demand& demand) const {
    const std::lock_guard lock{account_->mutex};
    const std::uint64_t left = account_->limit - account_->used;
    // Divided, because the product may have no room.
    const std::uint64_t fitting = demand.slot_bytes == 0
                                      ? demand.slot_count
                                      : (std::min)(demand.slot_count, left / demand.slot_bytes);
    if (fitting < demand.least) {
      throw pinned_budget_exceeded(demand, account_->limit, account_->used);
    }
    account_->used += fitting * demand.slot_bytes;
    return {account_, demand, fitting};
  }

 private:
  explicit memory_budget(std::uint64_t limit)
      : account_(std::make_shared<detail::budget_account>(limit)) {}

  std::shared_ptr<detail::budget_account> account_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
