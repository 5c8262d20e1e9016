// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/narrow/affine_scale.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <penstock_ext/narrow/detail/narrow_record.hpp>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

/// Returns the end points of ranges: values of every magnitude, adjacent values, and values around
/// 0.
std::vector<float> ends() {
  std::vector<float> all{0.0F, -0.0F, 1.0F, 255.0F, 0.1F, 1e6F};
  for (const float size : {1e-38F, 1e-30F, 3e-8F, 0.3081F, 100.0F, 65504.0F, 7e20F}) {
    all.push_back(size);
    for (const int places : {1, 2, 3, 5, 100}) {
      all.push_back(size + static_cast<float>(places) * (std::nextafter(size, 2 * size) - size));
    }
    all.push_back(size * 1.001F);
  }
  all.push_back(3e38F);
  const std::size_t positive = all.size();
  for (std::size_t i = 0; i < positive; ++i) all.push_back(-all[i]);
  return all;
}

/// Converts `value` to a byte and back. Returns the amount by which the error exceeds half a step.
double excess(float value, const ps::affine_scale& by) {
  std::int8_t byte = 99;
  ps::detail::write_bytes({&value, 1}, by, {&byte, 1});
  const double off = std::abs(static_cast<double>(by(byte)) - static_cast<double>(value));
  return off - static_cast<double>(by.scale) / 2.0;
}

}  // namespace

TEST_CASE("a number is rounded by at most half a step, and 0 is exact",
          "[data][promise:exact-18]") {
  std::size_t ranges = 0;
  std::uint32_t state = 7;
  for (const float min : ends()) {
    for (const float max : ends()) {
      if (!(min <= max)) continue;
      ++ranges;
      const ps::affine_scale by = ps::affine_over(min, max);
      CAPTURE(min, max, by.scale, by.zero);
      const bool has_zero = min <= 0.0F && max >= 0.0F;
      // If the zero point is far away, the error includes rounding errors. The bound covers one
      // rounding of the float sum and one rounding of doubles.
      const double rounding =
          has_zero ? 0.0 : 0x1p-24 * std::max(std::abs(double{min}), std::abs(double{max}));
      const double allowed = rounding * (1 + 1e-6) + 1e-10 * static_cast<double>(by.scale);
      double worst = std::max(excess(min, by), excess(max, by));
      for (int i = 0; i < 20; ++i) {
        state = state * 1664525U + 1013904223U;
        const double share = state / 4294967296.0;
        const auto value = static_cast<float>(min + share * (double{max} - double{min}));
        worst = std::max(worst, excess(std::clamp(value, min, max), by));
      }
      CHECK(worst <= allowed);
      if (has_zero && min < max) CHECK(excess(0.0F, by) == -static_cast<double>(by.scale) / 2);
      // Checks that the step is not larger than necessary.
      const double range = double{max} - double{min};
      CHECK(static_cast<double>(by.scale) <= range / 255.0 * 1.0001 + 0x1p-117);
    }
  }
  CHECK(ranges > 500);
}

TEST_CASE("a single number is exact", "[data]") {
  for (const float value : ends()) {
    const ps::affine_scale by = ps::affine_over(value, value);
    CHECK(by.scale == 0.0F);
    CHECK(excess(value, by) == 0.0);
  }
}

TEST_CASE("a plain sum is the fused one where a scale has few bits, and not used elsewhere",
          "[data]") {
  std::vector<std::int8_t> bytes(256);
  for (int b = -128; b < 128; ++b)
    bytes[static_cast<std::size_t>(b + 128)] = static_cast<std::int8_t>(b);
  std::vector<float> found(256);
  for (const ps::affine_scale& by :
       {ps::affine_over(-1.7F, 2.3F), ps::affine_over(3.0F, 3.3F), ps::affine_scale{0.1F, 1e-3F},
        ps::affine_scale{1.0F / 3.0F, 77.7F}}) {
    CAPTURE(by.scale, by.zero);
    ps::detail::read_bytes(bytes, by, found);
    for (std::size_t i = 0; i < 256; ++i) REQUIRE(found[i] == by(bytes[i]));
  }
}

TEST_CASE("values outside the range of a byte saturate", "[data]") {
  const std::vector<float> values{-1e38F, -129.0F, -128.4F, 126.6F, 128.0F, 1e38F};
  std::vector<std::int8_t> bytes(values.size());
  ps::detail::write_bytes(values, {1.0F, 0.0F}, bytes);
  CHECK(bytes == std::vector<std::int8_t>{-128, -128, -128, 127, 127, 127});
}
