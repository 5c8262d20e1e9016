// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/samplers/prioritized.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/sharded.hpp>
#include <penstock/order/support/word_hash.hpp>

#include "order/epoch_of.hpp"
#include "support/catch.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

using floats = std::vector<float>;
using bytes = std::vector<std::byte>;

constexpr std::uint64_t n = 100;

floats ramp() {
  floats weights(n);
  for (std::size_t i = 0; i < n; ++i) weights[i] = static_cast<float>(i % 10);
  return weights;
}

constexpr ps::prioritized_options options{.seed = 4, .batch_size = 8, .lag = 6, .draws = 75};
constexpr std::uint64_t steps = 10;  // steps per epoch, because 75 draws fill 10 steps

/// Returns the weights that a training run sets after `samples` in step `step`: an arbitrary
/// function of both.
floats losses_of(std::uint64_t step, std::span<const std::uint64_t> samples) {
  floats losses;
  for (const std::uint64_t sample : samples) {
    losses.push_back(static_cast<float>((sample * 7 + step * 3) % 19) / 4);
  }
  return losses;
}

/// Returns the draws of a training run with `count` steps. The function scans all weights for each
/// draw.
std::vector<indices> slow_training(std::uint64_t count) {
  std::vector<floats> weights_of(static_cast<std::size_t>(count + options.lag + 1), ramp());
  std::vector<indices> drawn;
  for (std::uint64_t step = 0; step < count; ++step) {
    const floats& weights = weights_of[static_cast<std::size_t>(step)];
    std::vector<std::uint64_t> units;
    for (const float weight : weights) {
      // Reserves 7 bits for n.
      units.push_back(static_cast<std::uint64_t>(std::ldexp(weight, 46 - 7)));
    }
    const std::uint64_t total = std::accumulate(units.begin(), units.end(), std::uint64_t{0});
    indices batch;
    for (std::uint64_t i = 0; i < options.batch_size; ++i) {
      ps::sample_generator gen{
          {.seed = options.seed, .epoch = step, .stage = ps::detail::prioritized_stage}, i};
      std::uint64_t left = ps::uniform(gen, std::uint64_t{0}, total - 1);
      std::uint64_t sample = 0;
      for (; left >= units[static_cast<std::size_t>(sample)]; ++sample) {
        left -= units[static_cast<std::size_t>(sample)];
      }
      batch.push_back(sample);
    }
    const floats losses = losses_of(step, batch);
    for (auto later = static_cast<std::size_t>(step + options.lag); later < weights_of.size();
         ++later) {
      for (std::size_t i = 0; i < batch.size(); ++i) {
        weights_of[later][static_cast<std::size_t>(batch[i])] = losses[i];
      }
    }
    drawn.push_back(batch);
  }
  return drawn;
}

/// Returns the samples of a step, drawn in two calls.
indices step_of(const ps::prioritized& order, std::uint64_t step) {
  indices out(options.batch_size);
  const auto of_epoch = order.order(n, step / steps);
  of_epoch.fill(step % steps * options.batch_size + 3, std::span{out}.subspan(3));
  of_epoch.fill(step % steps * options.batch_size, std::span{out}.first(3));
  return out;
}

void train(const ps::prioritized& order, std::uint64_t step, const indices& batch) {
  order.set({step / steps, step % steps}, batch, losses_of(step, batch));
}

template <class Error = ps::option_error, class Call>
std::string rejection_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("a weight takes effect lag steps after it is set", "[samplers][promise:exact-25]") {
  const auto expected = slow_training(100);
  CHECK(expected[0] != expected[1]);
  for (const std::uint64_t ahead : {0U, 1U, 3U, 5U}) {
    CAPTURE(ahead);
    const ps::prioritized order{ramp(), options};
    for (std::uint64_t step = 0; step < 100; ++step) {
      // A loader draws later steps before it delivers this step.
      for (std::uint64_t later = step; later <= (std::min)(step + ahead, std::uint64_t{99});
           ++later) {
        REQUIRE(step_of(order, later) == expected[static_cast<std::size_t>(later)]);
      }
      train(order, step, expected[static_cast<std::size_t>(step)]);
      // Earlier steps can be drawn again, even if their draws are no longer stored.
      if (step >= 4)
        REQUIRE(step_of(order, step - 4) == expected[static_cast<std::size_t>(step - 4)]);
    }
  }
}

TEST_CASE("batches of prioritized do not depend on the prefetch", "[samplers][promise:exact-25]") {
  const auto expected = slow_training(40);
  // A lag of 6 is just enough for a prefetch of 5.
  for (const std::size_t workers : {std::size_t{1}, std::size_t{3}}) {
    for (const std::size_t prefetch : {std::size_t{1}, std::size_t{2}, std::size_t{5}}) {
      CAPTURE(workers, prefetch);
      const ps::prioritized order{ramp(), options};
      ps::loader loader{
          numbered{.count = n}, order, {.batch_size = 8, .workers = workers, .prefetch = prefetch}};
      std::uint64_t step = 0;
      for (const auto& batch : loader.epochs(0, 4)) {
        REQUIRE(labels_of(batch) == expected[static_cast<std::size_t>(step)]);
        train(order, step, labels_of(batch));
        ++step;
      }
      CHECK(step == 40);
    }
  }
}

TEST_CASE("a lag shorter than the prefetch is rejected", "[samplers][promise:exact-25]") {
  const ps::prioritized order{ramp(), options};
  static_cast<void>(step_of(order, 7));
  CHECK(rejection_of([&] { train(order, 1, {1}); }) ==
        "lag: a weight set in step 1 takes effect in step 7, but step 7 is already drawn: expected "
        "at least 7, found 6");
  const ps::prioritized fresh{ramp(), options};
  train(fresh, 5, {1});
  CHECK(
      rejection_of([&] { train(fresh, 4, {1}); }) ==
      "at: step 4 comes after step 5: set weights in the order of steps, or load an earlier state");
}

TEST_CASE("a training resumes from its state in any world", "[samplers][promise:exact-25]") {
  const auto expected = slow_training(60);
  bytes state;
  ps::sample_generator gen{{.seed = 2}, 0};
  std::uint64_t at = 0;
  while (at < 60) {
    const ps::prioritized order{ramp(), options};
    if (!state.empty()) {
      CHECK(order.load(state) == ps::training_position{at / steps, at % steps});
    }
    const int world = std::array{1, 2, 4, 8}[ps::uniform(gen, std::size_t{0}, std::size_t{3})];
    // The run stops several steps after the last checkpoint, when further steps have been
    // prefetched.
    const std::uint64_t until = at + ps::uniform(gen, std::uint64_t{1}, std::uint64_t{9});
    const std::uint64_t saved = ps::uniform(gen, at, until - 1) + 1;
    for (std::uint64_t step = at; step < (std::min)(until, std::uint64_t{60}); ++step) {
      indices batch;
      for (int rank = 0; rank < world; ++rank) {
        const ps::sharded shard{order, {.rank = rank, .world = world, .global_batch = 8}};
        indices own(shard.batch_size());
        shard.order(n, step / steps).fill(step % steps * own.size(), own);
        batch.insert(batch.end(), own.begin(), own.end());
      }
      REQUIRE(batch == expected[static_cast<std::size_t>(step)]);
      static_cast<void>(step_of(order, step + 4));
      train(order, step, batch);
      if (step + 1 == saved) state = order.save({saved / steps, saved % steps});
    }
    at = saved;
  }
}

TEST_CASE("the state of an earlier step has the weights of that step",
          "[samplers][promise:exact-25]") {
  const auto expected = slow_training(30);
  const ps::prioritized order{ramp(), options};
  bytes then;
  for (std::uint64_t step = 0; step < 30; ++step) {
    CHECK(step_of(order, step) == expected[static_cast<std::size_t>(step)]);
    if (step == 24) then = order.save({2, 4});
    train(order, step, expected[static_cast<std::size_t>(step)]);
  }
  CHECK(order.save({2, 4}) == then);
  CHECK(rejection_of([&] { (void)order.save({0, 2}); }) ==
        "at: the weights of step 2 are no longer stored; the oldest stored step is 18");
  // A loop that goes back too far would get different samples. The next call reports this.
  static_cast<void>(step_of(order, 2));
  CHECK(rejection_of<std::logic_error>([&] { train(order, 30, {1}); }) ==
        "prioritized: a step was drawn again whose weights are no longer stored: load the state of "
        "the step before a loop returns to it");
  CHECK(order.load(then) == ps::training_position{2, 4});
  CHECK(step_of(order, 24) == expected[24]);
}

TEST_CASE("a damaged state is rejected and changes nothing", "[samplers][promise:exact-7]") {
  const ps::prioritized order{ramp(), options};
  for (std::uint64_t step = 0; step < 3; ++step) train(order, step, {step, 50});
  const bytes state = order.save({0, 3});
  CHECK(state.size() == 4 * n + 24 * 6 + 64);
  const ps::prioritized other{floats(n, 1), options};
  const indices before = step_of(other, 0);
  for (std::size_t i = 0; i < state.size(); ++i) {
    bytes damaged = state;
    damaged[i] ^= std::byte{4};
    const std::string problem = rejection_of<ps::error>([&] { other.load(damaged); });
    REQUIRE(problem != "none");
  }
  for (std::size_t size = 0; size < state.size(); ++size) {
    REQUIRE_THROWS_AS(other.load(std::span{state}.first(size)), ps::text_error);
  }
  CHECK(step_of(other, 0) == before);
  static_cast<void>(step_of(other, 3));  // draws with its own weights
  CHECK(other.load(state) == ps::training_position{0, 3});
  CHECK(step_of(other, 3) == step_of(order, 3));
  CHECK(rejection_of<ps::text_error>([&] { other.load({}); }) ==
        "state of prioritized: at byte 0: expected a complete state of 100 weights, found the end");
  ps::prioritized_options longer = options;
  longer.lag = 7;
  CHECK(rejection_of([&] { ps::prioritized{ramp(), longer}.load(state); }) ==
        "lag: 6 in the state, 7 here");
  for (const std::size_t count : {1U, 99U, 101U, 500U}) {  // a state that is too short or too long
    CHECK(rejection_of([&] { ps::prioritized{floats(count, 1), options}.load(state); }) ==
          "weights: 100 in the state, " + std::to_string(count) + " here");
  }
}

TEST_CASE("a state with a valid checksum and invalid contents is rejected",
          "[samplers][promise:exact-7]") {
  const ps::prioritized order{ramp(), options};
  for (std::uint64_t step = 0; step < 3; ++step) train(order, step, {step, 50});
  const bytes state = order.save({0, 3});
  const ps::prioritized other{floats(n, 1), options};
  const indices before = step_of(other, 0);
  const auto problem_with = [&](const auto& change) {
    indices words(state.size() / 8);
    std::memcpy(words.data(), state.data(), state.size());
    words.pop_back();
    change(words);
    words.push_back(ps::detail::word_hash{}.add_all(words).value());
    return rejection_of<ps::error>([&] { other.load(std::as_bytes(std::span{words})); });
  };
  const auto problem_at = [&](std::size_t place, std::uint64_t word) {
    return problem_with([&](indices& words) { words[place] = word; });
  };
  const std::string text = "state of prioritized: at byte ";
  const std::string whole = ": expected a complete state of 100 weights, found the end";
  CHECK(problem_with([](indices& words) { words.resize(7); }) == text + "64" + whole);
  CHECK(problem_with([](indices& words) { words.pop_back(); }) == text + "600" + whole);
  constexpr std::size_t changes = 7 + n / 2;  // offset of the changes, which have three words each
  const std::string wrong =
      ": expected a weight that takes effect in one of the next steps, in the order of steps, "
      "found ";
  for (const std::uint64_t step : {0U, 3U, 9U}) {  // valid steps start at 6
    CHECK(problem_at(changes, step) == text + "456" + wrong + std::to_string(step));
  }
  CHECK(problem_at(changes + 15, 6) == text + "576" + wrong + "6");
  CHECK(problem_at(changes + 1, n) == text + "456" + wrong + "6");
  CHECK(problem_at(changes + 2, std::bit_cast<std::uint32_t>(-1.0F)) == text + "456" + wrong + "6");
  CHECK(problem_at(7, std::bit_cast<std::uint32_t>(65'537.0F)) ==
        "weights: expected 0 to 65536, found 65537 for sample 0");
  CHECK(problem_at(6, std::uint64_t{1} << 62) ==
        text + "48: expected a step below 2^62, found 4611686018427387904");
  CHECK(step_of(other, 0) == before);
}

TEST_CASE("weights of 0 are not drawn, and all are drawn equally if all are 0", "[samplers]") {
  floats weights(n, 0.0F);
  weights[0] = 65'536;
  weights[64] = 1;
  weights[99] = 65'536;
  const ps::prioritized some{weights, {.batch_size = 1000, .lag = 1}};
  for (const std::uint64_t index : epoch_of(some, n, 0)) REQUIRE((index % 99 == 0 || index == 64));
  const ps::prioritized none{floats(n, 0.0F), {.batch_size = 5000, .lag = 1}};
  const indices drawn = epoch_of(none, n, 0);
  for (std::uint64_t i = 0; i < n; ++i) CHECK(std::count(drawn.begin(), drawn.end(), i) > 20);
}

TEST_CASE("bad arguments of prioritized are rejected by name", "[samplers][promise:honest-7]") {
  const auto of = [](const floats& weights, const ps::prioritized_options& bad) {
    return rejection_of([&] { ps::prioritized{weights, bad}; });
  };
  CHECK(of({}, options) == "weights: expected 1 to 2^32 - 1, found 0");
  CHECK(of({1}, {.lag = 1}) == "batch_size: must be at least 1, but is 0");
  CHECK(of({1}, {.batch_size = 1}) == "lag: must be 1 to 2^20 steps, but is 0");
  CHECK(of({1, -1}, options) == "weights: expected 0 to 65536, found -1 for sample 1");
  CHECK(of({1, std::numeric_limits<float>::quiet_NaN()}, options) ==
        "weights: expected 0 to 65536, found nan for sample 1");
  const ps::prioritized order{ramp(), options};
  CHECK_THROWS_AS(order.size(99), ps::option_error);
  CHECK_THROWS_AS(order.order(99, 0), ps::option_error);
  CHECK_THROWS_AS(order.set({}, indices{100}, floats{1}), ps::index_error);
  CHECK_THROWS_AS(order.set({}, indices{1, 2}, floats{1}), ps::option_error);
  CHECK_THROWS_AS(order.set({}, indices{1}, floats{65'537}), ps::option_error);
  CHECK_THROWS_AS(order.set({.epoch = 0, .step = 11}, indices{1}, floats{1}), ps::option_error);
  CHECK_THROWS_AS((ps::loader{numbered{.count = n}, order, {.batch_size = 4}}), ps::option_error);
  CHECK(order.fingerprint() !=
        ps::prioritized{ramp(), {.seed = 5, .batch_size = 8, .lag = 6}}.fingerprint());
}
