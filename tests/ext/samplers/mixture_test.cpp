// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/samplers/mixture.hpp>

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <penstock/data/adaptors/concat.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/sharded.hpp>
#include <penstock/resume/loader_state.hpp>

#include "order/epoch_of.hpp"
#include "support/catch.hpp"
#include "support/numbered.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;

namespace {

using sizes = std::vector<std::uint64_t>;
using weights = std::vector<std::uint32_t>;

constexpr auto end = ps::exhausted_part_policy::end;
constexpr auto stop_sampling = ps::exhausted_part_policy::stop_sampling;

ps::mixture mixed(ps::mixture_options options, sizes of_parts) {
  return ps::mixture::of_sizes(std::move(options), std::move(of_parts));
}

/// Returns the number of `indices` in each part.
sizes counts_of(std::span<const std::uint64_t> indices, const sizes& of_parts) {
  sizes counts(of_parts.size());
  for (std::uint64_t index : indices) {
    std::size_t part = 0;
    for (; index >= of_parts[part]; ++part) index -= of_parts[part];
    ++counts[part];
  }
  return counts;
}

std::string mixture_problem(const ps::mixture_options& options, const sizes& of_parts) {
  try {
    static_cast<void>(mixed(options, of_parts));
  } catch (const ps::option_error& error) {
    return error.what();
  }
  return "none";
}

std::string mixture_problem(std::span<const std::uint64_t> amounts, double temperature,
                            std::uint32_t round) {
  try {
    static_cast<void>(ps::temperature_weights(amounts, temperature, round));
  } catch (const ps::option_error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("every window of one round has the exact shares", "[samplers][promise:exact-23]") {
  const sizes of_parts{70, 50, 30};
  const ps::mixture mixture =
      mixed({.schedule = {{{}, {6, 3, 1}}, {{.step = 12}, {4, 4, 2}}}, .batch_size = 10}, of_parts);
  const indices all = epoch_of(mixture, 150, 0);
  REQUIRE(all.size() == 150);
  for (std::size_t k = 0; k + 10 <= 120; ++k) {
    REQUIRE(counts_of(std::span{all}.subspan(k, 10), of_parts) == sizes{6, 3, 1});
  }
  for (std::size_t k = 120; k + 5 <= 150; ++k) {
    REQUIRE(counts_of(std::span{all}.subspan(k, 5), of_parts) == sizes{2, 2, 1});
  }
}

TEST_CASE("a part has each sample once per epoch, in a different order each time",
          "[samplers][promise:exact-23]") {
  const sizes of_parts{100, 7};
  // An epoch of a part may extend over several epochs of the mixture.
  const ps::mixture mixture =
      mixed({.seed = 3, .schedule = {{{}, {3, 2}}, {{.epoch = 1}, {1, 1}}}}, of_parts);
  indices first;
  for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
    for (const std::uint64_t index : epoch_of(mixture, 107, epoch)) {
      if (index < 100) first.push_back(index);
    }
  }
  REQUIRE(first.size() >= 200);
  const indices once{first.begin(), first.begin() + 100};
  const indices again{first.begin() + 100, first.begin() + 200};
  CHECK(std::is_permutation(once.begin(), once.end(), again.begin()));
  CHECK(indices(first.begin(), first.begin() + 100) != again);
  CHECK_FALSE(std::is_sorted(once.begin(), once.end()));
  CHECK(epoch_of(mixed({.seed = 4}, of_parts), 107, 0) !=
        epoch_of(mixed({.seed = 3}, of_parts), 107, 0));
}

TEST_CASE("with stop_sampling an epoch has every sample once, and the others keep their shares",
          "[samplers][promise:exact-23]") {
  const sizes of_parts{40, 6, 20};
  const ps::mixture mixture =
      mixed({.schedule = {{{}, {1, 1, 2}}}, .on_exhausted = stop_sampling}, of_parts);
  indices all = epoch_of(mixture, 66, 1);
  CHECK(counts_of(std::span{all}.first(24), of_parts) == sizes{6, 6, 12});
  CHECK(counts_of(std::span{all}.subspan(24, 3), of_parts) == sizes{1, 0, 2});
  std::sort(all.begin(), all.end());
  indices once(66);
  std::iota(once.begin(), once.end(), std::uint64_t{0});
  CHECK(all == once);
}

TEST_CASE("the order of a mixture never changes: golden indices", "[samplers][promise:exact-3]") {
  constexpr std::uint64_t large = 1'000'000'000'000;
  const ps::mixture mixture =
      mixed({.seed = 7, .schedule = {{{}, {3, 2, 1}}, {{.step = 1}, {1, 1, 1}}}, .batch_size = 6},
            {large, 50, 1000});
  indices run(9);
  mixture.order(large + 1050, 0).fill(0, run);
  CHECK(run == indices{741708678144, large + 42, 331434039054, large + 842, large + 25,
                       308088065873, 812356504865, large + 14, large + 349});
  mixture.order(large + 1050, 1).fill(0, run);
  CHECK(run == indices{173897767424, large + 15, large + 852, 190557326841, large + 38, large + 873,
                       899990253618, large + 43, large + 448});
}

TEST_CASE("positions and counts are right near 2^63", "[samplers]") {
  constexpr std::uint64_t large = std::uint64_t{1} << 61;
  const sizes of_parts{large, 3, large};
  const ps::mixture mixture =
      mixed({.schedule = {{{}, {3, 1, 1}}, {{.epoch = 1, .step = large / 1024}, {1, 1, 1}}},
             .batch_size = 1024},
            of_parts);
  const std::uint64_t n = 2 * large + 3;
  const std::uint64_t size = mixture.size(n);
  CHECK(size == 2 * large);
  const std::uint64_t before = large / 1024 * 1024;  // just before the change in epoch 1
  std::array<std::uint64_t, 6> some{};
  mixture.order(n, 1).fill(before, some);
  CHECK(counts_of(some, of_parts) == sizes{2, 2, 2});
  const auto progress = mixture.progress({1, large / 1024});
  CHECK(progress[0].samples + progress[1].samples + progress[2].samples == 3 * large);
  CHECK(progress[1].samples == progress[2].samples + (3 * large % 5 == 2 ? 1 : 0));
  CHECK(progress[1].epoch == progress[1].samples / 3);
  CHECK_THROWS_AS(mixture.order(n, 2), ps::option_error);  // the position exceeds 2^63
  const auto until_end = [](const sizes& parts) {
    return mixed({.schedule = {{{}, {1, 3}}}, .on_exhausted = end}, parts)
        .size(std::accumulate(parts.begin(), parts.end(), std::uint64_t{0}));
  };
  CHECK(until_end({std::uint64_t{1} << 62, 30}) == until_end({1000, 30}));
}

TEST_CASE("steps of a mixture are the same global batches for every world",
          "[samplers][promise:exact-8]") {
  const ps::mixture mixture =
      mixed({.schedule = {{{}, {5, 2}}, {{.step = 3}, {1, 1}}}, .batch_size = 24}, {100, 33});
  const indices expected = epoch_of(mixture, 133, 1);
  for (const int world : {1, 2, 3, 4, 6, 8, 12, 24}) {
    for (int rank = 0; rank < world; ++rank) {
      const ps::sharded shard{mixture, {.rank = rank, .world = world, .global_batch = 24}};
      const std::size_t batch = shard.batch_size();
      const indices own = epoch_of(shard, 133, 1);
      REQUIRE(own.size() == expected.size() / static_cast<std::size_t>(world));
      for (std::size_t k = 0; k < own.size(); ++k) {
        REQUIRE(own[k] ==
                expected[k / batch * 24 + static_cast<std::size_t>(rank) * batch + k % batch]);
      }
    }
  }
}

TEST_CASE("an unknown change of weights is rejected, or accepted if allowed",
          "[samplers][resume][promise:exact-7][promise:exact-23]") {
  const numbered web{.count = 50};
  const numbered code{.count = 30};
  const auto both = ps::concat(web, code);
  const ps::mixture before{{.seed = 1, .schedule = {{{}, {3, 1}}}, .batch_size = 4}, web, code};
  ps::loader old{both, before, {.batch_size = 4, .workers = 2}};
  const ps::loader_state state = old.state_at({0, 6});

  const ps::mixture after = before.continued({state.epoch, state.batch}, {1, 2});
  CHECK(after.fingerprint() != before.fingerprint());
  CHECK(after.fingerprint() ==
        ps::mixture{{.seed = 1, .schedule = {{{}, {6, 2}}, {{.step = 6}, {1, 2}}}, .batch_size = 4},
                    web,
                    code}
            .fingerprint());
  ps::loader fresh{both, after, {.batch_size = 4, .workers = 3}};
  CHECK_THROWS_AS(fresh.resume(state, 1), ps::state_mismatch);
  const ps::loader_state said = with_order_of(state, fresh.state_at({}));
  const indices expected = epoch_of(after, 80, 0);
  std::uint64_t batches = 6;
  for (const auto& batch : fresh.resume(said, 1)) {
    for (std::size_t i = 0; i < 4; ++i) {
      const std::uint64_t index = expected[static_cast<std::size_t>(batches) * 4 + i];
      CHECK(labels_of(batch)[i] == (index < 50 ? index : index - 50));
    }
    ++batches;
  }
  CHECK(batches == 20);
  // Before the position, nothing changes. After the position, each part continues at its previous
  // sample.
  const indices old_epoch = epoch_of(before, 80, 0);
  CHECK(std::equal(expected.begin(), expected.begin() + 24, old_epoch.begin()));
  CHECK(after.progress({0, 6}) == before.progress({0, 6}));
  CHECK(after.continued({0, 6}, {3, 1}).options().schedule.back().weights == weights{3, 1});
  indices web_of_old, web_of_new;
  for (std::uint64_t k = 0; k < 80; ++k) {
    if (old_epoch[k] < 50) web_of_old.push_back(old_epoch[k]);
    if (expected[k] < 50) web_of_new.push_back(expected[k]);
  }
  CHECK(std::equal(web_of_new.begin(), web_of_new.end(), web_of_old.begin()));

  ps::loader other{both, after, {.batch_size = 4, .seed = 7}};
  CHECK_THROWS_AS(with_order_of(state, other.state_at({})), ps::state_mismatch);
}

TEST_CASE("a continued mixture is unchanged before its position, or rejected",
          "[samplers][promise:exact-23]") {
  const auto at = [](std::vector<ps::mixture_weights> schedule) {
    return mixed({.schedule = std::move(schedule), .on_exhausted = end, .batch_size = 1}, {10, 10});
  };
  const ps::mixture before = at({{{}, {1, 1}}});
  REQUIRE(before.size(20) == 20);
  // With these weights, a part is exhausted after 11 samples in epoch 1, so this epoch and all
  // later epochs end there.
  const auto problem_of = [](const ps::mixture& of, ps::training_position from, weights by) {
    try {
      static_cast<void>(of.continued(from, std::move(by)));
    } catch (const ps::option_error& error) {
      return std::string{error.what()};
    }
    return std::string{"none"};
  };
  CHECK(problem_of(before, {0, 15}, {9, 1}) ==
        "weights: with these weights an epoch has 11 samples instead of 20: step 15 of epoch 0 "
        "would become a different position of the training");
  CHECK(problem_of(before, {0, 12}, {9, 1}) != "none");
  CHECK(problem_of(before, {3, 0}, {9, 1}) != "none");
  CHECK(problem_of(before, {1, 0}, {2, 2}) == "none");
  for (const std::uint64_t step : {0U, 5U, 11U}) {
    const ps::mixture after = before.continued({0, step}, {9, 1});
    CHECK(after.size(20) == 11);
    CHECK(after.progress({0, step}) == before.progress({0, step}));
  }
  // Past epochs would become longer if the weights that shortened them were removed.
  const ps::mixture planned = at({{{}, {1, 1}}, {{.epoch = 2}, {9, 1}}});
  REQUIRE(planned.size(20) == 11);
  CHECK(problem_of(planned, {1, 0}, {1, 1}) ==
        "weights: with these weights an epoch has 20 samples instead of 11: step 0 of epoch 1 "
        "would become a different position of the training");
  // The epoch at this position has already ended.
  CHECK(problem_of(planned, {0, 12}, {1, 1}) != "none");
  CHECK(problem_of(planned, {1, 0}, {1, 9}) == "none");
  CHECK(planned.continued({0, 11}, {1, 1}).progress({0, 11}) == planned.progress({0, 11}));
}

TEST_CASE("many parts are exhausted one after another", "[samplers][promise:exact-23]") {
  sizes of_parts(300);
  weights of_weights(300);
  for (std::size_t part = 0; part < 300; ++part) {
    of_parts[part] = 4 + part * 7 % 13;
    of_weights[part] = static_cast<std::uint32_t>(1 + part % 3);
  }
  const std::uint64_t n = std::accumulate(of_parts.begin(), of_parts.end(), std::uint64_t{0});
  const ps::mixture mixture =
      mixed({.schedule = {{{}, of_weights}}, .on_exhausted = stop_sampling}, of_parts);
  indices all = epoch_of(mixture, n, 1);
  CHECK(counts_of(std::span{all}.first(600), of_parts) ==
        sizes(of_weights.begin(), of_weights.end()));
  std::sort(all.begin(), all.end());
  indices once(n);
  std::iota(once.begin(), once.end(), std::uint64_t{0});
  CHECK(all == once);
}

TEST_CASE("a change far beyond the first samples of an epoch is in the fingerprint",
          "[samplers][promise:exact-7]") {
  const auto at = [](std::uint64_t step, std::size_t batch_size = 8) {
    return mixed({.schedule = {{{}, {1, 1}}, {{.step = step}, {1, 2}}}, .batch_size = batch_size},
                 {1'000'000, 1'000'000});
  };
  CHECK(at(200'001).fingerprint() != at(200'000).fingerprint());
  CHECK(at(100'000, 4).fingerprint() != at(100'000, 8).fingerprint());
  CHECK(at(100'000, 4).fingerprint() == at(50'000, 8).fingerprint());
  CHECK(mixed({}, {5, 5}).fingerprint() != mixed({}, {5, 6}).fingerprint());
  CHECK(mixed({.seed = 1}, {5, 5}).fingerprint() != mixed({.seed = 2}, {5, 5}).fingerprint());
  CHECK(mixed({.schedule = {{{}, {1, 2}}}}, {5, 5}).fingerprint() !=
        mixed({}, {5, 5}).fingerprint());
  CHECK(mixed({.on_exhausted = end}, {5, 5}).fingerprint() !=
        mixed({.on_exhausted = stop_sampling}, {5, 5}).fingerprint());
}

TEST_CASE("epochs above the range of a sample count are rejected", "[samplers]") {
  for (const auto when :
       {ps::exhausted_part_policy::stop_sampling, ps::exhausted_part_policy::repeat}) {
    const auto of_two = ps::mixture::of_sizes({.on_exhausted = when}, {5, 50});
    CHECK(of_two.progress({1, 0})[0].samples > 4);
    CHECK_THROWS_AS(of_two.progress({~std::uint64_t{0}, 0}), ps::option_error);
  }
}

TEST_CASE("bad options of a mixture are rejected by name", "[samplers][promise:honest-7]") {
  using change = ps::mixture_weights;
  const auto with = [](std::vector<change> schedule, std::size_t batch = 0) {
    return ps::mixture_options{.schedule = std::move(schedule), .batch_size = batch};
  };
  CHECK(mixture_problem({}, {3, 0}) ==
        "parts: part 1 has 0 samples: expected 1 to 9223372036854775805, so that all are at most "
        "2^63");
  CHECK(mixture_problem({}, {}) == "parts: expected at least one");
  CHECK(mixture_problem(
            with({change{{}, {1, 1}}, change{{.epoch = ~std::uint64_t{0}, .step = 6}, {1, 2}}}, 1),
            {3, 3}) == "epoch: 18446744073709551615 and 6 steps of 6 per epoch exceed 2^64 epochs");
  CHECK(mixture_problem(with({change{{}, {1}}}), {3, 3}) ==
        "weights: entry 0 of the schedule has 1 weights for 2 parts");
  CHECK(mixture_problem(with({change{{}, {0, 0}}}), {3, 3}) ==
        "weights: all weights are 0: at least one must be positive");
  CHECK(mixture_problem(with({change{{}, {65'537, 2}}}), {3, 3}) ==
        "weights: their sum after division by the common divisor is 65539, above 65536: use "
        "coarser weights, for example from `temperature_weights`");
  CHECK(mixture_problem(with({change{{.epoch = 1}, {1, 1}}}), {3, 3}) ==
        "schedule: entry 0 begins at step 0 of epoch 1: expected step 0 of epoch 0");
  CHECK(mixture_problem(
            with({change{{}, {1, 1}}, change{{.epoch = 1}, {1, 2}}, change{{.epoch = 1}, {2, 1}}}),
            {3, 3}) ==
        "schedule: entry 2 begins at step 0 of epoch 1: expected a position after the previous "
        "entry");
  CHECK(mixture_problem(with({change{{}, {1, 1}}, change{{.step = 5}, {1, 2}}}), {3, 3}) ==
        "batch_size: is needed if steps are counted, as in step 5, but is 0");
  CHECK(mixture_problem({.epoch_steps = 5}, {3, 3}) ==
        "batch_size: is needed for .epoch_steps, but is 0");
  CHECK(mixture_problem({.on_exhausted = end, .batch_size = 1, .epoch_steps = 5}, {3, 3}) ==
        "epoch_steps: is only for exhausted_part_policy::repeat, because otherwise the parts set "
        "the length "
        "of an epoch");
  CHECK(mixture_problem({.batch_size = 8, .epoch_steps = ~std::uint64_t{0}}, {3, 3}) ==
        "epoch_steps: 18446744073709551615 steps of 8 samples exceed 2^63 samples");
  CHECK(
      mixture_problem({.schedule = {change{{}, {1, 0}}}, .on_exhausted = stop_sampling}, {3, 3}) ==
      "weights: at sample 3 of epoch 0 all parts with a weight are exhausted, but others are "
      "not: give the others a weight");
  const ps::mixture steps_of_8 = mixed({.batch_size = 8}, {50, 50});
  CHECK_THROWS_AS(steps_of_8.size(99), ps::option_error);
  CHECK_THROWS_AS(steps_of_8.order(101, 0), ps::option_error);
  CHECK_THROWS_AS((ps::sharded{steps_of_8, {.global_batch = 16}}), ps::option_error);
  CHECK_THROWS_AS((ps::loader{numbered{.count = 100}, steps_of_8, {.batch_size = 4}}),
                  ps::option_error);
}

TEST_CASE("temperature weights are within one turn of their shares", "[samplers]") {
  const sizes amounts{1'000'000, 90'000, 8'000, 4'000, 0};
  CHECK(ps::temperature_weights(amounts, 1, 1102) == weights{1000, 90, 8, 4, 0});
  for (const double temperature : {0.5, 1.0, 2.0, 5.0, 100.0}) {
    for (const std::uint32_t round : {97U, 1000U, 65'536U}) {
      CAPTURE(temperature, round);
      const weights found = ps::temperature_weights(amounts, temperature, round);
      CHECK(std::accumulate(found.begin(), found.end(), 0U) == round);
      CHECK(found[4] == 0);
      double sum = 0;
      for (std::size_t i = 0; i < 4; ++i) {
        sum += std::pow(static_cast<double>(amounts[i]), 1 / temperature);
      }
      std::array<double, 4> shares{};
      for (std::size_t i = 0; i < 4; ++i) {
        shares[i] = std::pow(static_cast<double>(amounts[i]), 1 / temperature) / sum * round;
      }
      for (std::size_t i = 0; i < 4; ++i) {
        CHECK(found[i] >= 1);
        if (i != 0 || shares[3] >= 1) CHECK(std::abs(found[i] - shares[i]) <= 1);
      }
    }
  }
  const sizes skewed{1'000'000, 1, 1, 1, 1, 1};
  CHECK(ps::temperature_weights(skewed, 1, 10) == weights{5, 1, 1, 1, 1, 1});
  CHECK(mixture_problem(skewed, 0, 10) == "temperature: must be at least 0.01, but is 0");
  CHECK(mixture_problem(skewed, 1, 5) ==
        "round: must be at least the number of parts, 6, and at most 65536, but is 5");
  CHECK(mixture_problem(sizes{0, 0}, 1, 10) == "amounts: expected one above 0");
}

// A training run in another process. The child writes the samples of each step to a line and then
// replaces the state file by renaming. The parent kills the child at random times and restarts it
// with another world size.
namespace {

constexpr std::size_t global_batch = 12;

ps::mixture killed_mixture() {
  return mixed({.seed = 5,
                .schedule = {{{}, {5, 2, 1}}, {{.step = 40}, {1, 1, 0}}, {{.step = 90}, {1, 2, 3}}},
                .batch_size = global_batch,
                .epoch_steps = 200},
               {500, 300, 77});
}

// Runs all ranks of a world in this process, one rank after the other. Each step reads a byte from
// `allowed` and writes a byte to `told`.
[[noreturn]] void train(const test::temp_dir& folder, int world, int allowed, int reported) {
  const ps::mixture order = killed_mixture();
  std::vector<std::unique_ptr<ps::loader<numbered, ps::sharded<ps::mixture>>>> loaders;
  for (int rank = 0; rank < world; ++rank) {
    const ps::sharded shard{order, {.rank = rank, .world = world, .global_batch = global_batch}};
    loaders.push_back(std::make_unique<ps::loader<numbered, ps::sharded<ps::mixture>>>(
        numbered{.count = 877}, shard,
        ps::loader_options{.batch_size = shard.batch_size(), .workers = 1}));
  }
  ps::loader_state state = loaders[0]->state_at({});
  std::ifstream{folder.path("state"), std::ios::binary}.read(reinterpret_cast<char*>(&state),
                                                             sizeof(state));
  std::ofstream log{folder.path("log"), std::ios::app};
  using range = decltype(loaders[0]->resume(state, 2));
  std::vector<range> ranges;
  ranges.reserve(loaders.size());
  for (auto& loader : loaders) ranges.push_back(loader->resume(state, 2));
  std::vector<decltype(ranges[0].begin())> places;
  for (auto& one : ranges) places.push_back(one.begin());
  for (; places[0] != ranges[0].end();) {
    char step = 0;
    if (::read(allowed, &step, 1) != 1) ::_exit(1);
    const auto at = (*places[0]).position();
    std::string line = "\n" + std::to_string(at.epoch) + ' ' + std::to_string(at.batch);
    for (auto& place : places) {
      for (const std::uint64_t label : labels_of(*place)) line += ' ' + std::to_string(label);
    }
    log << line << " ." << std::flush;
    state = loaders[0]->state();
    std::ofstream{folder.path("new"), std::ios::binary}
        .write(reinterpret_cast<const char*>(&state), sizeof(state))
        .flush();
    std::filesystem::rename(folder.path("new"), folder.path("state"));
    static_cast<void>(!::write(reported, "x", 1));
    for (auto& place : places) ++place;
  }
  ::_exit(0);
}

}  // namespace

TEST_CASE("a training that is killed a hundred times reads the same samples",
          "[samplers][resume][promise:exact-23]") {
  const test::temp_dir folder;
  ps::sample_generator gen{{.seed = 1}, 0};
  constexpr std::array worlds{1, 2, 3, 4};
  int kills = 0;
  for (bool is_through = false; !is_through;) {
    const int world = worlds[ps::uniform(gen, std::size_t{0}, worlds.size() - 1)];
    std::array<int, 2> allowed{};
    std::array<int, 2> reported{};
    REQUIRE(::pipe(allowed.data()) == 0);
    REQUIRE(::pipe(reported.data()) == 0);
    // The child may run two more steps than the parent waits for, so that a late kill still
    // interrupts a step.
    int left = kills < 100 ? ps::uniform(gen, 0, 2) : 1000;
    const std::string steps(static_cast<std::size_t>(left) + 2, 'x');
    REQUIRE(::write(allowed[1], steps.data(), steps.size()) == static_cast<ssize_t>(steps.size()));
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::close(allowed[1]);
      ::close(reported[0]);
      train(folder, world, allowed[0], reported[1]);
    }
    ::close(allowed[0]);
    ::close(reported[1]);
    // Kills the child after at most two steps, at a random point. After 100 kills the child may
    // finish, so that the test ends.
    char step = 0;
    for (; left > 0 && ::read(reported[0], &step, 1) == 1; --left) {
    }
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    ::close(allowed[1]);
    ::close(reported[0]);
    kills += WIFSIGNALED(status) ? 1 : 0;
    is_through = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  CHECK(kills >= 100);

  const ps::mixture order = killed_mixture();
  std::map<std::pair<std::uint64_t, std::uint64_t>, indices> steps;
  std::ifstream log{folder.path("log")};
  for (std::string line; std::getline(log, line);) {
    if (line.empty() || line.back() != '.') continue;  // killed while it was writing the line
    std::istringstream in{line};
    std::pair<std::uint64_t, std::uint64_t> at;
    in >> at.first >> at.second;
    indices samples(global_batch);
    for (std::uint64_t& sample : samples) in >> sample;
    const auto [known, is_new] = steps.emplace(at, samples);
    REQUIRE((is_new || known->second == samples));  // a repeated step has the same samples
  }
  REQUIRE(steps.size() == 400);
  for (const std::uint64_t epoch : {0U, 1U}) {
    indices all;
    for (std::uint64_t step = 0; step < 200; ++step) {
      const indices& samples = steps.at({epoch, step});
      all.insert(all.end(), samples.begin(), samples.end());
    }
    CHECK(all == epoch_of(order, 877, epoch));
  }
}
