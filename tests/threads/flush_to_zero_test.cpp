// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/flush_to_zero.hpp>

#include <array>
#include <thread>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

// The variable is volatile, so that the arithmetic runs in the current mode.
float quarter(float value) {
  volatile float held = value;
  held = held * 0.25F;
  return held;
}

constexpr float smallest_normal = 1.17549435e-38F;

// Functions without volatile variables, so that the compiler may optimize them. The functions are
// not inlined, so that the compiler does not know the values or the caller's memory.
[[gnu::noinline]] float product(float a, float b) { return a * b; }
[[gnu::noinline]] float flushed_product(float a, float b) {
  const ps::scoped_flush_to_zero flushed;
  return product(a, b);
}
[[gnu::noinline]] void quarter_before_and_meanwhile(const float* from, bool* is_small, float* to) {
  *is_small = *from * 0.25F != 0.0F;
  const ps::scoped_flush_to_zero flushed;
  *to = *from * 0.25F;
}
[[gnu::noinline]] void quarter_meanwhile_and_after(const float* from, float* to, bool* is_small) {
  {
    const ps::scoped_flush_to_zero flushed;
    for (int i = 0; i < 8; ++i) to[i] = from[i] * 0.25F;
  }
  *is_small = *from * 0.25F != 0.0F;
}

}  // namespace

TEST_CASE("a scoped_flush_to_zero flushes denormals during its lifetime only", "[core]") {
  REQUIRE(quarter(smallest_normal) != 0.0F);
  {
    const ps::scoped_flush_to_zero flushed;
    CHECK(quarter(smallest_normal) == 0.0F);
    {
      const ps::scoped_flush_to_zero nested;
      CHECK(quarter(smallest_normal) == 0.0F);
    }
    CHECK(quarter(smallest_normal) == 0.0F);
    CHECK(quarter(1.0F) == 0.25F);
  }
  CHECK(quarter(smallest_normal) != 0.0F);
}

TEST_CASE("enable_permanently applies to the calling thread only", "[core]") {
  float on_other = -1.0F;
  std::thread other{[&] {
    ps::scoped_flush_to_zero::enable_permanently();
    on_other = quarter(smallest_normal);
  }};
  other.join();
  CHECK(on_other == 0.0F);
  CHECK(quarter(smallest_normal) != 0.0F);
}

TEST_CASE("a function that is not inlined computes in the mode of its caller", "[core]") {
  volatile float small = smallest_normal;
  CHECK(flushed_product(small, 0.25F) == 0.0F);
  CHECK(product(small, 0.25F) != 0.0F);
}

TEST_CASE("a value written to memory is computed under the current mode", "[core]") {
  std::array<float, 8> from{};
  from.fill(smallest_normal);
  std::array<float, 8> to{};
  to.fill(-1.0F);
  bool is_small = false;
  SECTION("not before the mode is set") {
    quarter_before_and_meanwhile(from.data(), &is_small, to.data());
    CHECK(to[0] == 0.0F);
  }
  SECTION("not after the mode is restored") {
    quarter_meanwhile_and_after(from.data(), to.data(), &is_small);
    CHECK(to == std::array<float, 8>{});
  }
  CHECK(is_small);
}
