// SPDX-License-Identifier: BSL-1.0

#include <chrono>
#include <cstdint>
#include <limits>

#include <penstock/threads/support/atomics.hpp>

#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("any duration becomes a deadline, or the latest one if it is too long", "[threads]") {
  using namespace std::chrono;
  using ps::detail::deadline_in;
  const ps::detail::deadline then{seconds{1000}};
  CHECK(deadline_in(milliseconds{2}, then) == then + milliseconds{2});
  CHECK(deadline_in(duration<double>{0.5}, then) == then + milliseconds{500});
  CHECK(deadline_in(duration<double, std::nano>{0.1}, then) ==
        then + nanoseconds{1});  // rounded up, never earlier
  CHECK(deadline_in(duration<std::int64_t, std::pico>{1001}, then) == then + nanoseconds{2});
  CHECK(deadline_in(seconds{0}, then) == then);
  CHECK(deadline_in(hours::min(), then) == then);
  CHECK(deadline_in(duration<double>{std::numeric_limits<double>::quiet_NaN()}, then) == then);
  constexpr auto latest = ps::detail::deadline::max();
  CHECK(deadline_in(hours::max(), then) == latest);
  CHECK(deadline_in(duration<double>{std::numeric_limits<double>::infinity()}, then) == latest);
  CHECK(deadline_in(nanoseconds::max(), then) == latest);
  CHECK(deadline_in(latest - then - nanoseconds{1}, then) == latest - nanoseconds{1});
  CHECK(ps::detail::deadline_at(time_point<steady_clock, minutes>{minutes{2}}) ==
        ps::detail::deadline{seconds{120}});
}

TEST_CASE("a timed sleep ends at its deadline or with the value", "[threads]") {
  const ps::detail::futex_word word{1};
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds{1};
  CHECK_FALSE(word.wait_until(1, std::memory_order_acquire, end));
  CHECK(std::chrono::steady_clock::now() >= end);
  CHECK(word.wait_until(0, std::memory_order_acquire, end));
  CHECK_FALSE(word.wait_until(1, std::memory_order_acquire, {}));  // a deadline in the past
}
