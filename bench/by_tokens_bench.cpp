// SPDX-License-Identifier: BSL-1.0
// Batches that fit a token budget: the cost of planning per sample, the used fraction of the
// budget, and the balance between the ranks of a step.
//
//   build/bench/bench/penstock_by_tokens_bench
//
// An iteration of plan/... computes the extent and the samples of a batch, in the order of an
// epoch. The floor shuffled/... is the order of `shuffled` with 64 samples per iteration. An
// iteration of make/... constructs the sampler for all samples. Items are samples.
//
// Counters: `fill` is the share of the budget that values use. `imbalance` is the cost of the most
// expensive batch of each step, summed over an epoch, divided by the sum of the mean costs, minus
// 1. `worst` is the same for the least balanced step. The cost of a batch is its number of values;
// with padding, the cost is the number of samples times the longest sample.
//
// The lengths are drawn from the distributions of two real document sets, each represented by 65
// quantiles, in tokens of 4 bytes:
//   code  the files .hpp, .h and .ipp of Debian 12's libboost1.74-dev: 14303, 2283 tokens on
//         average
//   prose the docstrings of Debian 12's libpython3.11-stdlib: 8074, 52 tokens on average
// Lengths are limited to 8192 tokens, as for a context of that length. Budgets: 16,384 tokens for
// code, 4096 for prose; the window has its default size.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <penstock/order/random.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock_ext/samplers/by_tokens.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;

using quantiles = std::array<std::uint32_t, 65>;
constexpr std::uint32_t context = 8192;

// clang-format off
constexpr quantiles code{
    57, 113, 131, 140, 148, 155, 164, 180, 193, 205, 216, 229, 241, 255, 267, 279, 291, 305, 319,
    338, 356, 373, 393, 417, 440, 464, 489, 512, 538, 559, 589, 619, 655, 686, 720, 757, 794, 837,
    891, 939, 998, 1064, 1125, 1200, 1276, 1361, 1449, 1553, 1659, 1789, 1926, 2061, 2251, 2448,
    2665, 2962, 3281, 3655, 4192, 4944, 6061, 7706, 10998, 19471, 582186};
constexpr quantiles prose{
    1, 3, 4, 5, 6, 7, 7, 8, 9, 9, 10, 10, 10, 11, 11, 11, 12, 12, 13, 13, 14, 14, 14, 15, 15, 16,
    16, 17, 17, 19, 20, 22, 23, 24, 26, 27, 29, 30, 32, 34, 36, 38, 40, 42, 45, 47, 50, 53, 57, 60,
    65, 69, 74, 79, 86, 93, 101, 112, 123, 140, 164, 192, 240, 351, 1569};
// clang-format on

struct corpus {
  std::string name;
  std::uint64_t max;
  std::vector<std::uint32_t> lengths;
};

// Returns `samples` lengths from the distribution with these quantiles, interpolated linearly.
corpus drawn(const std::string& name, const quantiles& of, std::uint64_t max, std::size_t samples) {
  corpus made{name + '/' + std::to_string(samples), max, {}};
  for (std::size_t i = 0; i < samples; ++i) {
    ps::sample_generator gen{{.seed = 7}, i};
    const double at = ps::uniform(gen, 0.0, 1.0) * (quantiles{}.size() - 1);
    const auto below = static_cast<std::size_t>(at);
    const double share = at - static_cast<double>(below);
    const double length = of[below] * (1 - share) + of[below + 1] * share;
    made.lengths.push_back(std::min(context, static_cast<std::uint32_t>(length)));
  }
  return made;
}

ps::by_tokens order_of(const corpus& of, bool padded, std::uint64_t step) {
  return {of.lengths,
          {.seed = 1, .max_tokens = of.max, .batches_per_step = step, .padded = padded}};
}

std::uint64_t cost_of(const corpus& of, std::span<const std::uint64_t> batch, bool padded) {
  std::uint64_t sum = 0;
  std::uint64_t longest = 0;
  for (const std::uint64_t index : batch) {
    const std::uint64_t length = of.lengths[static_cast<std::size_t>(index)];
    sum += length;
    longest = std::max(longest, length);
  }
  return padded ? longest * batch.size() : sum;
}

// An order, and the statistics of its first epoch.
struct planned {
  ps::by_tokens order;
  double imbalance = 0;
  double worst = 0;
};

planned planned_for(const corpus& of, bool padded, std::uint64_t step) {
  planned made{order_of(of, padded, step)};
  const auto epoch = made.order.order(of.lengths.size(), 0);
  std::vector<std::uint64_t> row(made.order.batch_size());
  double slowest = 0;
  double mean = 0;
  for (std::uint64_t begin = 0; begin < made.order.batches(); begin += step) {
    std::uint64_t max = 0;
    std::uint64_t all = 0;
    for (std::uint64_t batch = begin; batch < begin + step; ++batch) {
      const auto some = std::span{row}.first(epoch.batch_size(batch));
      epoch.fill(batch * row.size(), some);
      const std::uint64_t cost = cost_of(of, some, padded);
      max = std::max(max, cost);
      all += cost;
    }
    const double each = static_cast<double>(all) / static_cast<double>(step);
    slowest += static_cast<double>(max);
    mean += each;
    made.worst = std::max(made.worst, static_cast<double>(max) / each - 1);
  }
  made.imbalance = slowest / mean - 1;
  return made;
}

void plan(benchmark::State& state, const corpus& of, const planned& made) {
  const auto epoch = made.order.order(of.lengths.size(), 0);
  std::vector<std::uint64_t> row(made.order.batch_size());
  std::uint64_t batch = 0;
  std::uint64_t samples = 0;
  for (auto _ : state) {
    const auto some = std::span{row}.first(epoch.batch_size(batch));
    epoch.fill(batch * row.size(), some);
    benchmark::DoNotOptimize(std::accumulate(some.begin(), some.end(), std::uint64_t{0}));
    samples += some.size();
    if (++batch == made.order.batches()) batch = 0;
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(samples));
  state.counters["fill"] = made.order.fill();
  state.counters["imbalance"] = made.imbalance;
  state.counters["worst"] = made.worst;
}

void shuffled(benchmark::State& state, const corpus& of) {
  const auto epoch = ps::shuffled{.seed = 1}.order(of.lengths.size(), 0);
  std::array<std::uint64_t, 64> some{};
  std::uint64_t at = 0;
  for (auto _ : state) {
    epoch.fill(at, some);
    benchmark::DoNotOptimize(std::accumulate(some.begin(), some.end(), std::uint64_t{0}));
    at += some.size();
    if (at + some.size() > of.lengths.size()) at = 0;
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(some.size()));
}

void make(benchmark::State& state, const corpus& of) {
  for (auto _ : state) benchmark::DoNotOptimize(order_of(of, false, 8).batches());
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(of.lengths.size()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::array corpora{drawn("code", code, 16'384, 1'000'000),
                           drawn("prose", prose, 4096, 1'000'000)};
  std::vector<bench::goal> goals;
  for (const corpus& of : corpora) {
    const std::string floor = "shuffled/" + of.name;
    benchmark::RegisterBenchmark(floor.c_str(),
                                 [&of](benchmark::State& state) { shuffled(state, of); });
    benchmark::RegisterBenchmark(("make/" + of.name).c_str(),
                                 [&of](benchmark::State& state) { make(state, of); });
    for (const bool padded : {false, true}) {
      for (const std::uint64_t step : {8U, 64U}) {
        const std::string name =
            "plan/" + of.name + (padded ? "/padded" : "/values") + "/step:" + std::to_string(step);
        benchmark::RegisterBenchmark(
            name.c_str(), [&of, made = planned_for(of, padded, step)](benchmark::State& state) {
              plan(state, of, made);
            });
        goals.push_back({name, floor});
      }
    }
  }
  return bench::run(argc, argv, "by_tokens_bench", goals);
}
