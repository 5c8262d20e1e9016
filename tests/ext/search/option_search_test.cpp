// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/search/option_search.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/core/error.hpp>

#include "support/catch.hpp"
#include "support/sanitized.hpp"

namespace ps = penstock;

namespace {

const ps::search_space space{.workers = {0, 1, 2, 3, 4, 6, 8, 12, 16},
                             .chunk = {0, 1, 4, 16, 64},
                             .prefetch = {0, 1, 2, 4, 8},
                             .depth = {1, 2, 3, 4},
                             .pinned = {0, 1}};

/// A simulated loop: reads that several workers share, a copy, a step, and the cost and gain of
/// each option.
double modelled(const ps::tuned_options& options) {
  const auto workers = static_cast<double>(*options.workers);
  const double run = *options.chunk == 0 ? 16 : static_cast<double>(*options.chunk);
  const double ahead = *options.prefetch == 0 ? 4 : static_cast<double>(*options.prefetch);
  const double copy = *options.pinned != 0 ? 0.8 : 1.6;
  const double step = 1.1;
  const double read = 8 + 3.2 / run;
  const double device = *options.depth == 1 ? copy + step : (std::max)(copy, step);
  if (workers == 0) return read + device;
  const double tail = run > 16 ? 0.003 * workers * run : 0;
  const double load =
      (read / (std::min)(workers, 8.0) * (1 + 0.02 * workers) + tail) * (1 + 0.5 / (ahead * ahead));
  return (std::max)(load, device) * (workers > 8 ? 1.05 : 1.0);
}

double lowest() {
  const ps::detail::search_grid grid{space};
  double min = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < grid.size(); ++i) min = (std::min)(min, modelled(grid.at(i)));
  return min;
}

std::string rejected(const ps::search_space& of, const ps::search_options& options = {}) {
  try {
    const ps::option_search search{of, options};
  } catch (const ps::option_error& error) {
    return std::string{error.option()};
  }
  return "none";
}

}  // namespace

TEST_CASE("a search finds options within 2 % of the best of 1,800 combinations in few trials",
          "[tune]") {
  const double best = lowest();
  std::vector<std::size_t> needed;
  constexpr std::uint64_t seeds = test::sanitized ? 3 : 20;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    std::mt19937 generator{static_cast<std::mt19937::result_type>(seed)};
    std::normal_distribution<double> noise{0, 0.01};
    ps::option_search search{space, {.seed = seed, .trials = 120, .min_gain = 0}};
    while (const auto options = search.next()) {
      search.record(*options, modelled(*options) * std::exp(noise(generator)));
      if (modelled(search.best()) <= 1.02 * best) break;
    }
    needed.push_back(search.trials().size());
  }
  std::sort(needed.begin(), needed.end());
  CAPTURE(needed);
  CHECK(needed[seeds / 2] <= 45);  // random trials need a median of 100 to 200
  CHECK(needed.back() < 120);
}

TEST_CASE("the proposals of a search depend only on its seed and its trials", "[tune]") {
  ps::option_search first{space, {.seed = 3}};
  for (int i = 0; i < 20; ++i) {
    const auto options = first.next();
    REQUIRE(options);
    CHECK(first.next() == options);
    first.record(*options, modelled(*options));
  }
  ps::option_search second{space, {.seed = 3}};  // continues the search from its recorded trials
  for (const ps::trial& one : first.trials()) {
    CHECK(second.next() == one.options);
    second.record(one.options, one.cost);
  }
  CHECK(second.next() == first.next());
  CHECK(second.best() == first.best());
  CHECK(ps::option_search{space, {.seed = 4}}.next() !=
        ps::option_search{space, {.seed = 3}}.next());
}

TEST_CASE("a search ends after its trials, at its budget, or without an expected gain", "[tune]") {
  ps::option_search short_one{space, {.trials = 2}};
  for (int i = 0; i < 2; ++i) short_one.record(*short_one.next(), 1.0);
  CHECK_FALSE(short_one.next());

  const ps::option_search late{space, {.budget = std::chrono::nanoseconds{1}}};
  CHECK_FALSE(late.next());

  ps::option_search sure{{.workers = {1, 2, 4, 8}}, {.trials = 1000}};
  while (const auto options = sure.next()) {
    sure.record(*options, 8.0 / static_cast<double>(*options->workers));
  }
  CHECK(sure.trials().size() < 20);
  CHECK(sure.best() == ps::tuned_options{.workers = 8});
}

TEST_CASE("options that failed are not proposed again", "[tune]") {
  ps::option_search search{{.workers = {1, 2, 4, 8}, .depth = {2}}, {.trials = 50, .min_gain = 0}};
  std::size_t proposed = 0;
  while (const auto options = search.next()) {
    ++proposed;
    REQUIRE(proposed < 60);
    CHECK(options->depth == 2);
    if (*options->workers == 8) {
      search.exclude(*options);
    } else {
      search.record(*options, 8.0 / static_cast<double>(*options->workers));
    }
  }
  CHECK(search.best().workers == 4);
  const auto& all = search.trials();
  CHECK(std::none_of(all.begin(), all.end(),
                     [](const ps::trial& one) { return one.options.workers == 8; }));

  ps::option_search nothing{{.workers = {1}}};
  nothing.exclude({.workers = 1});
  CHECK_FALSE(nothing.next());
}

TEST_CASE("combinations are proposed again if all were tried", "[tune]") {
  const auto tried = [](ps::option_search& search) {
    std::size_t count = 0;
    while (const auto options = search.next()) {
      const double noise = count++ % 2 == 0 ? 1.02 : 0.98;
      search.record(*options, noise * (1 + static_cast<double>(*options->workers)));
    }
    return search.trials().size();
  };
  ps::option_search two{{.workers = {1, 2}}, {.trials = 40}};
  CHECK(tried(two) > 2);
  ps::option_search three{{.workers = {1, 2}, .depth = {2, 3}}, {.trials = 40}};
  three.exclude({.workers = 2, .depth = 3});
  CHECK(tried(three) > 3);
}

TEST_CASE("a single lucky trial is not chosen as the best", "[tune]") {
  ps::option_search search{{.workers = {1, 2, 3, 4, 5, 6, 7, 8}}};
  for (std::size_t round = 0; round < 5; ++round) {
    for (std::size_t workers = 1; workers <= 8; ++workers) {
      const double real = 1 + 0.1 * std::abs(static_cast<double>(workers) - 6);
      const double noise = round % 2 == 0 ? 1.03 : 0.97;
      search.record({.workers = workers}, workers == 1 && round == 3 ? 0.9 : real * noise);
    }
  }
  CHECK(search.best().workers == 6);
}

TEST_CASE("invalid spaces and options are rejected by name", "[tune]") {
  CHECK(rejected({.workers = {1, 2}}) == "none");
  CHECK(rejected({}) == "search_space");
  CHECK(rejected({.workers = {5000}}) == "workers");
  CHECK(rejected({.depth = {0, 2}}) == "depth");
  CHECK(rejected({.pinned = {2}}) == "pinned");
  CHECK(rejected({.batch_size = {0}}) == "batch_size");
  std::vector<std::size_t> many(300);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = i + 1;
  CHECK(rejected({.workers = many, .batch_size = many}) == "search_space");
  CHECK(rejected({.workers = {1}}, {.trials = 0}) == "trials");
  CHECK(rejected({.workers = {1}}, {.budget = std::chrono::seconds{-1}}) == "budget");
  CHECK(rejected({.workers = {1}}, {.min_gain = -1}) == "min_gain");
}

TEST_CASE("a trial outside the space, or without a cost, is rejected", "[tune]") {
  ps::option_search search{{.workers = {1, 2}}};
  CHECK_THROWS_AS(search.record({.workers = 3}, 1), ps::option_error);
  CHECK_THROWS_AS(search.record({}, 1), ps::option_error);
  CHECK_THROWS_AS(search.record({.workers = 1, .depth = 2}, 1), ps::option_error);
  CHECK_THROWS_AS(search.exclude({.workers = 3}), ps::option_error);
  for (const double cost : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THROWS_AS(search.record({.workers = 1}, cost), ps::option_error);
  }
  CHECK(search.trials().empty());
  CHECK_THROWS_AS(search.best(), std::logic_error);
}
