// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include <penstock/observe/stats.hpp>

namespace test {

/// Two clocks that stand until a test moves them; copies are the same clocks.
struct played_clocks {
  struct hands {
    std::atomic<std::uint64_t> ticks{1'000'000};
    std::atomic<std::int64_t> nanoseconds{5'000'000};
  };
  std::shared_ptr<hands> at = std::make_shared<hands>();
  penstock::stats_clock kind = penstock::stats_clock::tsc;

  /// Both go on by that many nanoseconds; a tick is half a nanosecond.
  void pass(std::int64_t nanoseconds) const {
    at->nanoseconds += nanoseconds;
    at->ticks += static_cast<std::uint64_t>(2 * nanoseconds);
  }
  /// The ticks alone go on, or back.
  void step(std::int64_t ticks) const { at->ticks += static_cast<std::uint64_t>(ticks); }

  [[nodiscard]] penstock::stats_clock source() const noexcept { return kind; }
  [[nodiscard]] std::uint64_t ticks() const noexcept { return at->ticks; }
  [[nodiscard]] std::chrono::nanoseconds steady() const noexcept {
    return std::chrono::nanoseconds{at->nanoseconds};
  }
  [[nodiscard]] std::uint64_t ticks_of_ten_milliseconds() const noexcept { return 20'000'000; }
};

}  // namespace test
