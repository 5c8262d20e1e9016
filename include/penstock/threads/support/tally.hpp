// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A number that one thread writes and any thread reads. Writing it is a load and a store, without
/// a locked instruction.
class tally {
 public:
  /// The writing thread: `more` is added.
  void add(std::uint64_t more) noexcept { set(value() + more); }
  /// The writing thread: the number is `value` from now on.
  void set(std::uint64_t value) noexcept { value_.store(value, std::memory_order_relaxed); }
  /// The number. From any thread.
  [[nodiscard]] std::uint64_t value() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }

 private:
  // Invariant: one thread stores. Relaxed: it says nothing about other memory, and a thread that
  // got a batch sees all that was counted before the batch was announced.
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
