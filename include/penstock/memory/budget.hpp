// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/core/support/cgroup.hpp>
#include <penstock/core/support/text_of_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns the product, or the maximum value if the product overflows.
constexpr std::uint64_t saturating_product(std::uint64_t a, std::uint64_t b) noexcept {
  constexpr std::uint64_t max = (std::numeric_limits<std::uint64_t>::max)();
  return a != 0 && b > max / a ? max : a * b;
}

/// Returns the free memory of the system without reading /proc. The result is less than
/// MemAvailable, because the file cache counts as used.
inline std::uint64_t free_memory() noexcept {
  struct ::sysinfo system {};
  if (::sysinfo(&system) != 0) return (std::numeric_limits<std::uint64_t>::max)();
  return saturating_product(system.freeram + system.bufferram, system.mem_unit);
}

/// Returns the number of bytes that this process may still allocate under RLIMIT_AS and RLIMIT_DATA
/// (ulimit -v, -d). Without /proc, the current memory usage of the process is unknown and counts as
/// 0.
inline std::uint64_t left_by_limits(const std::string& root) {
  std::uint64_t pages[6] = {};  // fields of statm: size resident shared text lib data
  read_numbers(text_of_file(root + "/proc/self/statm").c_str(), pages);
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

/// Returns the number of bytes that this process may still allocate. This is the minimum of
/// MemAvailable, the remaining cgroup limits (v1 and v2), and the remainder of `ulimit -v` and
/// `-d`. Without /proc, the free memory replaces MemAvailable. `root` is for tests. If it is set,
/// the function reads only files in `root` and does not query the kernel.
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
    // The file cache counts as usage, but the kernel reclaims it before an allocation fails.
    const char* const cache_key = is_unified ? "inactive_file" : "total_inactive_file";
    const std::uint64_t cache = detail::number_after(group + "memory.stat", cache_key).value_or(0);
    const std::uint64_t used = usage - (std::min)(usage, cache);
    available = (std::min)(available, *limit - (std::min)(*limit, used));
  }
  return available;
}

namespace detail {

/// Formats a size as readable text, such as "3.2 GiB" or "512 bytes".
[[nodiscard]] inline std::string readable_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return str_cat({bytes, " bytes"});
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

/// A request to a `memory_budget` for host slots.
struct slot_demand {
  std::uint64_t slot_count = 0;              ///< number of slots requested
  std::uint64_t min = 0;                     ///< minimum number of slots to grant
  std::uint64_t slot_bytes = 0;              ///< size of each slot in bytes
  std::string_view lower = "batch_size";     ///< option that makes the slots smaller
  std::string_view raise = "memory.budget";  ///< option that sets the budget
};

/// The account of a budget. All copies of the budget and all reservations share it.
struct budget_account {
  explicit budget_account(std::uint64_t bytes) : limit(bytes) {}

  const std::uint64_t limit;
  std::mutex mutex;
  std::uint64_t used = 0;  // guarded; invariant: the sum of all reservations, at most `limit`
};

/// Memory granted by a `memory_budget`. The destructor returns the memory to the budget. Move-only.
/// Only one thread at a time may use a reservation. Any thread may destroy it, even after the
/// budget is destroyed.
class memory_reservation {
 public:
  /// Creates an empty reservation without a budget.
  memory_reservation() = default;
  memory_reservation(memory_reservation&&) noexcept = default;
  ~memory_reservation() {
    if (account_ == nullptr) return;
    const std::lock_guard lock{account_->mutex};
    account_->used -= bytes_;
  }

  /// Returns the number of slots requested.
  [[nodiscard]] std::uint64_t requested() const noexcept { return requested_; }
  /// Returns the number of slots granted.
  [[nodiscard]] std::uint64_t slot_count() const noexcept { return slots_; }
  /// Returns the minimum number of slots.
  [[nodiscard]] std::uint64_t min_slot_count() const noexcept { return min_; }
  /// Returns the size of the granted slots in bytes.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Returns the size in bytes of the smallest slab that the system failed to page-lock, or 0 if
  /// page-locking has not failed.
  [[nodiscard]] std::uint64_t failed_bytes() const noexcept { return failed_bytes_; }

  /// Returns all slots except `slot_count` to the budget, because the system failed to page-lock
  /// `failed` slots.
  void shrink(std::uint64_t slot_count, std::uint64_t failed) noexcept {
    const std::uint64_t slot_bytes = bytes_ / slots_;
    const std::uint64_t returned = (slots_ - slot_count) * slot_bytes;
    failed_bytes_ = failed * slot_bytes;
    slots_ = slot_count;
    bytes_ -= returned;
    const std::lock_guard lock{account_->mutex};
    account_->used -= returned;
  }

 private:
  friend class penstock::memory_budget;

  memory_reservation(std::shared_ptr<budget_account> account, const slot_demand& demand,
                     std::uint64_t slot_count) noexcept
      : account_(std::move(account)),
        requested_(demand.slot_count),
        min_(demand.min),
        slots_(slot_count),
        bytes_(slot_count * demand.slot_bytes) {}

  std::shared_ptr<budget_account> account_;
  std::uint64_t requested_ = 0;
  std::uint64_t min_ = 0;
  std::uint64_t slots_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t failed_bytes_ = 0;
};

}  // namespace detail

/// Thrown if the host slots, pinned or not, would exceed the memory budget. The message contains
/// the bytes needed, the limit, and the options that would help. No slot has been allocated.
class [[gnu::visibility("default")]] pinned_budget_exceeded : public error {
 public:
  /// Creates the error for `demand` on a budget of `limit` bytes, of which `used` bytes are
  /// reserved.
  pinned_budget_exceeded(const detail::slot_demand& demand, std::uint64_t limit, std::uint64_t used)
      : error(text(demand, limit, used)),
        need_(detail::saturating_product(demand.min, demand.slot_bytes)),
        limit_(limit),
        used_(used) {}
  /// Returns the number of bytes needed, either for all requested slots or for the minimum number
  /// of slots.
  [[nodiscard]] std::uint64_t need() const noexcept { return need_; }
  /// Returns the budget limit in bytes.
  [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }
  /// Returns the number of bytes that other loaders had already reserved from the same budget.
  [[nodiscard]] std::uint64_t used() const noexcept { return used_; }

 private:
  [[gnu::cold]] static std::string text(const detail::slot_demand& demand, std::uint64_t limit,
                                        std::uint64_t used) {
    const bool is_least = demand.min < demand.slot_count;
    std::string what = detail::str_cat(
        {"pinned_budget_exceeded: ",
         detail::readable_bytes(detail::saturating_product(demand.min, demand.slot_bytes)),
         " needed for ", is_least ? "at least " : "", demand.min,
         demand.min == 1 ? " slot of " : " slots of ", detail::readable_bytes(demand.slot_bytes),
         ", limit ", detail::readable_bytes(limit)});
    if (used != 0) {
      what += detail::str_cat({", of which ", detail::readable_bytes(used), " are already in use"});
    }
    const bool is_loader = demand.raise == detail::slot_demand{}.raise;
    what += is_least || !is_loader
                ? detail::str_cat({": lower ", demand.lower, ", or raise ", demand.raise})
                : ": lower prefetch or batch_size, raise memory.budget, or choose "
                  "budget_action::fewer_slots";
    return what;
  }

  std::uint64_t need_;
  std::uint64_t limit_;
  std::uint64_t used_;
};

/// A limit on the host slot memory of one or more loaders that share the budget. Copies of this
/// handle share one account. Thread-safe.
///
///     const auto budget = ps::memory_budget::share(0.5);
///     ps::loader train{digits, ps::shuffled{}, {.batch_size = 64, .memory = {.budget = budget}}};
///     ps::loader test{others, ps::sequential{}, {.batch_size = 64, .memory = {.budget = budget}}};
///
/// The limit is fixed when the budget is created. A loader returns its memory to the budget when
/// its slots are freed, which is when the loader and all leases, ranges and abandoned readers that
/// outlive it are destroyed.
class memory_budget {
 public:
  /// Creates a budget of `limit` bytes. A limit of 0 grants nothing.
  [[nodiscard]] static memory_budget bytes(std::uint64_t limit) { return memory_budget{limit}; }

  /// Creates a budget that is a fraction of the current `available_memory()`. Throws `option_error`
  /// unless 0 < `part` <= 1. `root` is for tests.
  [[nodiscard]] static memory_budget share(double part, const std::string& root = "") {
    if (!(part > 0.0 && part <= 1.0)) {
      detail::throw_option_error("budget share",
                                 {std::to_string(part), " must be above 0 and at most 1"});
    }
    const std::uint64_t available = available_memory(root);
    // Does not multiply if the fraction is 1. As a double, the maximum size would be rounded to
    // 2^64, which cannot be converted back.
    return memory_budget{part == 1.0
                             ? available
                             : static_cast<std::uint64_t>(part * static_cast<double>(available))};
  }

  /// Copies share the account. A move copies the handle, because a moved-from budget must still
  /// have an account.
  memory_budget(const memory_budget&) = default;
  memory_budget& operator=(const memory_budget&) = default;

  /// Returns the limit in bytes.
  [[nodiscard]] std::uint64_t limit() const noexcept { return account_->limit; }
  /// Returns the number of bytes currently reserved. Other threads may change this number at any
  /// time.
  [[nodiscard]] std::uint64_t used() const noexcept {
    const std::lock_guard lock{account_->mutex};
    return account_->used;
  }

  /// Reserves as many slots as fit, up to the requested number. If fewer than `demand.min` slots
  /// fit, reserves nothing and throws `pinned_budget_exceeded`.
  [[nodiscard]] detail::memory_reservation reserve(const detail::slot_demand& demand) const {
    const std::lock_guard lock{account_->mutex};
    const std::uint64_t left = account_->limit - account_->used;
    // Compares a quotient, because the product could overflow.
    const std::uint64_t fitting = demand.slot_bytes == 0
                                      ? demand.slot_count
                                      : (std::min)(demand.slot_count, left / demand.slot_bytes);
    if (fitting < demand.min) {
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
