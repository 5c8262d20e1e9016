// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/samplers/bucketed.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/order/sharded.hpp>

#include "order/epoch_of.hpp"
#include "support/catch.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

/// Returns long-tailed lengths of at least 1. Most lengths are short, and a few are several hundred
/// times as long.
std::vector<std::uint32_t> long_tailed(std::size_t n) {
  std::vector<std::uint32_t> lengths(n);
  std::uint64_t state = 12345;
  for (auto& length : lengths) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const double uniform = static_cast<double>(state >> 11) * 0x1p-53;
    length = static_cast<std::uint32_t>(1 + 20 * uniform / (1.02 - uniform));
  }
  return lengths;
}

/// Returns the share of padding that a model computes if each batch is padded to its longest
/// sample.
double padded_share(const indices& order, const std::vector<std::uint32_t>& lengths,
                    std::size_t batch_size) {
  std::uint64_t used = 0;
  std::uint64_t computed = 0;
  for (std::size_t begin = 0; begin < order.size(); begin += batch_size) {
    const auto batch = std::span{order}.subspan(begin, std::min(batch_size, order.size() - begin));
    std::uint64_t longest = 0;
    for (const std::uint64_t index : batch) {
      used += lengths[index];
      longest = std::max<std::uint64_t>(longest, lengths[index]);
    }
    computed += longest * batch.size();
  }
  return 1 - static_cast<double>(used) / static_cast<double>(computed);
}

}  // namespace

TEST_CASE("a bucketed epoch has every sample once", "[samplers][promise:exact-5]") {
  for (const std::size_t n : {1U, 3U, 16U, 100U, 1000U, 4096U, 5003U}) {
    const auto lengths = long_tailed(n);
    const ps::bucketed order{lengths, {.seed = 1, .batch_size = 16, .window = 10}};
    indices all = epoch_of(order, n, 2);
    std::sort(all.begin(), all.end());
    indices expected(n);
    std::iota(expected.begin(), expected.end(), 0U);
    CHECK(all == expected);
  }
}

TEST_CASE("bucketed reads each length once while four windows are in flight", "[samplers]") {
  std::uint64_t requested = 0;
  const auto length = [&](std::uint64_t i) noexcept {
    ++requested;
    return i % 7;
  };
  constexpr std::uint64_t window = 4 * 25;
  constexpr std::uint64_t windows = 12;
  const ps::bucketed order{length, {.seed = 1, .batch_size = 4, .window = 25}};
  const auto all = order.order(windows * window, 0);
  std::array<std::uint64_t, 4> batch{};
  // Workers differ in speed, so each iteration uses the newest window and the three windows before
  // it.
  for (std::uint64_t newest = 0; newest < windows; ++newest) {
    for (std::uint64_t turn = 0; turn < 3; ++turn) {
      for (std::uint64_t which = newest < 3 ? 0 : newest - 3; which <= newest; ++which) {
        all.fill(which * window + turn * 4, batch);
      }
    }
  }
  CHECK(requested == windows * window);
}

TEST_CASE("a bucketed order is the same for any access pattern", "[samplers][promise:exact-5]") {
  const auto lengths = long_tailed(5003);
  const ps::bucketed order{lengths, {.seed = 7, .batch_size = 16, .window = 10}};
  const ps::bucketed equal{lengths, {.seed = 7, .batch_size = 16, .window = 10}};
  const indices expected = epoch_of(order, lengths.size(), 0);
  CHECK(epoch_of(equal, lengths.size(), 0) == expected);
  SECTION("backwards, in ranges that cross windows") {
    const auto epoch = equal.order(lengths.size(), 0);
    for (std::size_t end = lengths.size(); end != 0;) {
      const std::size_t begin = end > 37 ? end - 37 : 0;
      indices run(end - begin);
      epoch.fill(begin, run);
      CHECK(std::equal(run.begin(), run.end(),
                       expected.begin() + static_cast<std::ptrdiff_t>(begin)));
      end = begin;
    }
  }
  SECTION("from several threads that read different epochs") {
    std::vector<std::thread> threads;
    std::vector<indices> found(4);
    for (std::size_t t = 0; t < found.size(); ++t) {
      threads.emplace_back([&, t] { found[t] = epoch_of(equal, lengths.size(), t); });
    }
    for (auto& thread : threads) thread.join();
    for (std::size_t t = 0; t < found.size(); ++t) {
      CHECK(found[t] == epoch_of(order, lengths.size(), t));
    }
  }
  SECTION("alternating between two dataset sizes") {
    const auto length = [&](std::uint64_t i) noexcept { return lengths[i]; };
    const auto make = [&] {
      return ps::bucketed{length, {.seed = 7, .batch_size = 16, .window = 400}};
    };
    const auto both = make();
    const auto large = make();
    const auto little = make();
    // Each of the two orders in `both` has a window. Neither order may use the window of the other.
    for (int turn = 0; turn < 2; ++turn) {
      CHECK(epoch_of(both, 5003, 0) == epoch_of(large, 5003, 0));
      CHECK(epoch_of(both, 4000, 0) == epoch_of(little, 4000, 0));
    }
  }
}

TEST_CASE("bucketed orders differ between epochs and seeds", "[samplers][promise:exact-5]") {
  const auto lengths = long_tailed(1000);
  const ps::bucketed one{lengths, {.seed = 1, .batch_size = 16}};
  const ps::bucketed other{lengths, {.seed = 2, .batch_size = 16}};
  const indices first = epoch_of(one, 1000, 0);
  CHECK(epoch_of(one, 1000, 1) != first);
  CHECK(epoch_of(other, 1000, 0) != first);
  const auto batch_of = [](const indices& order) {
    return std::set<std::uint64_t>(order.begin(), order.begin() + 16);
  };
  // The contents of the batches differ too, not just their order.
  CHECK(batch_of(epoch_of(one, 1000, 1)) != batch_of(first));
}

TEST_CASE("bucketed batches need less padding than shuffled ones", "[samplers][promise:exact-5]") {
  const auto lengths = long_tailed(20000);
  const double shuffled = padded_share(epoch_of(ps::shuffled{.seed = 1}, 20000, 0), lengths, 32);
  const double some = padded_share(
      epoch_of(ps::bucketed{lengths, {.seed = 1, .batch_size = 32, .window = 8}}, 20000, 0),
      lengths, 32);
  const double more = padded_share(
      epoch_of(ps::bucketed{lengths, {.seed = 1, .batch_size = 32, .window = 128}}, 20000, 0),
      lengths, 32);
  CAPTURE(shuffled, some, more);
  CHECK(shuffled > 0.7);
  CHECK(some < 0.65);
  CHECK(more < 0.1);
}

TEST_CASE("a bucketed epoch neither begins nor ends with short samples",
          "[samplers][promise:exact-5]") {
  const auto lengths = long_tailed(64 * 256);
  const ps::bucketed order{lengths, {.seed = 3, .batch_size = 256, .window = 64}};
  const indices all = epoch_of(order, lengths.size(), 0);
  std::size_t rises = 0;
  for (std::size_t batch = 1; batch < 64; ++batch) {
    rises += lengths[all[batch * 256]] > lengths[all[batch * 256 - 256]] ? 1U : 0U;
  }
  CHECK(rises > 15);  // out of 63; if batches were sorted, all or none would rise
  CHECK(rises < 48);
}

TEST_CASE("the last partial batch has typical lengths", "[samplers][promise:exact-5]") {
  std::vector<std::uint32_t> lengths(1007);
  std::iota(lengths.begin(), lengths.end(), 1U);
  std::uint64_t sum = 0;
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
    const ps::bucketed order{lengths, {.seed = 3, .batch_size = 50, .window = 64}};
    const indices all = epoch_of(order, lengths.size(), epoch);
    for (std::size_t i = 1000; i < 1007; ++i) sum += lengths[all[i]];
  }
  const double mean = static_cast<double>(sum) / (200 * 7);
  CHECK(mean > 504 - 50);  // more than six standard deviations of 7.8 below the mean
  CHECK(mean < 504 + 50);
}

TEST_CASE("a bucketed order of equal lengths is a shuffle", "[samplers]") {
  const std::vector<std::uint16_t> lengths(1000, 7);
  const ps::bucketed order{lengths, {.seed = 3, .batch_size = 10, .window = 100}};
  const indices all = epoch_of(order, 1000, 0);
  std::size_t neighbours = 0;
  for (std::size_t i = 1; i < 1000; ++i) neighbours += all[i] == all[i - 1] + 1 ? 1U : 0U;
  CHECK(neighbours < 10);  // the expected value is 1
}

TEST_CASE("the ranks of a sharded bucketed order share its batches",
          "[samplers][promise:exact-5]") {
  const auto lengths = long_tailed(640);
  const ps::bucketed order{lengths, {.seed = 3, .batch_size = 32}};
  const indices all = epoch_of(order, 640, 0);
  for (int rank = 0; rank < 4; ++rank) {
    const ps::sharded share{order, {.rank = rank, .world = 4, .global_batch = 32}};
    const indices mine = epoch_of(share, 640, 0);
    REQUIRE(mine.size() == 160);
    for (std::size_t i = 0; i < 160; ++i) {
      CHECK(mine[i] == all[i / 8 * 32 + static_cast<std::size_t>(rank) * 8 + i % 8]);
    }
  }
}

TEST_CASE("a loader gives the same bucketed batches for any workers",
          "[samplers][promise:exact-5]") {
  const auto lengths = long_tailed(200);
  const auto labels = [&](std::size_t workers) {
    ps::loader loader{numbered{.count = 200},
                      ps::bucketed{lengths, {.seed = 5, .batch_size = 8, .window = 2}},
                      {.batch_size = 8, .workers = workers, .prefetch = 8, .tuning = {.chunk = 1}}};
    indices all;
    for (auto& batch : loader.epochs(0, 2)) {
      const auto some = ps::get<"label">(batch).flat();
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  };
  const indices expected = labels(0);
  CHECK(expected.size() == 400);
  CHECK(labels(1) == expected);
  CHECK(labels(4) == expected);
}

TEST_CASE("a wrong number of lengths is rejected", "[samplers]") {
  const auto lengths = long_tailed(10);
  const ps::bucketed order{lengths, {.seed = 5, .batch_size = 8}};
  CHECK_THROWS_MATCHES(
      order.size(11), ps::option_error,
      Catch::Matchers::Message(
          "lengths: expected one weight for each of the dataset's 11 samples, found 10"));
  CHECK_THROWS_AS(order.order(9, 0), ps::option_error);
  CHECK_THROWS_AS((ps::bucketed{lengths, {.batch_size = 0}}), ps::option_error);
  CHECK_THROWS_AS((ps::bucketed{lengths, {.batch_size = 1, .window = 0}}), ps::option_error);
  CHECK_THROWS_AS((ps::bucketed{lengths, {.batch_size = 4096, .window = 4097}}), ps::option_error);
}
