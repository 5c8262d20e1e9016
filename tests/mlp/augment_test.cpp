// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/penstock.hpp>

#include "augment.hpp"
#include "support/catch.hpp"

namespace {

namespace ps = penstock;

using picture = std::array<std::uint8_t, 784>;

constexpr std::int32_t pixel = 1 << 16;
constexpr mlp::augment::affine identity{pixel, 0, 0, 0, pixel, 0};

picture warped(const picture& in, const mlp::augment::affine& map) {
  picture out{};
  mlp::augment::warp(in.data(), out.data(), map);
  return out;
}

std::size_t at(std::size_t x, std::size_t y) { return y * 28 + x; }

picture random_picture() {
  picture p{};
  std::uint32_t state = 1;
  for (auto& value : p) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<std::uint8_t>(state >> 24U);
  }
  return p;
}

}  // namespace

TEST_CASE("a warp keeps an even picture even, and background lies around it", "[mlp]") {
  picture full{};
  full.fill(255);
  const picture same = warped(full, identity);
  CHECK(same[at(14, 14)] == 255);
  CHECK(same[at(1, 1)] == 255);
  CHECK(same[at(0, 14)] < 255);  // its outer points lie halfway to the background

  auto away = identity;
  away.u0 = 100 * pixel;
  CHECK(warped(full, away) == picture{});
  away.u0 = -100 * pixel;
  CHECK(warped(full, away) == picture{});
  CHECK(warped(picture{}, identity) == picture{});
}

TEST_CASE("a warp is the mean of seven bilinear points", "[mlp]") {
  const picture in = random_picture();
  const mlp::augment::affine map{62'000, 9'000, -150'000, -9'500, 70'000, 40'000};
  const picture out = warped(in, map);
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
      // Seven bits of each coordinate's fraction count.
      CHECK(std::abs(out[at(x, y)] - sum / 7.0) < 3.0);
    }
  }
}

TEST_CASE("drawn warps stay within 15 degrees, a tenth of the size, two pixels", "[mlp]") {
  double most_angle = 0.0;
  double most_shift = 0.0;
  double least_scale = 2.0;
  double most_scale = 0.0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    ps::sample_generator random{{.seed = 3}, i};
    const auto map = mlp::augment::draw(random);
    CHECK(map.ux == map.vy);
    CHECK(map.uy == -map.vx);
    const double c = map.ux / static_cast<double>(pixel);
    const double s = map.uy / static_cast<double>(pixel);
    const double scale = 1.0 / std::sqrt(c * c + s * s);
    most_angle = std::max(most_angle, std::abs(std::atan2(s, c)));
    least_scale = std::min(least_scale, scale);
    most_scale = std::max(most_scale, scale);
    // The picture's centre comes from where the shift says: solve for the output of (13.5, 13.5).
    const double u = 13.5 - map.u0 / static_cast<double>(pixel);
    const double v = 13.5 - map.v0 / static_cast<double>(pixel);
    const double x = (c * u - s * v) * scale * scale;
    const double y = (s * u + c * v) * scale * scale;
    most_shift = std::max({most_shift, std::abs(x - 13.5), std::abs(y - 13.5)});
  }
  constexpr double degree = 0.017453292519943295;
  CHECK(most_angle < 15.01 * degree);
  CHECK(most_angle > 14.8 * degree);
  CHECK(least_scale > 0.8999);
  CHECK(least_scale < 0.902);
  CHECK(most_scale < 1.1001);
  CHECK(most_scale > 1.098);
  CHECK(most_shift < 2.01);
  CHECK(most_shift > 1.98);
}

TEST_CASE("augmented samples keep their label and are the same for the same key", "[mlp]") {
  const picture in = random_picture();
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
    picture copy{};
    std::copy_n(ps::get<"image">(out).data(), copy.size(), copy.begin());
    return copy;
  };
  CHECK(read(1, 0) == read(1, 0));
  CHECK(read(1, 0) != read(1, 1));
  CHECK(read(1, 0) != read(2, 0));
}
