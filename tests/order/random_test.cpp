// SPDX-License-Identifier: BSL-1.0
#include <penstock/order/random.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using words = std::array<std::uint32_t, 4>;

constexpr words first_words(const ps::random_key& key, std::uint64_t index) {
  ps::sample_generator gen{key, index};
  return {gen(), gen(), gen(), gen()};
}

/// A generator that always returns the same word, to reach the edge cases of a distribution.
template <std::uint32_t Word>
struct constant_bits {
  using result_type = std::uint32_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return 0xffffffffu; }
  result_type operator()() { return Word; }
};

using all_ones = constant_bits<0xffffffffu>;
using all_zeros = constant_bits<0>;

/// Returns the number of standard deviations between the chi-square of `counts` and its mean. All
/// cells must be equally likely.
double chi_square_deviation(const std::vector<double>& counts) {
  double total = 0;
  for (const double count : counts) total += count;
  const double expected = total / static_cast<double>(counts.size());
  double sum = 0;
  for (const double count : counts) sum += (count - expected) * (count - expected) / expected;
  const double freedom = static_cast<double>(counts.size()) - 1;
  return (sum - freedom) / std::sqrt(2 * freedom);
}

/// A generator that forces the next normal number into the tail of the ziggurat, and then delegates
/// to a sample generator.
struct tail_generator {
  using result_type = std::uint32_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return 0xffffffffu; }
  result_type operator()() {
    const int word = calls++;
    return word == 0 ? 0xffffffffu : word == 1 ? 0xfffffe00u : gen();
  }

  ps::sample_generator gen;
  int calls = 0;
};

struct wide_generator {
  using result_type = std::uint64_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()() { return 0; }
};

}  // namespace

TEST_CASE("Philox gives the published words", "[order][promise:exact-3]") {
  CHECK(ps::detail::philox4x32({0, 0, 0, 0}, {0, 0}) ==
        words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  CHECK(ps::detail::philox4x32({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu},
                               {0xffffffffu, 0xffffffffu}) ==
        words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
  CHECK(ps::detail::philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
                               {0xa4093822u, 0x299f31d0u}) ==
        words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});
}

TEST_CASE("a sample generator is a generator of 32-bit words like the standard's", "[order]") {
  STATIC_REQUIRE(std::uniform_random_bit_generator<ps::sample_generator>);
  STATIC_REQUIRE(std::is_same_v<ps::sample_generator::result_type, std::uint32_t>);
  STATIC_REQUIRE(std::is_trivially_copyable_v<ps::sample_generator>);
  STATIC_REQUIRE(sizeof(ps::sample_generator) == 44);
  STATIC_REQUIRE(ps::detail::random_bits32<std::mt19937>);
  STATIC_REQUIRE_FALSE(ps::detail::random_bits32<std::mt19937_64>);
  STATIC_REQUIRE_FALSE(ps::detail::random_bits32<wide_generator>);
}

TEST_CASE("a stream never changes: golden words", "[order][promise:exact-3]") {
  constexpr ps::random_key key{.seed = 1, .epoch = 2, .stage = 3};
  constexpr words golden{0x867b7766u, 0xb956fa4eu, 0xcbd2cf20u, 0x637ec02au};
  CHECK(first_words(key, 4) == golden);
  // a constant expression cannot have undefined behavior.
  STATIC_REQUIRE(first_words(key, 4) == golden);
}

TEST_CASE("the same key and index give the same stream, and a copy continues it", "[order]") {
  ps::sample_generator one{{.seed = 7, .epoch = 1}, 5};
  ps::sample_generator two{{.seed = 7, .epoch = 1}, 5};
  for (int k = 0; k < 6; ++k) REQUIRE(one() == two());
  ps::sample_generator copy = one;
  for (int k = 0; k < 100; ++k) REQUIRE(one() == copy());
}

TEST_CASE("every bit of seed, epoch, stage and index changes the stream", "[order]") {
  const words base = first_words({}, 0);
  // Compares word by word, because clang 14 at -O2 assumes that "32 < sum of the four < 96" is
  // always false.
  const auto unlike_base = [&](const words& other) {
    bool unlike = true;
    for (std::size_t k = 0; k < 4; ++k) {
      const int different_bits = std::popcount(base[k] ^ other[k]);
      unlike = unlike && different_bits >= 4 && different_bits <= 28;
    }
    return unlike;
  };
  for (int bit = 0; bit < 64; ++bit) {
    CAPTURE(bit);
    const std::uint64_t flipped = std::uint64_t{1} << bit;
    CHECK(unlike_base(first_words({.seed = flipped}, 0)));
    CHECK(unlike_base(first_words({.epoch = flipped}, 0)));
    CHECK(unlike_base(first_words({}, flipped)));
    if (bit < 32) {
      CHECK(unlike_base(first_words(ps::random_key{}.at_stage(std::uint32_t{1} << bit), 0)));
    }
  }
}

TEST_CASE("no two of many neighboring keys share a stream, nor do blocks repeat", "[order]") {
  std::set<words> seen;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    for (std::uint64_t epoch = 0; epoch < 8; ++epoch) {
      for (std::uint32_t stage = 0; stage < 4; ++stage) {
        for (std::uint64_t index = 0; index < 16; ++index) {
          ps::sample_generator gen{{seed, epoch, stage}, index};
          for (int block = 0; block < 4; ++block) seen.insert({gen(), gen(), gen(), gen()});
        }
      }
    }
  }
  CHECK(seen.size() == 8u * 8 * 4 * 16 * 4);
}

TEST_CASE("the key of another stage keeps seed and epoch", "[order]") {
  CHECK(ps::random_key{.seed = 3, .epoch = 4}.at_stage(5) ==
        ps::random_key{.seed = 3, .epoch = 4, .stage = 5});
}

TEST_CASE("the distributions never change: golden values", "[order][promise:exact-3]") {
  ps::sample_generator gen{{.seed = 1}, 0};
  CHECK(ps::uniform(gen, -1.0f, 1.0f) == 0x1.c67b8p-2f);
  CHECK(ps::uniform(gen, -1.0, 2.0) == -0x1.5af92bab62ed7p-1);
  CHECK(ps::uniform(gen, -10, 10) == 1);
  CHECK(ps::uniform(gen, std::uint64_t{0}, std::uint64_t{1} << 40) == 277602990816u);
  CHECK(ps::normal(gen) == 0x1.84c9db7430e7p+0);
  CHECK(ps::normal(gen, 10.0f, 2.0f) == 0x1.822684p+3f);
  // The sum depends on every bit of every value. The draws cover every branch, including the rare
  // branches.
  double sum = 0;
  for (int k = 0; k < 10'000; ++k) sum += ps::normal(gen, 0.5, 3.0);
  CHECK(sum == 0x1.43b61d229998bp+12);
  int heads = 0;
  for (int k = 0; k < 1000; ++k) heads += ps::bernoulli(gen, 0.25) ? 1 : 0;
  CHECK(heads == 255);
}

TEMPLATE_TEST_CASE("uniform returns low and never high", "[order]", float, double) {
  using limits = std::numeric_limits<TestType>;
  struct range {
    TestType low, high;
  };
  const TestType large = limits::max() / 2;
  const range ranges[] = {{0, 1},
                          {-1, 1},
                          {1, std::nextafter(TestType{1}, TestType{2})},
                          {std::nextafter(TestType{-1}, TestType{-2}), -1},
                          {1000, TestType(1000.5)},
                          {-large, large},
                          {0, limits::denorm_min()},
                          {limits::denorm_min(), limits::min()}};
  for (const auto& [low, high] : ranges) {
    CAPTURE(low, high);
    all_ones ones;
    all_zeros zeros;
    CHECK(ps::uniform(ones, low, high) < high);
    CHECK(ps::uniform(ones, low, high) >= low);
    CHECK(ps::uniform(zeros, low, high) == low);
    ps::sample_generator gen{{}, 0};
    for (int k = 0; k < 1000; ++k) {
      const TestType value = ps::uniform(gen, low, high);
      REQUIRE((value >= low && value < high));
    }
  }
  all_ones ones;
  CHECK(ps::uniform(ones, TestType{3}, TestType{3}) == 3);
}

TEMPLATE_TEST_CASE("uniform reals are evenly distributed", "[order]", float, double) {
  ps::sample_generator gen{{.seed = 11}, 0};
  std::vector<double> counts(256);
  std::vector<double> fine(256);  // counts of the next lower bits
  for (int k = 0; k < 200'000; ++k) {
    const double value = ps::uniform(gen, TestType{0}, TestType{256});
    ++counts[static_cast<std::size_t>(value)];
    ++fine[static_cast<std::size_t>((value - std::floor(value)) * 256)];
  }
  CHECK(std::abs(chi_square_deviation(counts)) < 4);
  CHECK(std::abs(chi_square_deviation(fine)) < 4);
}

TEST_CASE("uniform rejects a reversed, unbounded or undefined interval", "[order]") {
  ps::sample_generator gen{{}, 0};
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_MATCHES(
      ps::uniform(gen, 1.0, 0.25), std::invalid_argument,
      Catch::Matchers::Message("uniform: expected finite low <= high, found low = 1, high = 0.25"));
  CHECK_THROWS_AS(ps::uniform(gen, 0.0, infinity), std::invalid_argument);
  CHECK_THROWS_AS(ps::uniform(gen, -infinity, 0.0), std::invalid_argument);
  CHECK_THROWS_AS(ps::uniform(gen, infinity, infinity), std::invalid_argument);
  CHECK_THROWS_AS(ps::uniform(gen, nan, 1.0), std::invalid_argument);
  CHECK_THROWS_AS(ps::uniform(gen, 0.0f, std::nanf("")), std::invalid_argument);
  const double max = std::numeric_limits<double>::max();
  CHECK_THROWS_AS(ps::uniform(gen, -max, max), std::invalid_argument);
  CHECK_THROWS_MATCHES(
      ps::uniform(gen, 2, 1), std::invalid_argument,
      Catch::Matchers::Message("uniform: expected low <= high, found low = 2, high = 1"));
}

TEMPLATE_TEST_CASE("uniform integers cover the full range of their type", "[order]", std::int8_t,
                   std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t,
                   std::int64_t, std::uint64_t) {
  using limits = std::numeric_limits<TestType>;
  all_ones ones;
  all_zeros zeros;
  CHECK(ps::uniform(ones, limits::min(), limits::max()) == limits::max());
  CHECK(ps::uniform(zeros, limits::min(), limits::max()) == limits::min());
  CHECK(ps::uniform(ones, limits::max(), limits::max()) == limits::max());
  ps::sample_generator gen{{.seed = 5}, 0};
  std::vector<double> top(16);
  std::vector<double> bottom(16);
  for (int k = 0; k < 20'000; ++k) {
    const TestType value = ps::uniform(gen, limits::min(), limits::max());
    const auto bits = static_cast<std::make_unsigned_t<TestType>>(value);
    ++top[static_cast<std::size_t>(bits >> (std::numeric_limits<decltype(bits)>::digits - 4))];
    ++bottom[static_cast<std::size_t>(bits & 15u)];
  }
  CHECK(std::abs(chi_square_deviation(top)) < 4);
  CHECK(std::abs(chi_square_deviation(bottom)) < 4);
}

TEST_CASE("uniform integers have no bias", "[order][statistics]") {
  // For a range of three quarters of 2^32 (2^64), a generator without rejection would map half of
  // all values to multiples of 3.
  ps::sample_generator gen{{.seed = 6}, 0};
  std::vector<double> narrow(3);
  std::vector<double> wide(3);
  for (int k = 0; k < 30'000; ++k) {
    ++narrow[ps::uniform(gen, std::uint32_t{0}, 3 * (std::uint32_t{1} << 30) - 1) % 3];
    ++wide[ps::uniform(gen, std::uint64_t{0}, 3 * (std::uint64_t{1} << 62) - 1) % 3];
  }
  CHECK(chi_square_deviation(narrow) < 5);
  CHECK(chi_square_deviation(wide) < 5);
}

TEST_CASE("uniform integers include both ends and nothing else", "[order]") {
  ps::sample_generator gen{{.seed = 8}, 0};
  std::vector<double> counts(7);
  for (int k = 0; k < 70'000; ++k) {
    const int value = ps::uniform(gen, -3, 3);
    REQUIRE((value >= -3 && value <= 3));
    ++counts[static_cast<std::size_t>(value + 3)];
  }
  CHECK(std::abs(chi_square_deviation(counts)) < 4);
}

TEST_CASE("the type of an integer does not change the numbers", "[order]") {
  ps::sample_generator one{{.seed = 9}, 0};
  ps::sample_generator two = one;
  ps::sample_generator three = one;
  for (int k = 0; k < 1000; ++k) {
    const int value = ps::uniform(one, 3, 99);
    REQUIRE(ps::uniform(two, std::uint8_t{3}, std::uint8_t{99}) == value);
    REQUIRE(ps::uniform(three, 3LL, 99LL) == value);
  }
}

TEST_CASE("normal numbers have the moments and the shape of the normal density",
          "[order][statistics]") {
  ps::sample_generator gen{{.seed = 12}, 0};
  const int draws = 1'000'000;
  const double count = draws;
  std::array<double, 5> moment{};
  std::vector<double> bins(200);  // bins of equal probability
  int beyond_the_layers = 0;
  double farthest = 0;
  for (int k = 0; k < draws; ++k) {
    const double x = ps::normal(gen);
    double power = 1;
    for (double& m : moment) {
      m += power;
      power *= x;
    }
    const double below = 0.5 * std::erfc(-x / std::sqrt(2.0));
    ++bins[std::min(bins.size() - 1, static_cast<std::size_t>(below * 200))];
    if (std::abs(x) > 3.654152885361009) ++beyond_the_layers;
    farthest = std::max(farthest, std::abs(x));
  }
  CHECK(std::abs(moment[1]) < 4 * std::sqrt(count));
  CHECK(std::abs(moment[2] - count) < 4 * std::sqrt(2 * count));
  CHECK(std::abs(moment[3]) < 4 * std::sqrt(15 * count));
  CHECK(std::abs(moment[4] - 3 * count) < 4 * std::sqrt(96 * count));
  CHECK(std::abs(chi_square_deviation(bins)) < 4);
  const double expected = count * std::erfc(3.654152885361009 / std::sqrt(2.0));
  CHECK(std::abs(beyond_the_layers - expected) < 4 * std::sqrt(expected));
  CHECK(farthest > 4.3);
  CHECK(farthest < 6.5);
}

TEST_CASE("normal numbers beyond the layers have the shape of the tail", "[order][statistics]") {
  const double tail = ps::detail::ziggurat::tail;
  tail_generator source{ps::sample_generator{{.seed = 15}, 0}};
  std::vector<double> bins(50);  // bins of equal probability
  for (int k = 0; k < 50'000; ++k) {
    source.calls = 0;
    const double x = ps::normal(source);
    REQUIRE(x >= tail);
    const double beyond = std::erfc(x / std::sqrt(2.0)) / std::erfc(tail / std::sqrt(2.0));
    ++bins[std::min(bins.size() - 1, static_cast<std::size_t>(beyond * 50))];
  }
  CHECK(std::abs(chi_square_deviation(bins)) < 4);
}

TEST_CASE("the layers of the ziggurat are those of the exact functions", "[order]") {
  using ziggurat = ps::detail::ziggurat;
  const auto& table = ps::detail::normal_layers<>;
  for (std::size_t i = 1; i < ziggurat::layers; ++i) {
    CAPTURE(i);
    CHECK(table.density[i] == Approx(std::exp(-table.edge[i] * table.edge[i] / 2)).epsilon(1e-14));
    CHECK(table.edge[i] * (table.density[i + 1] - table.density[i]) ==
          Approx(ziggurat::area).epsilon(1e-11));
  }
  for (double x = 0x1p-53; x < 1.5; x *= 1.37) {
    CHECK(ziggurat::log(x) == Approx(std::log(x)).epsilon(1e-15));
  }
  for (double x = 0; x < 40; x += 0.173) {
    CHECK(ziggurat::exp_minus(x) == Approx(std::exp(-x)).epsilon(1e-14));
  }
}

TEST_CASE("a uniform double is rounded once", "[order]") {
  ps::sample_generator one{{.seed = 13}, 0};
  ps::sample_generator two = one;
  for (int k = 0; k < 1000; ++k) {
    const double unit = ps::uniform(one, 0.0, 1.0);
    REQUIRE(ps::uniform(two, 0.1, 0.7) == std::fma(unit, 0.7 - 0.1, 0.1));
  }
}

TEST_CASE("mean and stddev shift and scale, a float is the rounded double", "[order]") {
  ps::sample_generator one{{.seed = 13}, 0};
  ps::sample_generator two = one;
  ps::sample_generator three = one;
  for (int k = 0; k < 1000; ++k) {
    const double x = ps::normal(one);
    REQUIRE(ps::normal(two, 3.1, 0.7) == std::fma(0.7, x, 3.1));
    REQUIRE(ps::normal(three, 0.0f, 1.0f) == static_cast<float>(x));
  }
  CHECK(ps::normal(one, 4.0, 0.0) == 4.0);
  CHECK_THROWS_MATCHES(
      ps::normal(one, 0.0, -1.5), std::invalid_argument,
      Catch::Matchers::Message("normal: expected a finite stddev >= 0, found -1.5"));
  CHECK_THROWS_AS(ps::normal(one, 0.0f, std::nanf("")), std::invalid_argument);
}

TEST_CASE(
    "bernoulli is never true for 0, always true for 1, and has the right frequency in between",
    "[order]") {
  all_ones ones;
  all_zeros zeros;
  CHECK(ps::bernoulli(ones, 1.0));
  CHECK_FALSE(ps::bernoulli(zeros, 0.0));
  CHECK(ps::bernoulli(zeros, 1e-300));
  ps::sample_generator gen{{.seed = 14}, 0};
  double heads = 0;
  for (int k = 0; k < 100'000; ++k) heads += ps::bernoulli(gen, 0.3) ? 1 : 0;
  CHECK(std::abs(heads - 30'000) < 4 * std::sqrt(100'000 * 0.3 * 0.7));
  CHECK_THROWS_MATCHES(ps::bernoulli(gen, 1.25), std::invalid_argument,
                       Catch::Matchers::Message("bernoulli: expected 0 <= p <= 1, found p = 1.25"));
  CHECK_THROWS_AS(ps::bernoulli(gen, -0.1), std::invalid_argument);
  CHECK_THROWS_AS(ps::bernoulli(gen, std::nan("")), std::invalid_argument);
}
