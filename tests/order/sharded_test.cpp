// SPDX-License-Identifier: BSL-1.0
#include <penstock/order/sharded.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock/order/weighted.hpp>
#include <penstock_ext/samplers/block_shuffled.hpp>
#include <penstock_ext/samplers/bucketed.hpp>
#include <penstock_ext/samplers/by_tokens.hpp>

#include "order/epoch_of.hpp"
#include "support/catch.hpp"
#include "support/numbered.hpp"
#include "support/rejection.hpp"

namespace ps = penstock;

namespace {

constexpr int worlds_of_24[] = {1, 2, 3, 4, 6, 8, 12, 24};

/// Returns the global batches of an epoch as a single process would read them, by a naive
/// algorithm.
template <ps::sampler Sampler>
std::vector<indices> global_batches(const Sampler& sampler, std::uint64_t n, std::uint64_t epoch,
                                    std::size_t size, ps::remainder_policy tail) {
  const indices all = epoch_of(sampler, n, epoch);
  std::vector<indices> batches;
  for (std::size_t begin = 0; begin < all.size(); begin += size) {
    if (tail == ps::remainder_policy::drop && begin + size > all.size()) break;
    indices batch;
    for (std::size_t k = begin; k < begin + size; ++k) batch.push_back(all[k % all.size()]);
    batches.push_back(batch);
  }
  return batches;
}

/// Returns the samples that all ranks read in step `step`, ordered by rank.
template <ps::sampler Sampler>
indices union_of(const Sampler& sampler, std::uint64_t n, std::uint64_t epoch, std::uint64_t step,
                 ps::shard_options options) {
  indices all;
  for (options.rank = 0; options.rank < options.world; ++options.rank) {
    const ps::sharded shard{sampler, options};
    indices batch(shard.batch_size());
    shard.order(n, epoch).fill(step * shard.batch_size(), batch);
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

std::string problem_of(const ps::shard_options& options, std::uint64_t n = 100) {
  return test::rejection_of(
             [&] { static_cast<void>(ps::sharded{ps::sequential{}, options}.size(n)); })
      .text;
}

}  // namespace

TEMPLATE_TEST_CASE("step s over all ranks is the same global batch for every world",
                   "[order][promise:exact-8]", ps::sequential, ps::shuffled, ps::block_shuffled) {
  const auto tail = GENERATE(ps::remainder_policy::wrap, ps::remainder_policy::drop);
  const std::uint64_t n = GENERATE(24u, 25u, 47u, 48u, 100u, 1000u);
  CAPTURE(n, tail);
  const TestType sampler{};
  for (const std::uint64_t epoch : {0u, 3u}) {
    const auto expected = global_batches(sampler, n, epoch, 24, tail);
    for (const int world : worlds_of_24) {
      CAPTURE(world);
      for (std::uint64_t step = 0; step < expected.size(); ++step) {
        REQUIRE(union_of(sampler, n, epoch, step,
                         {.world = world, .global_batch = 24, .remainder = tail}) ==
                expected[static_cast<std::size_t>(step)]);
      }
    }
  }
}

TEST_CASE("the draws of a weighted sampler are sharded as well", "[order][promise:exact-8]") {
  std::vector<double> weights(50);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<double>(i);
  const ps::weighted sampler{weights, {.seed = 3, .draws = 130}};
  const auto expected = global_batches(sampler, 50, 1, 24, ps::remainder_policy::wrap);
  REQUIRE(expected.size() == 6);
  for (const int world : worlds_of_24) {
    for (std::uint64_t step = 0; step < expected.size(); ++step) {
      REQUIRE(union_of(sampler, 50, 1, step, {.world = world, .global_batch = 24}) ==
              expected[static_cast<std::size_t>(step)]);
    }
  }
}

TEST_CASE("all ranks have the same number of full batches for any size",
          "[order][promise:exact-8]") {
  const auto tail = GENERATE(ps::remainder_policy::wrap, ps::remainder_policy::drop);
  struct split {
    int world;
    std::size_t global_batch;
  };
  const auto [world, global_batch] = GENERATE(split{1, 1}, split{1, 7}, split{2, 2}, split{3, 12},
                                              split{4, 8}, split{8, 64}, split{6, 300});
  CAPTURE(tail, world, global_batch);
  for (std::uint64_t n = 1; n <= 200; ++n) {
    const bool wraps = tail == ps::remainder_policy::wrap;
    const std::uint64_t steps =
        n / global_batch + (wraps && n % global_batch != 0 ? std::uint64_t{1} : 0);
    indices read;
    for (int rank = 0; rank < world; ++rank) {
      const ps::sharded shard{
          ps::shuffled{.seed = n},
          {.rank = rank, .world = world, .global_batch = global_batch, .remainder = tail}};
      if (steps == 0) {
        REQUIRE_THROWS_AS(shard.size(n), ps::option_error);
        continue;
      }
      REQUIRE(shard.batch_size() * static_cast<std::size_t>(world) == global_batch);
      REQUIRE(shard.size(n) == steps * shard.batch_size());
      const indices mine = epoch_of(shard, n, 2);
      read.insert(read.end(), mine.begin(), mine.end());
    }
    // If the epoch wraps around, every sample occurs and the first samples occur twice. Otherwise,
    // each sample occurs at most once.
    const std::set<std::uint64_t> different(read.begin(), read.end());
    REQUIRE(read.size() == steps * global_batch);
    REQUIRE(different.size() == (wraps ? n : read.size()));
  }
}

TEST_CASE("the positions of a rank are as documented", "[order]") {
  // 10 samples, global batches of 4 on 2 ranks: 0 1|2 3, 4 5|6 7, 8 9|0 1.
  const ps::shard_options first{.rank = 0, .world = 2, .global_batch = 4};
  const ps::shard_options second{.rank = 1, .world = 2, .global_batch = 4};
  CHECK(epoch_of(ps::sharded{ps::sequential{}, first}, 10, 0) == indices{0, 1, 4, 5, 8, 9});
  CHECK(epoch_of(ps::sharded{ps::sequential{}, second}, 10, 0) == indices{2, 3, 6, 7, 0, 1});
  // An epoch shorter than a global batch is repeated several times.
  const ps::shard_options wide{.rank = 1, .world = 2, .global_batch = 14};
  CHECK(epoch_of(ps::sharded{ps::sequential{}, wide}, 3, 0) == indices{1, 2, 0, 1, 2, 0, 1});
}

TEST_CASE("the parts of a rank's order together are the rank's order", "[order]") {
  const ps::sharded shard{ps::shuffled{.seed = 5}, {.rank = 2, .world = 3, .global_batch = 21}};
  const indices whole = epoch_of(shard, 100, 1);
  const auto order = shard.order(100, 1);
  for (std::size_t length = 1; length <= whole.size(); ++length) {
    indices pieces(whole.size());
    for (std::size_t first = 0; first < whole.size(); first += length) {
      order.fill(first, std::span{pieces}.subspan(first, std::min(length, whole.size() - first)));
    }
    REQUIRE(pieces == whole);
  }
}

TEST_CASE("a run stopped on 8 ranks resumes on 4, batch by batch", "[order][promise:exact-8]") {
  const numbered data{.count = 1000};
  const ps::shuffled sampler{.seed = 9};
  const auto expected = global_batches(sampler, 1000, 2, 48, ps::remainder_policy::wrap);
  const std::uint64_t stopped_at = 11;

  std::vector<indices> seen(expected.size());
  const auto train = [&](int world, const ps::batch_position& from, std::uint64_t to) {
    for (int rank = 0; rank < world; ++rank) {
      const ps::sharded shard{sampler, {.rank = rank, .world = world, .global_batch = 48}};
      ps::loader loader{data, shard, {.batch_size = shard.batch_size(), .workers = 2}};
      REQUIRE(loader.batches_per_epoch() == expected.size());
      for (auto& batch : loader.batches(from, ps::until_epoch{3})) {
        if (batch.number() == to) break;
        REQUIRE(batch.size() == shard.batch_size());
        const indices labels = labels_of(batch);
        auto& step = seen[static_cast<std::size_t>(batch.number())];
        step.insert(step.end(), labels.begin(), labels.end());
      }
    }
  };
  train(8, {2, 0}, stopped_at);
  train(4, {2, stopped_at}, expected.size());
  CHECK(seen == expected);
}

TEST_CASE("the state of a rank of 8 equals the state of a rank of 4", "[order][promise:exact-8]") {
  const numbered data{.count = 1000};
  const auto loader_of = [&](int rank, int world, ps::remainder_policy tail) {
    const ps::sharded shard{ps::shuffled{.seed = 9},
                            {.rank = rank, .world = world, .global_batch = 48, .remainder = tail}};
    return ps::loader{data, shard, {.batch_size = shard.batch_size()}};
  };
  auto before = loader_of(5, 8, ps::remainder_policy::wrap);
  for (auto& batch : before.epoch(2)) {
    if (batch.number() == 10) break;
  }
  const ps::loader_state state = before.state();
  CHECK(state.batch == 11);
  CHECK(state.batch_size == 48);
  const auto expected =
      global_batches(ps::shuffled{.seed = 9}, 1000, 2, 48, ps::remainder_policy::wrap);
  for (int rank = 0; rank < 4; ++rank) {
    auto after = loader_of(rank, 4, ps::remainder_policy::wrap);
    std::size_t step = 11;
    for (auto& batch : after.resume(state, 3)) {
      const auto from = expected[step++].begin() + 12 * rank;
      REQUIRE(labels_of(batch) == indices(from, from + 12));
    }
    CHECK(step == expected.size());
  }
  auto other = loader_of(0, 4, ps::remainder_policy::drop);
  CHECK_THROWS_AS(other.resume(state, 3), ps::state_mismatch);
}

TEST_CASE("a loader whose batch size is not the shard's is rejected", "[order]") {
  const ps::sharded shard{ps::sequential{}, {.world = 2, .global_batch = 32}};
  const numbered data{};
  CHECK_THROWS_MATCHES((ps::loader{data, shard, {.batch_size = 32}}), ps::option_error,
                       Catch::Matchers::Message("batch_size: must be the sampler's 16 (sharded: "
                                                "global_batch / world), but is 32"));
}

TEST_CASE("an epoch of 2^63 samples is sharded to its end", "[order]") {
  const std::uint64_t n = std::uint64_t{1} << 63;
  const ps::sharded shard{ps::sequential{}, {.rank = 3, .world = 7, .global_batch = 7 * 1000}};
  const std::uint64_t steps = n / 7000 + 1;
  REQUIRE(shard.size(n) == steps * 1000);
  indices last(1000);
  shard.order(n, 0).fill((steps - 1) * 1000, last);
  for (std::size_t k = 0; k < last.size(); ++k) {
    REQUIRE(last[k] == ((steps - 1) * 7000 + 3000 + k) % n);
  }
}

TEST_CASE("invalid sharding options are rejected by name", "[order][promise:honest-7]") {
  CHECK(problem_of({.world = 0, .global_batch = 8}) == "world: must be at least 1, but is 0");
  CHECK(problem_of({.rank = 4, .world = 4, .global_batch = 8}) ==
        "rank: must be at least 0 and below the world of 4, but is 4");
  CHECK(problem_of({.rank = -1, .world = 4, .global_batch = 8}) ==
        "rank: must be at least 0 and below the world of 4, but is -1");
  CHECK(problem_of({}) == "global_batch: must be at least 1, but is 0");
  CHECK(problem_of({.world = 3, .global_batch = 1000}) ==
        "global_batch: must be a multiple of the world of 3, but is 1000, which leaves 1: take 999 "
        "or "
        "1002");
  CHECK(problem_of({.world = 8, .global_batch = 7}) ==
        "global_batch: must be a multiple of the world of 8, but is 7, which leaves 7: take 8");
  CHECK(problem_of({.world = 2, .global_batch = ~std::size_t{0}}) ==
        "global_batch: must be a multiple of the world of 2, but is 18446744073709551615, which "
        "leaves "
        "1: take 18446744073709551614");
  CHECK(problem_of({.world = 7, .global_batch = ~std::size_t{0}}) ==
        "global_batch: must be a multiple of the world of 7, but is 18446744073709551615, which "
        "leaves "
        "1: take 18446744073709551614");
  CHECK(problem_of({.rank = 3, .world = 4, .global_batch = 8}) == "none");
  CHECK(problem_of({.world = 4, .global_batch = 104, .remainder = ps::remainder_policy::drop}) ==
        "global_batch: 104 is above the 100 samples of an epoch, and remainder_policy::drop leaves "
        "no "
        "batch");
  CHECK(problem_of({.world = 4, .global_batch = 100, .remainder = ps::remainder_policy::drop}) ==
        "none");
  const std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
  CHECK(problem_of({.world = 2, .global_batch = 8}, max - 6) ==
        "global_batch: 18446744073709551609 samples and up to 7 repeated samples exceed 64 bits");
  CHECK(problem_of({.world = 2, .global_batch = 8}, max - 7) == "none");
}

TEST_CASE("an empty epoch is empty for every rank", "[order]") {
  const auto tail =
      GENERATE(ps::remainder_policy::wrap, ps::remainder_policy::drop, ps::remainder_policy::keep);
  CHECK(ps::sharded{ps::sequential{}, {.world = 2, .global_batch = 8, .remainder = tail}}.size(0) ==
        0);
}

TEST_CASE("with keep, all ranks together read every sample exactly once",
          "[order][promise:exact-8]") {
  const int world = GENERATE(range(1, 10));
  CAPTURE(world);
  for (const std::size_t batch : {1U, 3U, 8U}) {
    const std::size_t global_batch = batch * static_cast<std::size_t>(world);
    for (std::uint64_t n = 1; n <= 3 * global_batch + 1; ++n) {
      const ps::shuffled sampler{.seed = n};
      const indices all = epoch_of(sampler, n, 1);
      std::vector<indices> steps(static_cast<std::size_t>((n + global_batch - 1) / global_batch));
      std::uint64_t max = 0;
      for (int rank = 0; rank < world; ++rank) {
        const ps::sharded shard{sampler,
                                {.rank = rank,
                                 .world = world,
                                 .global_batch = global_batch,
                                 .remainder = ps::remainder_policy::keep}};
        REQUIRE(shard.total_size(n) == n);
        if (rank == 0) max = shard.size(n);
        REQUIRE(shard.size(n) <= max);
        REQUIRE(max - shard.size(n) <= 1);
        const indices mine = epoch_of(shard, n, 1);
        for (std::size_t k = 0; k < mine.size(); ++k) steps[k / batch].push_back(mine[k]);
      }
      // Step by step, the ranks together read the global order, for any number of ranks.
      indices read;
      for (const indices& step : steps) read.insert(read.end(), step.begin(), step.end());
      REQUIRE(read == all);
    }
  }
}

TEST_CASE("a sampler that repeats or cuts batches loses no sample with keep",
          "[order][promise:exact-8]") {
  const int world = GENERATE(1, 2, 4, 8);
  const auto union_over_ranks = [&](const auto& sampler, std::uint64_t n, std::size_t global) {
    indices all;
    for (int rank = 0; rank < world; ++rank) {
      const ps::sharded shard{sampler,
                              {.rank = rank,
                               .world = world,
                               .global_batch = global,
                               .remainder = ps::remainder_policy::keep}};
      const indices mine = epoch_of(shard, n, 1);
      all.insert(all.end(), mine.begin(), mine.end());
    }
    std::sort(all.begin(), all.end());
    return all;
  };
  const auto sorted = [](indices all) {
    std::sort(all.begin(), all.end());
    return all;
  };
  const std::vector<double> weights(50, 1);
  const ps::weighted drawn{weights, {.seed = 3, .draws = 131}};
  CHECK(union_over_ranks(drawn, 50, 24) == sorted(epoch_of(drawn, 50, 1)));
  const std::vector<std::uint32_t> lengths{7, 3, 9, 1, 4, 4, 8, 2, 6, 5, 3, 1, 9};
  const ps::bucketed bucketed{lengths, {.seed = 1, .batch_size = 8, .window = 2}};
  CHECK(union_over_ranks(bucketed, 13, 8) == sorted(epoch_of(bucketed, 13, 1)));
  const ps::by_tokens cut{lengths, {.seed = 1, .max_tokens = 12, .batches_per_step = 8}};
  CHECK(union_over_ranks(cut, 13, 0) == sorted(epoch_of(cut, 13, 1)));
}

TEST_CASE("loaders with keep deliver every sample once, even if a rank has no samples",
          "[order][promise:exact-8]") {
  const int world = GENERATE(1, 3, 8);
  const std::uint64_t n = GENERATE(1u, 2u, 7u, 8u, 25u, 64u, 65u);
  const auto last = GENERATE(ps::last_batch::keep, ps::last_batch::pad);
  CAPTURE(world, n, last);
  const numbered data{.count = n};
  const auto loader_of = [&](int rank, int ranks,
                             ps::remainder_policy tail = ps::remainder_policy::keep) {
    const ps::sharded shard{ps::shuffled{.seed = 4},
                            {.rank = rank, .world = ranks, .global_batch = 24, .remainder = tail}};
    return ps::loader{
        data, shard, {.batch_size = shard.batch_size(), .workers = 1, .last_batch = last}};
  };
  std::vector<int> seen(static_cast<std::size_t>(n));
  const std::uint64_t steps = (n + 23) / 24;
  ps::loader_state after;
  for (int rank = 0; rank < world; ++rank) {
    auto loader = loader_of(rank, world);
    CHECK(loader.batches_per_epoch() <= steps);
    CHECK(loader.batches_per_epoch() + 1 >= steps);
    const ps::loader_state before = loader.state();
    for (auto& batch : loader.epochs(2, 3)) {
      const indices labels = labels_of(batch);
      for (std::size_t i = 0; i < batch.valid(); ++i) ++seen[static_cast<std::size_t>(labels[i])];
    }
    if (rank == 0) after = loader.state();
    CHECK(before == loader_of(0, 1).state_at({0, 0}));
    CHECK(after.batch == steps);
    // The end of the epoch is the same on all ranks, including ranks with one batch fewer.
    if (loader.batches_per_epoch() != 0) CHECK(loader.state() == after);
    CHECK(labels_in(loader.epochs(5, 5)).empty());
    CHECK_THROWS_AS(loader.epochs(5, 4).begin(), ps::option_error);
    CHECK(labels_in(loader.resume(after, 3)).empty());
    CHECK(labels_in(loader.resume(after, 4)) == labels_in(loader.epoch(3)));
  }
  CHECK(seen == std::vector<int>(seen.size(), 1));
  // Ranks of a world with a different size resume at the same step.
  for (const int ranks : {1, 2, 4, 8}) {
    indices rest;
    for (int rank = 0; rank < ranks; ++rank) {
      auto loader = loader_of(rank, ranks);
      auto from = after;
      from.batch = steps - 1;
      for (auto& batch : loader.resume(from, 3)) {
        const indices labels = labels_of(batch);
        rest.insert(rest.end(), labels.begin(), labels.begin() + std::ptrdiff_t(batch.valid()));
      }
    }
    const indices all = epoch_of(ps::shuffled{.seed = 4}, n, 2);
    CHECK(rest == indices(all.begin() + std::ptrdiff_t((steps - 1) * 24), all.end()));
  }
  if (n % 24 != 0) {
    auto other = loader_of(0, world, ps::remainder_policy::wrap);
    CHECK_THROWS_AS(other.resume(after, 4), ps::state_mismatch);
  }
}

TEST_CASE("with keep, an empty dataset and a loader that drops batches are rejected", "[order]") {
  const auto tail = ps::remainder_policy::keep;
  const ps::sharded shard{ps::sequential{},
                          {.rank = 1, .world = 2, .global_batch = 8, .remainder = tail}};
  CHECK(shard.size(0) == 0);
  const std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
  CHECK(shard.size(max) == max / 8 * 4 + 3);
  CHECK_THROWS_AS((ps::loader{numbered{.count = 0}, shard, {.batch_size = 4}}), ps::empty_dataset);
  CHECK_THROWS_MATCHES(
      (ps::loader{
          numbered{.count = 9}, shard, {.batch_size = 4, .last_batch = ps::last_batch::drop}}),
      ps::option_error,
      Catch::Matchers::Message(
          "last_batch: must not be drop if the sampler has remainder_policy::keep, "
          "because no other rank reads the samples of the short last batch"));
}

TEST_CASE("a shard is a sampler, and its order is trivially copyable", "[order]") {
  using share = ps::sharded<ps::shuffled>;
  STATIC_REQUIRE(ps::sampler<share>);
  STATIC_REQUIRE(std::is_trivially_copyable_v<ps::detail::order_of<share>>);
  STATIC_REQUIRE(sizeof(ps::detail::order_of<share>) == sizeof(ps::detail::permutation) + 5 * 8);
  const ps::sharded shard{ps::sequential{}, {.rank = 1, .world = 2, .global_batch = 6}};
  CHECK(shard.options().rank == 1);
  CHECK(shard.world() == 2);
  CHECK(shard.global().size(7) == 7);
  CHECK(shard.options().remainder == ps::remainder_policy::wrap);
}
