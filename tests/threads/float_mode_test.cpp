// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/float_mode.hpp>

#include <thread>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

// Volatile: the arithmetic must run, under the mode of the moment.
float quarter(float value) {
  volatile float held = value;
  held = held * 0.25F;
  return held;
}

constexpr float smallest_normal = 1.17549435e-38F;

}  // namespace

TEST_CASE("denormals are zero while a flushed_denormals lives, and only then", "[core]") {
  REQUIRE(quarter(smallest_normal) != 0.0F);
  {
    const ps::flushed_denormals flushed;
    CHECK(quarter(smallest_normal) == 0.0F);
    {
      const ps::flushed_denormals nested;
      CHECK(quarter(smallest_normal) == 0.0F);
    }
    CHECK(quarter(smallest_normal) == 0.0F);
    CHECK(quarter(1.0F) == 0.25F);
  }
  CHECK(quarter(smallest_normal) != 0.0F);
}

TEST_CASE("keep_on holds for the thread that calls it and for no other", "[core]") {
  float on_other = -1.0F;
  std::thread other{[&] {
    ps::flushed_denormals::keep_on();
    on_other = quarter(smallest_normal);
  }};
  other.join();
  CHECK(on_other == 0.0F);
  CHECK(quarter(smallest_normal) != 0.0F);
}
