// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/support/hill_climber.hpp>

#include <cstdint>
#include <optional>

#include "support/catch.hpp"

using penstock::detail::pace;
using penstock::detail::throughput_window;

namespace {

/// A simulated loop whose readers are busy two thirds of the time.
struct played {
  /// Returns the number of batches until a window of four batches is complete. Each batch takes 90
  /// ticks of work and `waits` ticks of waiting.
  int batches_until_window(std::uint64_t waits) {
    for (int batches = 1;; ++batches) {
      now += 90 + waits;
      waited += waits;
      const auto busy = [this] { return std::optional<std::uint64_t>{now * 2 / 3}; };
      window = meter.record(now, waited, 4, busy);
      if (window) return batches;
      if (batches == 100) return 0;
    }
  }

  throughput_window meter;
  std::optional<pace> window;
  std::uint64_t now = 1000;
  std::uint64_t waited = 0;
};

}  // namespace

TEST_CASE("a window reports the time per batch, the waits, and the busy readers", "[load]") {
  played loop;
  CHECK(loop.batches_until_window(30) == 3 + 4);
  CHECK(loop.window->step.mean() == Approx(90));
  CHECK(loop.window->waits.mean() == Approx(30));
  CHECK(loop.window->busy.mean() == Approx(2.0 / 3).epsilon(0.01));
  CHECK(loop.window->ticks() == Approx(120));
  CHECK(loop.window->waiting() == Approx(0.25));
  CHECK(loop.window->readers_needed() == Approx(8.0 / 9).epsilon(0.01));
  CHECK(loop.batches_until_window(30) == 4);  // the next window starts at once
}

TEST_CASE("two batches are skipped after a change, and one more after a pause", "[load]") {
  played loop;
  loop.batches_until_window(0);
  loop.meter.settle();
  CHECK(loop.batches_until_window(0) == 2 + 4);
  loop.meter.pause();
  loop.now += 1'000'000;
  CHECK(loop.batches_until_window(0) == 3 + 4);
  CHECK(loop.window->step.mean() == Approx(90));
}

TEST_CASE("measurements before a change do not count after it", "[load]") {
  played loop;
  const auto busy = [&] { return std::optional<std::uint64_t>{loop.now * 2 / 3}; };
  for (int batch = 0; batch < 3 + 2; ++batch) {  // three skipped batches, then half a window
    loop.now += 1000;
    CHECK_FALSE(loop.meter.record(loop.now, loop.waited, 4, busy));
  }
  loop.meter.settle();
  CHECK(loop.batches_until_window(30) == 2 + 4);
  CHECK(loop.window->ticks() == Approx(120));
}

TEST_CASE("short ranges make up a window together", "[load]") {
  played loop;
  const auto busy = [&] { return std::optional<std::uint64_t>{loop.now * 2 / 3}; };
  std::optional<pace> window;
  int ranges = 0;
  for (; ranges < 10 && !window; ++ranges) {
    loop.meter.pause();
    for (int batch = 0; batch < 5; ++batch) {  // the window skips the first three batches
      loop.now += 120;
      loop.waited += 30;
      window = loop.meter.record(loop.now, loop.waited, 4, busy);
    }
    loop.now += 1'000'000;
  }
  REQUIRE(window.has_value());
  CHECK(ranges == 2);
  CHECK(window->ticks() == Approx(120));
  CHECK(window->busy.mean() == Approx(2.0 / 3).epsilon(0.01));
}

TEST_CASE("batches prefetched before a change are skipped until a batch is waited for", "[load]") {
  played loop;
  loop.batches_until_window(0);
  loop.meter.settle(10);
  CHECK(loop.batches_until_window(0) == 10 + 2 + 4);
  loop.meter.settle(10);
  CHECK(loop.batches_until_window(5) == 1 + 2 + 4);
}
