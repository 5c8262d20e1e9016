// SPDX-License-Identifier: BSL-1.0
// Tests the tuner on simulated loops, which use arithmetic with random noise instead of a clock.
#include <penstock/load/support/hill_climber.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "load/modelled_loop.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using ps::tuning_reason;
using ps::tuning_setting;
using ps::detail::hill_climber;
using ps::detail::trial_result;
using test::loop_model;
using test::modelled_loop;

namespace {

constexpr std::size_t ahead = 16;

/// A simulated loop with a `hill_climber`.
class tuned_loop {
 public:
  tuned_loop(const loop_model& model, std::uint64_t seed, const tuning_setting& start,
             const tuning_setting& min, const tuning_setting& max)
      : loop_(model, seed, start), tuner_(start, min, max, 0), max_(max) {}
  tuned_loop(const loop_model& model, std::uint64_t seed)
      : tuned_loop(model, seed, {1, ahead}, {1, ahead}, {model.max, ahead}) {}

  void run(int batches) {
    for (int i = 0; i < batches; ++i) {
      loop_.take();
      const auto said = tuner_.record(ticks(loop_.now()), ticks(loop_.waited()),
                                      [&] { return std::optional{ticks(loop_.busy())}; });
      if (said) moves.push_back(*said);
      is_within_ = is_within_ && tuner_.now().workers >= 1 &&
                   tuner_.now().workers <= max_.workers && tuner_.now().prefetch >= 1 &&
                   tuner_.now().prefetch <= max_.prefetch;
      loop_.use(tuner_.now());
    }
  }
  [[nodiscard]] modelled_loop& loop() { return loop_; }
  [[nodiscard]] const hill_climber& tuner() const { return tuner_; }
  /// Returns true if all settings so far were within the limits.
  [[nodiscard]] bool is_within() const { return is_within_; }

  std::vector<trial_result> moves;

 private:
  static std::uint64_t ticks(double time) { return static_cast<std::uint64_t>(1000 * time); }

  modelled_loop loop_;
  hill_climber tuner_;
  tuning_setting max_;
  bool is_within_ = true;
};

/// Returns the mean time per batch with a fixed setting.
double time_with(const loop_model& model, const tuning_setting& setting) {
  modelled_loop loop{model, 7, setting};
  for (int i = 0; i < 450; ++i) loop.take();
  return (loop.taken_at(449) - loop.taken_at(49)) / 400;
}

/// Returns the mean time per batch for each number of workers. The entry for 0 workers is infinite.
std::vector<double> times_of(const loop_model& model) {
  std::vector<double> all{std::numeric_limits<double>::infinity()};
  for (std::size_t workers = 1; workers <= model.max; ++workers) {
    all.push_back(time_with(model, {workers, ahead}));
  }
  return all;
}

struct named_model {
  const char* name;
  loop_model model;
};

const std::vector<named_model> on_sixteen_cores{
    {"nothing to read", {.read = 1}},
    {"light", {.read = 20}},
    {"a little too much for one", {.read = 106}},
    {"for two", {.read = 185}},
    {"heavy", {.read = 620}},
    {"heavier", {.read = 1300}},
    {"more than all can read", {.read = 3000}},
    {"nothing but reading", {.step = 1, .read = 1000}},
    {"a heavy tail", {.read = 150, .slow_chance = 0.3, .slow = 400}},
    {"waits for a disk", {.read = 900, .computes = false}},
    {"waits for a disk, noisy", {.read = 400, .noise = 0.15, .computes = false}},
};
const std::vector<named_model> on_two_cores{
    {"nothing to read", {.read = 1, .cores = 2, .max = 2}},
    {"light", {.read = 20, .cores = 2, .max = 2}},
    {"as long as the step", {.read = 100, .cores = 2, .max = 2}},
    {"heavy", {.read = 150, .cores = 2, .max = 2}},
    {"heavier", {.read = 500, .cores = 2, .max = 2}},
    {"a cap above the cores", {.read = 220, .cores = 2, .max = 8}},
    {"waits for a disk", {.read = 900, .cores = 2, .computes = false}},
    {"a heavy tail", {.read = 80, .slow_chance = 0.3, .slow = 300, .cores = 2, .max = 2}},
};

}  // namespace

TEST_CASE("within 200 batches from one worker a loop is within 3 % of the best fixed setting",
          "[load][promise:bounded-4]") {
  const auto& models = GENERATE(std::cref(on_sixteen_cores), std::cref(on_two_cores)).get();
  for (const auto& [name, model] : models) {
    const auto times = times_of(model);
    const double best = *std::min_element(times.begin(), times.end());
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      INFO(name << ", " << model.cores << " cores, seed " << seed);
      tuned_loop loop{model, seed};
      loop.run(200);
      CHECK(times[loop.tuner().kept().workers] <= 1.03 * best);
      CHECK(loop.is_within());
    }
  }
}

TEST_CASE("later trials cost at most 3 % of the time", "[load][promise:bounded-4]") {
  const auto& models = GENERATE(std::cref(on_sixteen_cores), std::cref(on_two_cores)).get();
  for (const auto& [name, model] : models) {
    const auto times = times_of(model);
    const double best = *std::min_element(times.begin(), times.end());
    INFO(name << ", " << model.cores << " cores");
    tuned_loop loop{model, 11};
    loop.run(1200);
    CHECK((loop.loop().taken_at(1199) - loop.loop().taken_at(199)) / 1000 <= 1.03 * best);
    CHECK(loop.is_within());
  }
}

TEST_CASE("a loop without waits is not tuned", "[load][promise:bounded-4]") {
  for (const double read : {1.0, 20.0, 80.0}) {
    INFO("reads of " << read);
    tuned_loop loop{{.read = read}, 3};
    loop.run(1000);
    CHECK(loop.moves.empty());
    CHECK(loop.tuner().now() == tuning_setting{1, ahead});
  }
}

TEST_CASE("the first 32 batches are measured, and Little's law gives the next setting", "[load]") {
  tuned_loop loop{{.read = 600, .noise = 0}, 1};
  loop.run(31);
  CHECK(loop.tuner().now().workers == 1);
  loop.run(1);
  CHECK(loop.tuner().now().workers == 7);
  CHECK(loop.moves.empty());
  loop.run(20);
  REQUIRE(loop.moves.size() == 1);
  CHECK(loop.moves[0].from == tuning_setting{1, ahead});
  CHECK(loop.moves[0].to == tuning_setting{7, ahead});
  CHECK(loop.moves[0].why == tuning_reason::estimated);
  CHECK(loop.moves[0].ticks_from > 5.9e5);
  CHECK(loop.moves[0].ticks_to < 1.1e5);
  loop.run(500);
  CHECK(loop.moves.size() == 1);
}

TEST_CASE("a loop whose reads change is tuned again", "[load]") {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    INFO("seed " << seed);
    tuned_loop loop{{.read = 80}, seed};
    loop.run(400);
    REQUIRE(loop.tuner().kept().workers == 1);
    loop.loop().become({.read = 500});
    loop.run(200);
    CHECK(loop.tuner().kept().workers >= 5);
    CHECK(loop.tuner().kept().workers <= 8);
    loop.loop().become({.read = 80});
    loop.run(2500);
    CHECK(loop.tuner().kept().workers <= 2);  // unneeded workers sleep again
  }
}

TEST_CASE("unneeded readers sleep again", "[load]") {
  tuned_loop loop{{.read = 250}, 5, {12, ahead}, {1, ahead}, {16, ahead}};
  loop.run(400);
  CHECK(loop.tuner().kept().workers >= 3);
  CHECK(loop.tuner().kept().workers <= 4);
  REQUIRE_FALSE(loop.moves.empty());
  CHECK(loop.moves[0].why == tuning_reason::no_slower);
}

TEST_CASE("a fixed number does not change", "[load]") {
  tuned_loop loop{{.read = 700, .slow_chance = 0.2, .slow = 800}, 5, {4, 2}, {4, 1}, {4, 24}};
  for (int i = 0; i < 600; ++i) {
    loop.run(1);
    REQUIRE(loop.tuner().now().workers == 4);
  }
  tuned_loop other{{.read = 700}, 5, {1, 3}, {1, 3}, {16, 3}};
  for (int i = 0; i < 600; ++i) {
    other.run(1);
    REQUIRE(other.tuner().now().prefetch == 3);
  }
  CHECK(other.tuner().kept().workers > 4);
}

TEST_CASE("the prefetch grows if it evens out occasional slow reads", "[load]") {
  const loop_model uneven{.read = 100, .slow_chance = 0.1, .slow = 600};
  const double shallow = time_with(uneven, {4, 2});
  const double deep = time_with(uneven, {4, 16});
  REQUIRE(deep < 0.9 * shallow);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    INFO("seed " << seed);
    tuned_loop loop{uneven, seed, {4, 2}, {4, 1}, {4, 16}};
    loop.run(1000);
    CHECK(time_with(uneven, loop.tuner().kept()) <= 1.05 * deep);
    CHECK(loop.is_within());
  }
}

TEST_CASE("time between two ranges does not count", "[load]") {
  hill_climber tuner{{1, 4}, {1, 4}, {8, 4}, 0};
  std::uint64_t now = 0;
  for (int range = 0; range < 100; ++range) {
    now += 1'000'000;  // much longer than a batch
    tuner.pause();
    for (int batch = 0; batch < 12; ++batch) {
      now += 100;
      CHECK_FALSE(tuner.record(now, 0, [&] { return std::optional<std::uint64_t>{now / 10}; }));
    }
  }
  CHECK(tuner.now() == tuning_setting{1, 4});
}

TEST_CASE("if the work of the readers is unknown, a window ends one batch later", "[load]") {
  const auto batches_until_move = [](int rejects) {
    hill_climber tuner{{1, 4}, {1, 4}, {8, 4}, 0};
    int batches = 0;
    for (std::uint64_t now = 0; tuner.now().workers == 1; ++batches) {
      now += 100;
      const auto busy = [&]() -> std::optional<std::uint64_t> {
        if (rejects-- > 0) return std::nullopt;
        return now;
      };
      tuner.record(now, now - now / 5, busy);
    }
    return batches;
  };
  CHECK(batches_until_move(0) == 32);
  CHECK(batches_until_move(3) == 35);
}

TEST_CASE("after the first one a window has 8 to 64 batches, by the time that it should last",
          "[load]") {
  const auto batches_of_a_window = [](double min_window) {
    hill_climber tuner{{1, 4}, {1, 4}, {8, 4}, min_window};
    std::uint64_t now = 0;
    const auto batches_until = [&](auto is_there) {
      int batches = 1;
      for (; batches < 10'000; ++batches) {
        now += 100;
        if (is_there(tuner.record(now, now - now / 5, [&] { return std::optional{now}; }))) break;
      }
      return batches;
    };
    (void)batches_until([&](const auto&) { return tuner.now().workers != 1; });
    // The window starts two batches after a change. Four windows follow, because more workers make
    // no difference here.
    return (batches_until([](const auto& ended) { return ended.has_value(); }) - 2) / 4;
  };
  CHECK(batches_of_a_window(0) == 8);
  CHECK(batches_of_a_window(1999) == 20);
  CHECK(batches_of_a_window(1e9) == 64);
}
