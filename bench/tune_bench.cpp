// SPDX-License-Identifier: BSL-1.0
// Measures the number of trials until the options found are within 2 % of the best. A microsecond
// represents a trial. The results are medians over 20 seeds for option_search, for random trials,
// and for the grid in order; in the last two, the cheapest trial so far is the best.
//
//   build/bench/bench/penstock_tune_bench
//
// modelled   1,800 combinations of a modeled loop on 16 cores, with costs that vary by 1 %.
// loader     36 combinations of a loader whose reads wait, on this machine, each timed five times
//            in advance: a trial returns one of these five, and the best is that of the medians.
// running    a loop on this machine that tunes itself from a single worker, 200 batches after its
//            start, compared with the best number of workers of a sweep: here time is real time, of
//            600 batches.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/search/option_search.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;

/// A grid of options, with the cost of a trial and the cost without noise for each option.
struct problem {
  ps::search_space space;
  std::function<double(const ps::tuned_options&, std::mt19937&)> trial;
  std::function<double(const ps::tuned_options&)> truth;
};

double modelled_cost(const ps::tuned_options& options) {
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

const problem& modelled() {
  static const problem all{{.workers = {0, 1, 2, 3, 4, 6, 8, 12, 16},
                            .chunk = {0, 1, 4, 16, 64},
                            .prefetch = {0, 1, 2, 4, 8},
                            .depth = {1, 2, 3, 4},
                            .pinned = {0, 1}},
                           [](const ps::tuned_options& options, std::mt19937& random) {
                             std::normal_distribution<double> noise{0, 0.01};
                             return modelled_cost(options) * std::exp(noise(random));
                           },
                           modelled_cost};
  return all;
}

/// A dataset whose reads wait 100 us, as for a disk.
struct distant {
  using record_type = ps::record<ps::field<"x", std::uint32_t>>;
  [[nodiscard]] std::uint64_t size() const { return 512; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    std::this_thread::sleep_for(std::chrono::microseconds{100});
    ps::get<"x">(out) = static_cast<std::uint32_t>(index);
  }
};

double seconds_with(const ps::tuned_options& tried) {
  ps::loader_options options{.batch_size = 32};
  tried.apply_to(options);
  ps::loader loader{distant{}, ps::shuffled{.seed = 1}, options};
  const auto begin = std::chrono::steady_clock::now();
  for (auto& batch : loader.epoch(0)) benchmark::DoNotOptimize(batch.size());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

const problem& measured() {
  static const problem all = [] {
    const ps::search_space space{
        .workers = {0, 1, 2, 4, 8, 16}, .chunk = {1, 8, 32}, .prefetch = {2, 8}};
    const ps::detail::search_grid grid{space};
    std::vector<std::vector<double>> times(grid.size());
    for (int round = 0; round < 5; ++round) {
      for (std::size_t i = 0; i < grid.size(); ++i) times[i].push_back(seconds_with(grid.at(i)));
    }
    const auto trial = [grid, times](const ps::tuned_options& options, std::mt19937& random) {
      return times[grid.find(options).value()][random() % 5];
    };
    for (auto& of_one : times) std::sort(of_one.begin(), of_one.end());
    const auto truth = [grid, times](const ps::tuned_options& options) {
      return times[grid.find(options).value()][2];
    };
    return problem{space, trial, truth};
  }();
  return all;
}

double good_enough(const problem& of, const ps::detail::search_grid& grid) {
  double best = of.truth(grid.at(0));
  for (std::size_t i = 1; i < grid.size(); ++i) best = (std::min)(best, of.truth(grid.at(i)));
  return 1.02 * best;
}

/// Returns the number of trials until the best option of the search is good enough, or the number
/// of all combinations if this never happens.
std::size_t by_search(const problem& of, std::uint64_t seed) {
  const ps::detail::search_grid grid{of.space};
  const double enough = good_enough(of, grid);
  std::mt19937 random{static_cast<std::mt19937::result_type>(seed)};
  ps::option_search search{of.space, {.seed = seed, .trials = grid.size(), .min_gain = 0}};
  while (const auto options = search.next()) {
    search.record(*options, of.trial(*options, random));
    if (of.truth(search.best()) <= enough) return search.trials().size();
  }
  return grid.size();
}

/// Returns the number of trials in a given order until the cheapest is good enough.
std::size_t in_order(const problem& of, const std::vector<std::size_t>& order, std::uint64_t seed) {
  const ps::detail::search_grid grid{of.space};
  const double enough = good_enough(of, grid);
  std::mt19937 random{static_cast<std::mt19937::result_type>(seed)};
  double min = std::numeric_limits<double>::infinity();
  std::size_t trials = 0;
  for (const std::size_t point : order) {
    const auto options = grid.at(point);
    ++trials;
    const double cost = of.trial(options, random);
    if (cost >= min) continue;
    min = cost;
    if (of.truth(options) <= enough) break;
  }
  return trials;
}

std::vector<std::size_t> grid_order(const problem& of) {
  std::vector<std::size_t> order(ps::detail::search_grid{of.space}.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

std::size_t by_random(const problem& of, std::uint64_t seed) {
  auto order = grid_order(of);
  std::shuffle(order.begin(), order.end(), std::mt19937_64{seed});
  return in_order(of, order, seed);
}

/// Visits the grid from a start that depends on the seed, so that a single lucky corner does not
/// determine the result.
std::size_t by_grid(const problem& of, std::uint64_t seed) {
  auto order = grid_order(of);
  const auto start = static_cast<std::ptrdiff_t>(seed * order.size() / 20);
  std::rotate(order.begin(), order.begin() + start, order.end());
  return in_order(of, order, seed);
}

/// A loop whose reads always take long, occasionally take long, or wait. Work is counted in turns
/// of a busy loop instead of time, because a preempted thread makes no turns.
struct running_loop {
  const char* name;
  int read = 0;         // turns per sample
  int slow = 0;         // additional turns of one sample in 64
  int wait = 0;         // waiting time in microseconds per sample
  std::size_t max = 2;  // maximum number of workers
};

void turn(int times) {
  for (int i = 0; i < times; ++i) benchmark::DoNotOptimize(i);
}

struct running_data {
  using record_type = ps::record<ps::field<"x", std::uint32_t>>;
  running_loop loop;
  [[nodiscard]] std::uint64_t size() const { return 800 * 16; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    turn(index % 64 == 0 ? loop.slow : loop.read);
    if (loop.wait != 0) std::this_thread::sleep_for(std::chrono::microseconds{loop.wait});
    ps::get<"x">(out) = static_cast<std::uint32_t>(index);
  }
};

/// Returns the time of 600 batches, after the first 200 batches.
double seconds_running(const running_loop& loop, const ps::loader_options& options) {
  ps::loader loader{running_data{loop}, ps::shuffled{.seed = 1}, options};
  std::size_t taken = 0;
  auto begin = std::chrono::steady_clock::now();
  for (auto& batch : loader.epoch(0)) {
    benchmark::DoNotOptimize(batch.size());
    turn(600'000);
    if (++taken == 200) begin = std::chrono::steady_clock::now();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double seconds_with_workers(const running_loop& loop, std::size_t workers) {
  return seconds_running(loop, {.batch_size = 16, .workers = workers});
}

std::size_t best_workers(const running_loop& loop) {
  std::vector<std::pair<double, std::size_t>> all;
  for (std::size_t workers = 1; workers <= loop.max; ++workers) {
    std::vector<double> times;
    for (int round = 0; round < 3; ++round) times.push_back(seconds_with_workers(loop, workers));
    std::sort(times.begin(), times.end());
    all.emplace_back(times[1], workers);
  }
  return std::min_element(all.begin(), all.end())->second;
}

void add_running(const running_loop& loop) {
  benchmark::RegisterBenchmark(
      (std::string{"running_"} + loop.name + "_automatic").c_str(),
      [loop](benchmark::State& state) {
        for (auto _ : state) {
          state.SetIterationTime(seconds_running(
              loop,
              {.batch_size = 16, .workers = ps::automatic, .tuning = {.max_workers = loop.max}}));
        }
      })
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMillisecond);
  const auto best = std::make_shared<std::size_t>(0);
  benchmark::RegisterBenchmark((std::string{"running_"} + loop.name + "_best_fixed").c_str(),
                               [loop, best](benchmark::State& state) {
                                 if (*best == 0) *best = best_workers(loop);
                                 for (auto _ : state)
                                   state.SetIterationTime(seconds_with_workers(loop, *best));
                                 state.counters["workers"] = static_cast<double>(*best);
                               })
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMillisecond);
}

using way = std::size_t (*)(const problem&, std::uint64_t);

void add(const std::string& name, const problem& (*of)(), way go) {
  benchmark::RegisterBenchmark(
      name.c_str(),
      [of, go](benchmark::State& state) {
        for (auto _ : state) {
          std::vector<std::size_t> trials;
          for (std::uint64_t seed = 0; seed < 20; ++seed) trials.push_back(go(of(), seed));
          std::sort(trials.begin(), trials.end());
          state.SetIterationTime(1e-6 * static_cast<double>(trials[9] + trials[10]) / 2);
          state.counters["worst"] = static_cast<double>(trials.back());
        }
      })
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace

int main(int argc, char** argv) {
  add("modelled_by_search", modelled, by_search);
  add("modelled_by_random", modelled, by_random);
  add("modelled_by_grid", modelled, by_grid);
  add("loader_by_search", measured, by_search);
  add("loader_by_random", measured, by_random);
  add("loader_by_grid", measured, by_grid);

  add_running({.name = "nothing"});
  add_running({.name = "light", .read = 10'000, .slow = 10'000});
  add_running({.name = "heavy", .read = 60'000, .slow = 60'000});
  add_running({.name = "heavy_tailed", .read = 10'000, .slow = 2'000'000});
  add_running({.name = "waiting", .wait = 60, .max = 6});

  using enum bench::goal::kind;
  return bench::run(
      argc, argv, "tune_bench",
      {{"modelled_by_search", "modelled_by_grid", time_at_most, 0.25},
       {"modelled_by_search", "modelled_by_random", time_at_most, 0.25},
       {"loader_by_search", "loader_by_grid", time_at_most, 0},
       {"loader_by_search", "loader_by_random", time_at_most, 0},
       {"running_nothing_automatic", "running_nothing_best_fixed", time_at_most, 1.02},
       {"running_light_automatic", "running_light_best_fixed", time_at_most, 1.03},
       {"running_heavy_automatic", "running_heavy_best_fixed", time_at_most, 1.03},
       {"running_heavy_tailed_automatic", "running_heavy_tailed_best_fixed", time_at_most, 1.03},
       {"running_waiting_automatic", "running_waiting_best_fixed", time_at_most, 1.03}});
}
