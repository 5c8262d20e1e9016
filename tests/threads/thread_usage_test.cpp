// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/support/cpus.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/catch.hpp"

TEST_CASE("a thread's usage is looked up by itself, and not too often", "[threads]") {
  penstock::detail::thread_usage usage;
  CHECK(usage.processor().count() == 0);
  constexpr std::uint64_t apart = 100;
  usage.look(99, apart);
  CHECK(usage.processor().count() == 0);
  std::uint64_t now = 100;
  // The kernel counts in microseconds, or in ticks of its own.
  while (usage.processor().count() == 0) usage.look(now += apart, apart);
  const auto before = usage.processor();
  const std::vector<char> touched(std::size_t{64} << 20, 1);
  usage.look(now + apart - 1, apart);
  CHECK(usage.processor() == before);
  const auto faults = usage.minor_faults();
  usage.look(now + apart, apart);
  CHECK(usage.processor() > before);
  CHECK(usage.minor_faults() > faults);
}
