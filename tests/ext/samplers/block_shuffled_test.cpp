// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/samplers/block_shuffled.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "order/epoch_of.hpp"
#include "support/catch.hpp"
#include "support/statistics.hpp"

namespace ps = penstock;

namespace {

bool holds_all_once(indices order) {
  std::sort(order.begin(), order.end());
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (order[k] != k) return false;
  }
  return true;
}

/// Returns the sequence of blocks in an order, or an empty list if samples of different blocks are
/// mixed.
indices blocks_of(const indices& order, std::uint64_t block) {
  indices blocks;
  for (const std::uint64_t index : order) {
    if (blocks.empty() || blocks.back() != index / block) blocks.push_back(index / block);
  }
  const std::set<std::uint64_t> different(blocks.begin(), blocks.end());
  return different.size() == blocks.size() ? blocks : indices{};
}

}  // namespace

TEST_CASE("a block-shuffled order holds every sample once, block by block",
          "[samplers][promise:exact-4]") {
  for (std::uint64_t n = 1; n <= 200; ++n) {
    for (const std::uint64_t block :
         {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3}, std::uint64_t{7}, std::uint64_t{64},
          std::uint64_t{65}, n, n + 1, std::numeric_limits<std::uint64_t>::max()}) {
      CAPTURE(n, block);
      const indices order = epoch_of(ps::block_shuffled{.seed = 2, .block = block}, n, n % 3);
      REQUIRE(holds_all_once(order));
      REQUIRE(blocks_of(order, block).size() == (n - 1) / block + 1);
    }
  }
}

TEST_CASE("block-shuffled runs put together are the epoch", "[samplers]") {
  const std::uint64_t n = GENERATE(1000u, 1001u, 1099u);
  const std::uint64_t block = GENERATE(10u, 100u, 700u, 5000u);
  CAPTURE(n, block);
  const ps::block_shuffled sampler{.seed = 4, .block = block};
  const indices epoch = epoch_of(sampler, n, 2);
  const auto order = sampler.order(n, 2);
  for (const std::size_t length : {1u, 7u, 64u, 100u, 999u}) {
    indices pieces(epoch.size());
    for (std::size_t first = 0; first < epoch.size(); first += length) {
      order.fill(first, std::span{pieces}.subspan(first, std::min(length, epoch.size() - first)));
    }
    REQUIRE(pieces == epoch);
  }
}

TEST_CASE("block-shuffled differs for each seed and epoch, between blocks and inside",
          "[samplers]") {
  const ps::block_shuffled sampler{.seed = 1, .block = 100};
  const indices epoch = epoch_of(sampler, 1000, 0);
  CHECK(epoch == epoch_of(ps::block_shuffled{.seed = 1, .block = 100}, 1000, 0));
  for (const indices& other : {epoch_of(sampler, 1000, 1),
                               epoch_of(ps::block_shuffled{.seed = 2, .block = 100}, 1000, 0)}) {
    CHECK(blocks_of(epoch, 100) != blocks_of(other, 100));
    const auto inside = [](const indices& order, std::uint64_t which) {
      indices found;
      for (const std::uint64_t index : order) {
        if (index / 100 == which) found.push_back(index % 100);
      }
      return found;
    };
    for (std::uint64_t which = 0; which < 10; ++which) {
      CHECK(inside(epoch, which) != inside(other, which));
      CHECK(inside(epoch, which) != inside(epoch, (which + 1) % 10));
    }
  }
}

TEST_CASE("every block-shuffled order is equally frequent",
          "[samplers][statistics][promise:exact-4]") {
  struct check {
    std::uint64_t n, block;
    std::size_t orders;  // orders of the blocks times orders within each block
  };
  const auto [n, block, orders] =
      GENERATE(check{4, 2, 2 * 2 * 2}, check{5, 2, 6 * 2 * 2}, check{6, 2, 6 * 8},
               check{6, 3, 2 * 36}, check{7, 2, 24 * 8}, check{7, 3, 6 * 36}, check{5, 4, 2 * 24},
               check{4, 7, 24}, check{5, 1, 120}, check{5, 5, 120});
  CAPTURE(n, block);
  std::map<indices, double> found;
  const std::uint64_t keys = 20'000 / slowness;
  for (std::uint64_t key = 0; key < keys; ++key) {
    ++found[epoch_of(ps::block_shuffled{.seed = key % 100, .block = block}, n, key / 100)];
  }
  REQUIRE(found.size() == orders);
  std::vector<double> counts;
  for (const auto& entry : found) counts.push_back(entry.second);
  CHECK(chance_of(counts) > false_alarm);
}

TEST_CASE("a sample reaches every position as often as in a fair draw of blocks",
          "[samplers][statistics]") {
  struct check {
    std::uint64_t n, block;
  };
  const auto [n, block] =
      GENERATE(check{60, 10}, check{63, 10}, check{69, 10}, check{70, 66}, check{200, 7});
  CAPTURE(n, block);
  const std::size_t side = static_cast<std::size_t>(n);
  std::vector<double> counts(side * side);
  const std::uint64_t keys = 40'000 / slowness;
  for (std::uint64_t epoch = 0; epoch < keys; ++epoch) {
    const indices order = epoch_of(ps::block_shuffled{.seed = 6, .block = block}, n, epoch);
    for (std::size_t k = 0; k < side; ++k) ++counts[k * side + static_cast<std::size_t>(order[k])];
  }

  // The expected probabilities: the short block comes before, at or after each full block with
  // equal probability.
  const std::uint64_t full = n / block;
  const std::uint64_t rest = n % block;
  std::vector<double> expected(side * side);
  const std::uint64_t places = rest == 0 ? 1 : full + 1;
  for (std::uint64_t place = 0; place < places; ++place) {
    const std::uint64_t begin = place * block;
    for (std::uint64_t k = 0; k < n; ++k) {
      const bool in_short = k >= begin && k < begin + rest;
      for (std::uint64_t index = 0; index < n; ++index) {
        if ((index >= full * block) != in_short) continue;
        expected[static_cast<std::size_t>(k * n + index)] +=
            1.0 / static_cast<double>(in_short ? rest : full * block);
      }
    }
  }
  // Tests each position separately, because only the counts within a row come from independent
  // draws.
  double min = 1;
  for (std::size_t k = 0; k < side; ++k) {
    const auto row = [&](const std::vector<double>& of) {
      return std::vector<double>(of.begin() + static_cast<std::ptrdiff_t>(k * side),
                                 of.begin() + static_cast<std::ptrdiff_t>((k + 1) * side));
    };
    min = std::min(min, chance_of(row(counts), row(expected)));
  }
  CHECK(min > false_alarm);
}

TEST_CASE("two blocks, and two samples of a block, reach every pair of positions", "[samplers]") {
  const std::uint64_t block = 8;
  std::vector<double> blocks(10 * 10);
  std::vector<double> inside(block * block);
  // The samples at the same position in two blocks. Each block has its own shuffle.
  std::vector<double> across(block * block);
  std::vector<double> unequal(10 * 10, 1.0);
  std::vector<double> unequal_inside(block * block, 1.0);
  for (std::size_t i = 0; i < 10; ++i) unequal[i * 11] = 0;
  for (std::size_t i = 0; i < block; ++i) unequal_inside[i * 9] = 0;
  for (std::uint64_t seed = 0; seed < 40'000u / slowness; ++seed) {
    const indices order = epoch_of(ps::block_shuffled{.seed = seed, .block = block}, 80, 1);
    const indices in_order = blocks_of(order, block);
    ++blocks[static_cast<std::size_t>(in_order[4] * 10 + in_order[5])];
    ++inside[static_cast<std::size_t>(order[18] % block * block + order[19] % block)];
    ++across[static_cast<std::size_t>(order[18] % block * block + order[26] % block)];
  }
  CHECK(chance_of(blocks, unequal) > false_alarm);
  CHECK(chance_of(inside, unequal_inside) > false_alarm);
  CHECK(chance_of(across) > false_alarm);
}

TEST_CASE("a block-shuffled order of 2^63 samples stays inside and does not repeat", "[samplers]") {
  const std::uint64_t n = std::uint64_t{1} << 63;
  const std::uint64_t block = GENERATE(1u, 4097u, 1'000'000u);
  CAPTURE(block);
  const auto order = ps::block_shuffled{.seed = 1, .block = block}.order(n, 0);
  indices seen(10'000);
  order.fill(0, std::span{seen}.first(5'000));
  order.fill(n - 5'000, std::span{seen}.subspan(5'000));
  CHECK(std::all_of(seen.begin(), seen.end(), [&](std::uint64_t index) { return index < n; }));
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}

TEST_CASE("block-shuffled does not use the bits of shuffled", "[samplers]") {
  indices all(100);
  ps::shuffled{.seed = 1}.order(100, 0).fill(0, all);
  CHECK(epoch_of(ps::block_shuffled{.seed = 1, .block = 100}, 100, 0) != all);
  CHECK(epoch_of(ps::block_shuffled{.seed = 1, .block = 1}, 100, 0) != all);
}

TEST_CASE("block-shuffled rejects a block size of 0 and an empty dataset", "[samplers]") {
  const ps::block_shuffled none{.seed = 1, .block = 0};
  CHECK_THROWS_MATCHES(none.size(10), ps::option_error,
                       Catch::Matchers::Message("block: must be at least 1, but is 0"));
  CHECK_THROWS_AS(none.order(10, 0), ps::option_error);
  CHECK_THROWS_MATCHES(
      ps::block_shuffled{}.order(0, 0), std::invalid_argument,
      Catch::Matchers::Message("block_shuffled: expected 1 <= n <= 2^63, found n = 0"));
  CHECK_THROWS_AS(ps::block_shuffled{}.order((std::uint64_t{1} << 63) + 1, 0),
                  std::invalid_argument);
}

TEST_CASE("a block-shuffled order is plain bytes of a fixed size", "[samplers]") {
  STATIC_REQUIRE(std::is_trivially_copyable_v<ps::detail::block_order>);
  STATIC_REQUIRE(sizeof(ps::detail::block_order) <= 256);
}

TEST_CASE("a block-shuffled order never changes: golden indices", "[samplers][promise:exact-3]") {
  CHECK(epoch_of(ps::block_shuffled{.seed = 1, .block = 4}, 10, 0) ==
        indices{2, 0, 1, 3, 7, 5, 6, 4, 8, 9});
  indices run(4);
  ps::block_shuffled{.seed = 1, .block = 1000}.order(1'000'000'500, 2).fill(500'000'998, run);
  CHECK(run == indices{183558686, 183558526, 598124956, 598124555});
}
