// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <utility>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The exceptions of leases whose end the device refused to record, on their way from the threads
/// that ended them to the consumer. Any thread may note one while the consumer asks.
class refused_releases {
 public:
  /// A release was refused with `error`. Of several that are not asked for the first one is kept;
  /// that of a lost slot, which is never used again, permanently.
  void note(std::exception_ptr error, bool is_slot_lost) noexcept {
    const std::lock_guard lock{mutex_};
    auto& kept = is_slot_lost ? for_good_ : once_;
    if (kept == nullptr) kept = std::move(error);
    any_.store(true, std::memory_order_release);
  }

  /// Whether `rethrow` would throw.
  [[nodiscard]] bool any() const noexcept { return any_.load(std::memory_order_acquire); }

  /// Throws what was noted: once, or for good where a slot is lost.
  void rethrow() {
    if (!any()) return;
    std::exception_ptr error;
    {
      const std::lock_guard lock{mutex_};
      error = for_good_ != nullptr ? for_good_ : std::exchange(once_, nullptr);
      any_.store(for_good_ != nullptr, std::memory_order_relaxed);
    }
    if (error) std::rethrow_exception(error);
  }

 private:
  std::mutex mutex_;  // guards the two below
  std::exception_ptr once_;
  std::exception_ptr for_good_;
  // Invariant: written under the mutex, true while one of the two is there: a look that is cheap.
  std::atomic<bool> any_{false};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
