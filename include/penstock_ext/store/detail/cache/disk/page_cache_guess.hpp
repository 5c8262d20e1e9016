// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Guesses whether files lie in the system's memory, so that not each has to be opened for it:
/// where the last 32 that were looked at did, one of 16 is looked at. A wrong guess costs a read
/// that waits: for the disk, or where the file is gone, for the store below. From any thread.
class page_cache_guess {
 public:
  /// Whether the next file is to be looked at; else it is taken to lie there.
  [[nodiscard]] bool is_due() noexcept {
    return in_a_row_.load(std::memory_order_relaxed) < enough ||
           turn_.fetch_add(1, std::memory_order_relaxed) % one_of == 0;
  }
  /// Whether a file that was looked at lay there.
  void saw(bool is_there) noexcept {
    if (!is_there) {
      in_a_row_.store(0, std::memory_order_relaxed);
    } else if (in_a_row_.load(std::memory_order_relaxed) < enough) {
      in_a_row_.fetch_add(1, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr std::uint32_t enough = 32;
  static constexpr std::uint32_t one_of = 16;

  // Files that lay there one after the other, `enough` or a few more by threads at once. Relaxed,
  // as `turn_`: nothing but the next guess depends on them.
  std::atomic<std::uint32_t> in_a_row_{0};
  std::atomic<std::uint32_t> turn_{0};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
