// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/batch_range.hpp>

#include <stdexcept>

#include "support/catch.hpp"

using penstock::detail::active_range;

TEST_CASE("one range is live at a time", "[core]") {
  active_range ranges{"loader"};
  CHECK_NOTHROW(ranges.require_none());
  CHECK_FALSE(ranges.is_current(0));
  const auto first = ranges.start();
  CHECK(first != 0);
  CHECK(ranges.is_live());
  CHECK(ranges.is_current(first));
  CHECK_THROWS_MATCHES(
      ranges.require_none(), std::logic_error,
      Catch::Matchers::Message("penstock::loader: a range over this loader is still live: leave "
                               "its loop, or destroy the range, before starting another one"));
  CHECK(ranges.end());
  CHECK_FALSE(ranges.is_live());
  CHECK_FALSE(ranges.end());
  CHECK_NOTHROW(ranges.require_none());
}

TEST_CASE("an earlier range is no longer the current range", "[core]") {
  active_range ranges{"transfer"};
  const auto first = ranges.start();
  ranges.end();
  CHECK(ranges.is_current(first));  // the last range remains current after it has ended
  const auto second = ranges.start();
  CHECK_FALSE(ranges.is_current(first));
  CHECK(ranges.is_current(second));
}

TEST_CASE("no range starts after its loader or transfer is destroyed", "[core]") {
  active_range ranges{"transfer"};
  ranges.close();
  CHECK_THROWS_MATCHES(
      ranges.require_none(), std::logic_error,
      Catch::Matchers::Message("penstock::transfer: the transfer of this range was destroyed: keep "
                               "it alive as long as its ranges"));
}
