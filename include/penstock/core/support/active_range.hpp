// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

[[noreturn, gnu::cold]] inline void throw_range_is_live(std::string_view what) {
  throw std::logic_error("penstock::" + std::string{what} + ": a range over this " +
                         std::string{what} +
                         " is still live: leave its loop, or destroy the range, before another one "
                         "begins");
}
[[noreturn, gnu::cold]] inline void throw_range_outlives(std::string_view what) {
  throw std::logic_error("penstock::" + std::string{what} + ": the " + std::string{what} +
                         " of this range is gone: keep it as long as its ranges");
}

/// Tracks the active range over a loader or a transfer: at most one, identified by its serial
/// number. For the consumer's thread only.
class active_range {
 public:
  /// `what` names the owner of the ranges in messages: "loader" or "transfer". Must be a literal.
  explicit active_range(std::string_view what) noexcept : what_(what) {}

  /// Throws `std::logic_error` while a range is active, and after `close`.
  void require_none() const {
    if (is_live_) throw_range_is_live(what_);
    if (is_closed_) throw_range_outlives(what_);
  }
  /// Starts a range and returns its serial number, which is never 0.
  std::uint64_t start() noexcept {
    is_live_ = true;
    return ++serial_;
  }
  /// Whether a range is active.
  [[nodiscard]] bool is_live() const noexcept { return is_live_; }
  /// Whether `serial` is the range that was started last, active or not.
  [[nodiscard]] bool is_current(std::uint64_t serial) const noexcept {
    return serial != 0 && serial == serial_;
  }
  /// Ends the active range; false if there is none.
  bool end() noexcept {
    const bool was_live = is_live_;
    is_live_ = false;
    return was_live;
  }
  /// Allows no further ranges. An active range must be ended before.
  void close() noexcept { is_closed_ = true; }

 private:
  std::string_view what_;
  std::uint64_t serial_ = 0;
  bool is_live_ = false;
  bool is_closed_ = false;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
