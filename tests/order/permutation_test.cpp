// SPDX-License-Identifier: BSL-1.0
#include <penstock/order/support/permutation.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "order/epoch_of.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

indices run_of(const ps::detail::permutation& order, std::uint64_t first, std::size_t count) {
  indices out(count);
  order.fill(first, out);
  return out;
}

indices whole(const ps::detail::permutation& order) {
  return run_of(order, 0, static_cast<std::size_t>(order.size()));
}

/// Returns the number of standard deviations between a chi-square statistic and its mean.
double deviation(double chi_square, double freedom) {
  return (chi_square - freedom) / std::sqrt(2 * freedom);
}

double term(double found, double expected) {
  return (found - expected) * (found - expected) / expected;
}

std::size_t bin_of(std::uint64_t index, std::uint64_t size, std::size_t bins) {
  return static_cast<std::size_t>(index * bins / size);
}

std::vector<double> bin_sizes(std::uint64_t size, std::size_t bins) {
  std::vector<double> count(bins);
  for (std::uint64_t index = 0; index < size; ++index) ++count[bin_of(index, size, bins)];
  return count;
}

}  // namespace

TEST_CASE("an order contains every index once for every size", "[order][promise:exact-4]") {
  indices sizes{1000, 4095, 4096, 4097, 60'000, 65'536, 65'537};
  for (std::uint64_t n = 1; n <= 300; ++n) sizes.push_back(n);
  for (const std::uint64_t n : sizes) {
    CAPTURE(n);
    indices order = whole(ps::detail::permutation{n, 3, 1});
    std::sort(order.begin(), order.end());
    bool complete = true;
    for (std::size_t k = 0; k < order.size(); ++k) complete = complete && order[k] == k;
    REQUIRE(complete);
  }
}

TEST_CASE("a part of an order equals its single positions", "[order]") {
  const std::uint64_t n = GENERATE(1u, 7u, 64u, 65u, 128u, 129u, 1000u);
  CAPTURE(n);
  const ps::detail::permutation order{n, 5, 2};
  CHECK(order.size() == n);
  indices singly;
  for (std::uint64_t k = 0; k < n; ++k) singly.push_back(order(k));
  CHECK(whole(order) == singly);
  for (const std::size_t length : {0u, 1u, 3u, 63u, 64u, 65u, 200u}) {
    for (std::size_t first = 0; first + length <= n; first += 17) {
      const auto from = singly.begin() + static_cast<std::ptrdiff_t>(first);
      REQUIRE(run_of(order, first, length) ==
              indices(from, from + static_cast<std::ptrdiff_t>(length)));
    }
  }
}

TEST_CASE("an order of up to 2^63 elements stays inside and does not repeat",
          "[order][promise:exact-4]") {
  const std::uint64_t n = GENERATE((std::uint64_t{1} << 32) - 1, (std::uint64_t{1} << 32) + 1,
                                   std::uint64_t{1'000'000'000'000}, (std::uint64_t{1} << 62) + 1,
                                   (std::uint64_t{1} << 63) - 1, std::uint64_t{1} << 63);
  CAPTURE(n);
  const ps::detail::permutation order{n, 1, 0};
  indices seen = run_of(order, 0, 20'000);
  const indices end = run_of(order, n - 20'000, 20'000);
  CHECK(seen[77] == order(77));
  CHECK(end.back() == order(n - 1));
  seen.insert(seen.end(), end.begin(), end.end());
  CHECK(std::all_of(seen.begin(), seen.end(), [n](std::uint64_t index) { return index < n; }));
  CHECK(std::count_if(seen.begin(), seen.end(), [n](auto index) { return index >= n / 2; }) >
        19'500);
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}

TEST_CASE("an order of 0 or of more than 2^63 elements is rejected", "[order]") {
  CHECK_THROWS_MATCHES(
      ps::detail::permutation(0, 1, 2), std::invalid_argument,
      Catch::Matchers::Message("permutation: expected 1 <= n <= 2^63, found n = 0"));
  CHECK_THROWS_MATCHES(ps::detail::permutation((std::uint64_t{1} << 63) + 1, 1, 2),
                       std::invalid_argument,
                       Catch::Matchers::Message("permutation: expected 1 <= n <= 2^63, "
                                                "found n = 9223372036854775809"));
}

TEST_CASE("an order is plain bytes of a fixed size", "[order][promise:exact-4]") {
  STATIC_REQUIRE(std::is_trivially_copyable_v<ps::detail::permutation>);
  STATIC_REQUIRE(sizeof(ps::detail::permutation) <= 192);
}

TEST_CASE("an order never changes: golden indices", "[order][promise:exact-3]") {
  CHECK(whole(ps::detail::permutation{10, 1, 0}) == indices{0, 6, 7, 2, 1, 8, 5, 4, 3, 9});
  CHECK(run_of(ps::detail::permutation{60'000, 1, 0}, 0, 6) ==
        indices{44962, 27428, 34682, 49287, 16827, 12820});
  CHECK(run_of(ps::detail::permutation{1'000'000'000'000, 1, 2}, 500'000'000'000, 3) ==
        indices{88807372024, 982348373131, 25193869201});
}

TEST_CASE("every order of up to five elements is equally frequent",
          "[order][statistics][promise:exact-4]") {
  const std::uint64_t n = GENERATE(2u, 3u, 4u, 5u);
  CAPTURE(n);
  std::map<indices, double> count;
  const int draws = 60'000;
  for (int k = 0; k < draws; ++k) {
    ++count[whole(ps::detail::permutation{n, static_cast<std::uint64_t>(k % 300),
                                          static_cast<std::uint64_t>(k / 300)})];
  }
  double orders = 1;
  for (std::uint64_t k = 2; k <= n; ++k) orders *= static_cast<double>(k);
  REQUIRE(static_cast<double>(count.size()) == orders);
  double sum = 0;
  for (const auto& entry : count) sum += term(entry.second, draws / orders);
  CHECK(std::abs(deviation(sum, orders - 1)) < 4.5);
}

TEST_CASE("every element reaches every position equally often", "[order][statistics]") {
  const std::uint64_t n =
      GENERATE(6u, 7u, 8u, 16u, 31u, 33u, 63u, 64u, 65u, 80u, 100u, 128u, 129u, 200u, 256u);
  CAPTURE(n);
  const std::size_t side = static_cast<std::size_t>(n);
  std::vector<double> count(side * side);
  const int keys = 20'000;
  for (int seed = 0; seed < keys; ++seed) {
    const indices order = whole(ps::detail::permutation{n, static_cast<std::uint64_t>(seed), 0});
    for (std::size_t k = 0; k < side; ++k) ++count[k * side + static_cast<std::size_t>(order[k])];
  }
  const double size = static_cast<double>(n);
  double sum = 0;
  for (const double found : count) sum += term(found, keys / size);
  // All rows and columns have fixed sums, so the cells vary n / (n - 1) times as much as
  // independent cells.
  CHECK(std::abs(deviation(sum * (size - 1) / size, (size - 1) * (size - 1))) < 4.5);
}

TEST_CASE("every ordered pair of elements reaches two positions equally often",
          "[order][statistics][promise:exact-4]") {
  struct check {
    std::uint64_t n;
    std::size_t bins;
  };
  const auto [n, bins] =
      GENERATE(check{6, 6}, check{20, 20}, check{64, 64}, check{65, 65}, check{100, 100},
               check{128, 128}, check{129, 64}, check{1000, 50}, check{60'000, 50});
  CAPTURE(n, bins);
  const std::vector<double> sizes = bin_sizes(n, bins);
  const std::uint64_t half = n / 2;
  const std::uint64_t top = std::bit_floor(n - 1);
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> places{
      {0, 1}, {1, 2}, {0, 2}, {half, half + 1}, {0, half}, {0, top}, {1, n - 1}};
  std::vector<std::vector<double>> count(places.size(), std::vector<double>(bins * bins));
  const int keys = 60'000;
  for (int epoch = 0; epoch < keys; ++epoch) {
    const ps::detail::permutation order{n, 4, static_cast<std::uint64_t>(epoch)};
    for (std::size_t p = 0; p < places.size(); ++p) {
      ++count[p][bin_of(order(places[p].first), n, bins) * bins +
                 bin_of(order(places[p].second), n, bins)];
    }
  }
  const double all_pairs = static_cast<double>(n) * (static_cast<double>(n) - 1);
  for (std::size_t p = 0; p < places.size(); ++p) {
    CAPTURE(places[p].first, places[p].second);
    double sum = 0;
    double freedom = -1;
    for (std::size_t a = 0; a < bins; ++a) {
      for (std::size_t b = 0; b < bins; ++b) {
        const double pairs = sizes[a] * (sizes[b] - (a == b ? 1 : 0));
        const double found = count[p][a * bins + b];
        if (pairs > 0) {
          sum += term(found, keys * pairs / all_pairs);
          ++freedom;
        } else {
          REQUIRE(found == 0);
        }
      }
    }
    CHECK(std::abs(deviation(sum, freedom)) < 4.5);
  }
}

TEST_CASE("the distances within an order are those of a random order", "[order][statistics]") {
  // Tests the structure within one order, which tests over many keys cannot detect. A permutation
  // with four rounds fails this test; one with five rounds fails only with twenty times as many
  // keys.
  const std::uint64_t n = GENERATE(528u, 1024u, 60'000u);
  const std::uint64_t keys = n < 10'000 ? 8000 : 50;
  const std::size_t bins = 64;
  CAPTURE(n);
  std::vector<double> sizes = bin_sizes(n, bins);
  sizes[0] -= 1;  // two elements never have distance 0
  const std::array<std::size_t, 9> lags{1, 2, 3, 7, 16, 32, 64, 255, 256};
  std::array<std::vector<double>, lags.size()> count;
  count.fill(std::vector<double>(bins));
  for (std::uint64_t seed = 0; seed < keys; ++seed) {
    const indices order = whole(ps::detail::permutation{n, seed, 9});
    for (std::size_t l = 0; l < lags.size(); ++l) {
      for (std::size_t k = 0; k + lags[l] < order.size(); ++k) {
        const std::uint64_t from = order[k];
        const std::uint64_t to = order[k + lags[l]];
        ++count[l][bin_of(to > from ? to - from : to + n - from, n, bins)];
      }
    }
  }
  for (std::size_t l = 0; l < lags.size(); ++l) {
    CAPTURE(lags[l]);
    const double total = static_cast<double>(keys * (n - lags[l]));
    double sum = 0;
    for (std::size_t b = 0; b < bins; ++b) {
      sum += term(count[l][b], total * sizes[b] / (static_cast<double>(n) - 1));
    }
    CHECK(std::abs(deviation(sum, static_cast<double>(bins) - 1)) < 4.5);
  }
}

TEST_CASE("the orders of related seeds and epochs are unrelated", "[order][statistics]") {
  const std::uint64_t n = GENERATE(20u, 100u, 1000u);
  const std::size_t bins = 10;
  CAPTURE(n);
  struct relation {
    const char* name;
    std::uint64_t seed_step, epoch_step;
    bool swapped;
  };
  const relation relations[] = {{"the next seed", 1, 0, false},
                                {"the next epoch", 0, 1, false},
                                {"seed and epoch exchanged", 0, 0, true},
                                {"the highest bit of the seed", std::uint64_t{1} << 63, 0, false},
                                {"the highest bit of the epoch", 0, std::uint64_t{1} << 63, false}};
  for (const relation& other : relations) {
    CAPTURE(other.name);
    std::vector<double> count(bins * bins);
    const int keys = 2000;
    for (std::uint64_t seed = 0; seed < keys; ++seed) {
      const std::uint64_t epoch = 2 * seed + 1;
      const std::uint64_t other_seed = (other.swapped ? epoch : seed) + other.seed_step;
      const std::uint64_t other_epoch = (other.swapped ? seed : epoch) + other.epoch_step;
      const indices one = whole(ps::detail::permutation{n, seed, epoch});
      const indices two = whole(ps::detail::permutation{n, other_seed, other_epoch});
      REQUIRE(one != two);
      for (std::size_t k = 0; k < one.size(); ++k) {
        ++count[bin_of(one[k], n, bins) * bins + bin_of(two[k], n, bins)];
      }
    }
    const double size = static_cast<double>(n);
    double sum = 0;
    for (const double found : count) sum += term(found, keys * size / double(bins * bins));
    const double freedom = double((bins - 1) * (bins - 1));
    CHECK(std::abs(deviation(sum * (size - 1) / size, freedom)) < 4.5);
  }
}
