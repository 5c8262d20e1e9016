// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/data/reader.hpp>
#include <penstock/penstock.hpp>

#include "augment.hpp"
#include "support/catch.hpp"

namespace {

namespace ps = penstock;

using image = std::array<std::uint8_t, 784>;

constexpr std::int32_t pixel = 1 << 16;

image warped(const image& in, const mlp::augment::affine& map) {
  image out{};
  mlp::augment::warp(in.data(), out.data(), map);
  return out;
}

std::size_t at(std::size_t x, std::size_t y) { return y * 28 + x; }

image random_image() {
  image p{};
  std::uint32_t state = 1;
  for (auto& value : p) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<std::uint8_t>(state >> 24U);
  }
  return p;
}

}  // namespace

TEST_CASE("a warp is the mean of seven bilinear points", "[mlp]") {
  const image in = random_image();
  const mlp::augment::affine map{62'000, 9'000, -150'000, -9'500, 70'000, 40'000};
  const image out = warped(in, map);
  const auto value = [&](double u, double v) {  // bilinear, 0 outside
    const auto one = [&](double x, double y) {
      const bool inside = x >= 0 && x < 28 && y >= 0 && y < 28;
      return inside ? in[at(static_cast<std::size_t>(x), static_cast<std::size_t>(y))] : 0;
    };
    const double x = std::floor(u);
    const double y = std::floor(v);
    const double right = u - x;
    const double below = v - y;
    return (one(x, y) * (1 - right) + one(x + 1, y) * right) * (1 - below) +
           (one(x, y + 1) * (1 - right) + one(x + 1, y + 1) * right) * below;
  };
  for (std::size_t y = 0; y < 28; ++y) {
    for (std::size_t x = 0; x < 28; ++x) {
      double sum = 0.0;
      for (int point = 0; point < 7; ++point) {
        const double turn = point * 3.14159265358979 / 3.0;
        const double radius = point == 6 ? 0.0 : 0.375;
        const double px = static_cast<double>(x) + radius * std::cos(turn);
        const double py = static_cast<double>(y) + radius * std::sin(turn);
        sum += value((map.ux * px + map.uy * py + map.u0) / pixel,
                     (map.vx * px + map.vy * py + map.v0) / pixel);
      }
      CAPTURE(x, y);
      // The fraction of each coordinate has seven bits.
      CHECK(std::abs(out[at(x, y)] - sum / 7.0) < 3.0);
    }
  }
}

TEST_CASE("augmented samples keep their label and are the same for the same key", "[mlp]") {
  const image in = random_image();
  const std::vector<std::uint8_t> label{6};
  const ps::memory_dataset<ps::digit_record> plain{in, label};
  const auto data = plain | ps::map<ps::digit_record>(mlp::augment{});
  const ps::batch_layout<ps::digit_record> layout{{}, 1};
  ps::reader reader{data};
  const auto read = [&](std::uint64_t seed, std::uint64_t epoch) {
    std::vector<std::byte> memory(layout.bytes());
    const ps::batch_view<ps::digit_record> out{memory.data(), layout, 0, 1};
    const std::uint64_t index = 0;
    reader.read({&index, 1}, out, {.seed = seed, .epoch = epoch});
    CHECK(ps::get<"label">(out)[0] == 6);
    image copy{};
    std::copy_n(ps::get<"image">(out).data(), copy.size(), copy.begin());
    return copy;
  };
  CHECK(read(1, 0) == read(1, 0));
  CHECK(read(1, 0) != read(1, 1));
  CHECK(read(1, 0) != read(2, 0));
}
