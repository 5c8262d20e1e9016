// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <penstock/order/random.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/order/support/permutation.hpp>
#include <penstock_ext/samplers/mixture.hpp>

#include "support/catch.hpp"
#include "support/statistics.hpp"

// Tests shuffles with statistics whose exact distribution over all n! orders is known. The
// statistics are also applied to known bad shuffles, each of which passes all but a few of them.

namespace ps = penstock;

namespace {

using indices = std::vector<std::uint64_t>;

/// The p-value of each statistic over the orders of many keys.
struct quality_of_order {
  double places;   ///< counts of each sample at each position, n x n
  double pairs;    ///< counts of sample pairs at two positions, adjacent and distant
  double fixed;    ///< number of samples that keep their position
  double cycles;   ///< number of cycles of the permutation
  double parity;   ///< parity of the permutation
  double ascents;  ///< number of positions with a smaller sample than the next position
  double records;  ///< number of samples greater than all samples before them
};

std::vector<double> fixed_points(std::size_t n) {
  std::vector<double> chance(n + 1);
  for (std::size_t fixed = 0; fixed <= n; ++fixed) {
    double none = 0;  // probability that all remaining samples change their position
    double term = 1;
    for (std::size_t i = 0; i <= n - fixed; ++i) {
      none += term;
      term /= -static_cast<double>(i + 1);
    }
    chance[fixed] = std::max(0.0, none) / std::tgamma(static_cast<double>(fixed) + 1);
  }
  // a single sample cannot move; the subtraction leaves a rounding error.
  if (n > 0) chance[n - 1] = 0;
  return chance;
}

/// Returns the Stirling numbers of the first kind divided by n!, which are the distribution of both
/// cycles and records.
std::vector<double> cycles(std::size_t n) {
  std::vector<double> chance{1};
  for (std::size_t m = 1; m <= n; ++m) {
    std::vector<double> next(m + 1);
    for (std::size_t k = 0; k < m; ++k) {
      next[k] += chance[k] * static_cast<double>(m - 1) / static_cast<double>(m);
      next[k + 1] += chance[k] / static_cast<double>(m);
    }
    chance = std::move(next);
  }
  return chance;
}

/// Returns the Eulerian numbers divided by n!.
std::vector<double> ascents(std::size_t n) {
  std::vector<double> chance{1};
  for (std::size_t m = 2; m <= n; ++m) {
    std::vector<double> next(m);
    for (std::size_t k = 0; k + 1 < m; ++k) {
      next[k] += chance[k] * static_cast<double>(k + 1) / static_cast<double>(m);
      next[k + 1] += chance[k] * static_cast<double>(m - 1 - k) / static_cast<double>(m);
    }
    chance = std::move(next);
  }
  return chance;
}

/// Computes all statistics over the orders of `keys` keys. `order_of(key)` returns the `n` indices
/// of an order.
template <class Source>
quality_of_order quality_of(const Source& order_of, std::size_t n, std::uint64_t keys) {
  std::vector<double> places(n * n), beside(n * n), apart(n * n);
  std::vector<double> fixed_found(n + 1), cycles_found(n + 1), parity_found(2),
      records_found(n + 1), ascents_found(n);
  std::vector<char> visited(n);
  for (std::uint64_t key = 0; key < keys; ++key) {
    const indices order = order_of(key);
    const auto at = [&](std::size_t k) { return static_cast<std::size_t>(order[k]); };
    std::size_t fixed = 0, cycle = 0, ascent = 0, record = 0, highest = 0;
    std::fill(visited.begin(), visited.end(), char{0});
    for (std::size_t k = 0; k < n; ++k) {
      ++places[k * n + at(k)];
      fixed += at(k) == k ? 1u : 0u;
      ascent += k + 1 < n && order[k] < order[k + 1] ? 1u : 0u;
      record += k == 0 || at(k) > highest ? 1u : 0u;
      highest = std::max(highest, at(k));
      cycle += visited[k] == 0 ? 1u : 0u;
      for (std::size_t i = k; visited[i] == 0; i = at(i)) visited[i] = 1;
    }
    ++beside[at(0) * n + at(1)];
    ++apart[at(n / 2 - 1) * n + at(n - 1)];
    ++fixed_found[fixed];
    ++cycles_found[cycle];
    ++parity_found[(n - cycle) % 2];
    ++ascents_found[ascent];
    ++records_found[record];
  }
  std::vector<double> unequal(n * n, 1.0);
  for (std::size_t i = 0; i < n; ++i) unequal[i * (n + 1)] = 0;
  return {.places = chance_of_square(places, n),
          .pairs = std::min(chance_of(beside, unequal), chance_of(apart, unequal)),
          .fixed = chance_with_ends(fixed_found, fixed_points(n)),
          .cycles = chance_with_ends(cycles_found, cycles(n)),
          .parity = chance_of(parity_found),
          .ascents = chance_with_ends(ascents_found, ascents(n)),
          .records = chance_with_ends(records_found, cycles(n))};
}

double worst(const quality_of_order& of) {
  return std::min({of.places, of.pairs, of.fixed, of.cycles, of.parity, of.ascents, of.records});
}

/// Returns the rank of an order among all n! orders.
std::size_t rank_of(const indices& order) {
  std::size_t rank = 0;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const auto smaller = std::count_if(order.begin() + static_cast<std::ptrdiff_t>(k), order.end(),
                                       [&](std::uint64_t index) { return index < order[k]; });
    rank = rank * (order.size() - k) + static_cast<std::size_t>(smaller);
  }
  return rank;
}

auto shuffled_by_epoch(std::size_t n) {
  return [n](std::uint64_t key) {
    indices order(n);
    ps::shuffled{.seed = 20}.order(n, key).fill(0, order);
    return order;
  };
}

auto shuffled_by_seed(std::size_t n) {
  return [n](std::uint64_t key) {
    indices order(n);
    ps::shuffled{.seed = key}.order(n, 20).fill(0, order);
    return order;
  };
}

/// Returns the order of one part of a mixture as a function of the epoch.
auto mixed_by_epoch(std::size_t n) {
  return [n, mixed = ps::mixture::of_sizes({.seed = 20}, {n})](std::uint64_t key) {
    indices order(n);
    mixed.order(n, key).fill(0, order);
    return order;
  };
}

// ---- known bad shuffles

indices counting(std::size_t n) {
  indices order(n);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  return order;
}

/// The Fisher-Yates shuffle, or a variant that chooses the swap partner differently.
template <class Partner>
indices swapped(std::size_t n, std::uint64_t key, const Partner& partner) {
  indices order = counting(n);
  ps::sample_generator gen{{.seed = 77}, key};
  for (std::size_t k = n; k-- > 0;) std::swap(order[k], order[partner(gen, k)]);
  return order;
}

indices fisher_yates(std::size_t n, std::uint64_t key) {
  return swapped(n, key,
                 [](auto& gen, std::size_t k) { return ps::uniform(gen, std::size_t{0}, k); });
}

}  // namespace

TEST_CASE("chi-square probabilities match published tables", "[order][statistics]") {
  // Values from Abramowitz and Stegun, table 26.8.
  CHECK(chi_square_tails(3.84146, 1).above == Approx(0.05).epsilon(1e-5));
  CHECK(chi_square_tails(18.3070, 10).above == Approx(0.05).epsilon(1e-4));
  CHECK(chi_square_tails(67.3276, 100).below == Approx(0.005).epsilon(1e-4));
  CHECK(chi_square_tails(149.449, 100).above == Approx(0.001).epsilon(1e-4));
  CHECK(chi_square_tails(2.0, 2).above == Approx(std::exp(-1.0)).epsilon(1e-12));
  CHECK(chi_square_tails(65535, 65535).above == Approx(0.49927).epsilon(1e-4));
  CHECK(chance_of_deviation(1.959964) == Approx(0.05).epsilon(1e-5));
  CHECK(chance_of({10, 20, 30}, {1, 2, 3}) == 1);
  CHECK(chance_of(std::vector<double>(100, 1000.0)) < false_alarm);  // suspiciously even counts
  CHECK(chance_of({12, 0}, {1, 0}) == 1);
  CHECK(chance_of({12, 1}, {1, 0}) == 0);
}

TEST_CASE("the distributions of the statistics match all orders", "[order][statistics]") {
  for (const std::size_t n : {2u, 3u, 5u, 7u}) {
    CAPTURE(n);
    std::vector<double> fixed_found(n + 1), cycles_found(n + 1), records_found(n + 1),
        ascents_found(n);
    indices order = counting(n);
    double orders = 0;
    do {
      std::size_t fixed = 0, cycle = 0, ascent = 0, record = 0;
      std::vector<char> visited(n);
      for (std::size_t k = 0; k < n; ++k) {
        const auto before = order.begin() + static_cast<std::ptrdiff_t>(k);
        fixed += order[k] == k ? 1u : 0u;
        ascent += k > 0 && order[k - 1] < order[k] ? 1u : 0u;
        record +=
            std::all_of(order.begin(), before, [&](auto i) { return i < order[k]; }) ? 1u : 0u;
        cycle += visited[k] == 0 ? 1u : 0u;
        for (std::size_t i = k; visited[i] == 0; i = static_cast<std::size_t>(order[i])) {
          visited[i] = 1;
        }
      }
      ++fixed_found[fixed];
      ++cycles_found[cycle];
      ++ascents_found[ascent];
      ++records_found[record];
      ++orders;
    } while (std::next_permutation(order.begin(), order.end()));
    for (std::size_t k = 0; k <= n; ++k) {
      CHECK(fixed_points(n)[k] * orders == Approx(fixed_found[k]).margin(1e-9));
      CHECK(cycles(n)[k] * orders == Approx(cycles_found[k]).margin(1e-9));
      CHECK(cycles(n)[k] * orders == Approx(records_found[k]).margin(1e-9));
      if (k < n) CHECK(ascents(n)[k] * orders == Approx(ascents_found[k]).margin(1e-9));
    }
  }
}

TEST_CASE("each of the n! orders of up to eight samples is equally frequent",
          "[order][statistics][promise:exact-4]") {
  std::size_t orders = 1;
  for (std::size_t n = 2; n <= 8; ++n) {
    CAPTURE(n);
    orders *= n;
    const std::uint64_t keys = std::max<std::uint64_t>(20'000, 10 * orders) / slowness;
    std::vector<double> by_epoch(orders), by_seed(orders);
    for (std::uint64_t key = 0; key < keys; ++key) {
      ++by_epoch[rank_of(shuffled_by_epoch(n)(key))];
      ++by_seed[rank_of(shuffled_by_seed(n)(key))];
    }
    CHECK(chance_of(by_epoch) > false_alarm);
    CHECK(chance_of(by_seed) > false_alarm);
  }
}

TEST_CASE("orders of 2 to 64 samples have no structure", "[order][statistics][promise:exact-4]") {
  for (std::size_t n = 2; n <= 64; ++n) {
    const quality_of_order found = quality_of(shuffled_by_epoch(n), n, 20'000u / slowness);
    CAPTURE(n, found.places, found.pairs, found.fixed, found.cycles, found.parity, found.ascents,
            found.records);
    CHECK(worst(found) > false_alarm);
  }
}

TEST_CASE("no order of more than 64 samples, computed by another algorithm, has a structure",
          "[order][statistics]") {
  const std::size_t n = GENERATE(65u, 66u, 96u, 127u, 128u, 129u, 192u, 256u, 257u);
  for (const bool by_seed : {false, true}) {
    const std::uint64_t keys = 20'000u / slowness;
    const quality_of_order found = by_seed ? quality_of(shuffled_by_seed(n), n, keys)
                                           : quality_of(shuffled_by_epoch(n), n, keys);
    CAPTURE(n, by_seed, found.places, found.pairs, found.fixed, found.cycles, found.parity,
            found.ascents, found.records);
    CHECK(worst(found) > false_alarm);
  }
}

TEST_CASE("no order of a mixture's part has a structure", "[order][statistics]") {
  const std::size_t n = GENERATE(2u, 3u, 4u, 7u, 8u, 16u, 31u, 48u, 64u, 65u, 127u, 128u, 257u);
  const quality_of_order found = quality_of(mixed_by_epoch(n), n, 20'000u / slowness);
  CAPTURE(n, found.places, found.pairs, found.fixed, found.cycles, found.parity, found.ascents,
          found.records);
  CHECK(worst(found) > false_alarm);
}

TEST_CASE("each of the 8! orders of a mixture's part is equally frequent", "[order][statistics]") {
  std::vector<double> orders(40'320);
  const auto order_of = mixed_by_epoch(8);
  for (std::uint64_t key = 0; key < 2'000'000u / slowness; ++key) ++orders[rank_of(order_of(key))];
  CHECK(chance_of(orders) > false_alarm);
}

TEST_CASE("the statistics pass a good shuffle and detect bad ones",
          "[order][statistics][promise:exact-4]") {
  const std::uint64_t keys = 20'000u / slowness;
  const std::size_t n = 31;  // a prime
  const auto quality_by = [&](const auto& order_of) {
    return quality_of([&](std::uint64_t key) { return order_of(n, key); }, n, keys);
  };

  const quality_of_order good = quality_by(fisher_yates);
  CHECK(worst(good) > false_alarm);

  // Swaps every element with any position. The n^n outcomes cannot be distributed evenly over n!
  // orders.
  const quality_of_order careless = quality_by([](std::size_t size, std::uint64_t key) {
    return swapped(size, key, [size](auto& gen, std::size_t) {
      return ps::uniform(gen, std::size_t{0}, size - 1);
    });
  });
  CHECK(careless.places < false_alarm);

  // Sattolo's variant, with k instead of k + 1. The order is always a single cycle, so no sample
  // keeps its position.
  const quality_of_order cyclic = quality_by([](std::size_t size, std::uint64_t key) {
    return swapped(size, key, [](auto& gen, std::size_t k) {
      return k == 0 ? 0 : ps::uniform(gen, std::size_t{0}, k - 1);
    });
  });
  CHECK(cyclic.places < false_alarm);
  CHECK(cyclic.fixed < false_alarm);
  CHECK(cyclic.cycles < false_alarm);
  CHECK(cyclic.parity < false_alarm);

  // A rotation by a random number. Every sample reaches every position, but all samples move
  // together.
  const quality_of_order rotated = quality_by([](std::size_t size, std::uint64_t key) {
    ps::sample_generator gen{{.seed = 78}, key};
    indices order = counting(size);
    const auto begin = ps::uniform(gen, std::ptrdiff_t{0}, static_cast<std::ptrdiff_t>(size) - 1);
    std::rotate(order.begin(), order.begin() + begin, order.end());
    return order;
  });
  CHECK(rotated.pairs < false_alarm);
  CHECK(rotated.ascents < false_alarm);
  CHECK(rotated.records < false_alarm);

  // a k + c modulo a prime. Positions and pairs are uniform, but nearly every order has exactly one
  // fixed point.
  const quality_of_order affine = quality_by([](std::size_t size, std::uint64_t key) {
    ps::sample_generator gen{{.seed = 79}, key};
    const auto factor = ps::uniform(gen, std::uint64_t{1}, std::uint64_t{size} - 1);
    const auto addend = ps::uniform(gen, std::uint64_t{0}, std::uint64_t{size} - 1);
    indices order(size);
    for (std::size_t k = 0; k < size; ++k) order[k] = (factor * k + addend) % size;
    return order;
  });
  CHECK(affine.places > false_alarm);
  CHECK(affine.pairs > false_alarm);
  CHECK(affine.fixed < false_alarm);
  CHECK(affine.cycles < false_alarm);

  // Even permutations only, as some ciphers produce. Only the parity reveals this defect.
  const quality_of_order even = quality_by([](std::size_t size, std::uint64_t key) {
    indices order = fisher_yates(size, key);
    std::size_t inversions = 0;
    for (std::size_t a = 0; a < size; ++a) {
      for (std::size_t b = a + 1; b < size; ++b) inversions += order[a] > order[b] ? 1u : 0u;
    }
    if (inversions % 2 != 0) std::swap(order[3], order[size - 4]);
    return order;
  });
  CHECK(even.parity < false_alarm);
  CHECK(std::min({even.places, even.pairs, even.fixed, even.ascents, even.records}) > false_alarm);

  // Every twentieth epoch is not shuffled.
  const quality_of_order forgetful = quality_by([](std::size_t size, std::uint64_t key) {
    return key % 20 == 0 ? counting(size) : fisher_yates(size, key);
  });
  CHECK(forgetful.places < false_alarm);
  CHECK(forgetful.pairs < false_alarm);
}
