// SPDX-License-Identifier: BSL-1.0
// Compares a loop that tunes itself, starting with one worker, with the best number of workers
// found in a sweep. Measures 600 batches, after the first 200 batches of the loop.
//
//   build/bench/bench/penstock_tune_bench

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;

/// A loop whose reads always take long, sometimes take long, or wait. Work is counted in iterations
/// of a busy loop instead of time, because a preempted thread makes no iterations.
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

bench::goal add(const running_loop& loop, double bound) {
  const std::string name = std::string{"running_"} + loop.name;
  bench::add_once(name + "_automatic", [loop](benchmark::State& state) {
    for (auto _ : state) {
      state.SetIterationTime(seconds_running(
          loop, {.batch_size = 16, .workers = ps::automatic, .tuning = {.max_workers = loop.max}}));
    }
  });
  const auto best = std::make_shared<std::size_t>(0);
  bench::add_once(name + "_best_fixed", [loop, best](benchmark::State& state) {
    if (*best == 0) *best = best_workers(loop);
    for (auto _ : state) state.SetIterationTime(seconds_with_workers(loop, *best));
    state.counters["workers"] = static_cast<double>(*best);
  });
  return {name + "_automatic", name + "_best_fixed", bench::goal::kind::time_at_most, bound};
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run(
      argc, argv, "tune_bench",
      {add({.name = "nothing"}, 1.02), add({.name = "light", .read = 10'000, .slow = 10'000}, 1.03),
       add({.name = "heavy", .read = 60'000, .slow = 60'000}, 1.03),
       add({.name = "heavy_tailed", .read = 10'000, .slow = 2'000'000}, 1.03),
       add({.name = "waiting", .wait = 60, .max = 6}, 1.03)});
}
