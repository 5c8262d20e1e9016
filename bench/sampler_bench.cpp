// SPDX-License-Identifier: BSL-1.0
// Measures the order of samples and their random bits. Compares computing an index from its
// position in constant memory with reading the index from a list that was shuffled in advance.
//
//   build/bench/bench/penstock_sampler_bench
//
// An iteration computes 64 indices, a typical batch, which the consumer sums. The floors are the
// same sum over a shuffled std::vector<uint64_t> of four times the last-level cache, at least 128
// MiB:
//   read_permutation          from start to end: the bandwidth of an otherwise idle memory
//   read_permutation_blocks   64 in a row, anywhere: the pattern of a reading worker
// The floors exclude the creation of the list. A list of 1e12 samples takes 8 TB (and so does
// PyTorch's randperm), so no list here is that long; penstock needs order_bytes for any number of
// samples.
//
// Reading the list in blocks is faster than penstock: an index costs six multiplications, and one
// index in ten is computed again at 1e12, which takes longer than reading eight bytes.
//
// fresh_...: two draws of 64 bits from a generator for each of 64 samples. The peer
// std::mt19937_64 must be seeded for each sample, like penstock's generator. The library uses
// Philox because starting a stream costs nothing.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <penstock/order/random.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock_ext/samplers/mixture.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;

constexpr std::size_t block = 64;
constexpr std::int64_t trillion = 1'000'000'000'000;

std::uint64_t sum_of(std::span<const std::uint64_t> indices) {
  return std::accumulate(indices.begin(), indices.end(), std::uint64_t{0});
}

void count_indices(benchmark::State& state, double bytes) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(block));
  state.counters["order_bytes"] = bytes;
}

std::size_t last_level_cache() {
  std::size_t max_bytes = 0;
  for (const auto& cache : benchmark::CPUInfo::Get().caches) {
    if (cache.type != "Instruction" && cache.size > 0) {
      max_bytes = std::max(max_bytes, static_cast<std::size_t>(cache.size));
    }
  }
  return max_bytes;
}

const std::vector<std::uint64_t>& permutation() {
  static const std::vector<std::uint64_t> made = [] {
    const std::size_t bytes = std::max(std::size_t{128} << 20, 4 * last_level_cache());
    std::vector<std::uint64_t> list(bytes / sizeof(std::uint64_t));
    std::iota(list.begin(), list.end(), std::uint64_t{0});
    std::shuffle(list.begin(), list.end(), std::mt19937_64{1});
    return list;
  }();
  return made;
}

double permutation_bytes() {
  return static_cast<double>(permutation().size() * sizeof(std::uint64_t));
}

// ---- the position of the next block or index

// The positions from start to end, repeatedly.
class in_order {
 public:
  explicit in_order(std::uint64_t size) : end_(size) {}
  std::uint64_t next(std::uint64_t count) {
    const std::uint64_t at = next_;
    next_ = at + 2 * count > end_ ? 0 : at + count;
    return at;
  }

 private:
  std::uint64_t end_;
  std::uint64_t next_ = 0;
};

// Positions that no hardware prefetcher can predict, and that cost almost nothing to compute.
class anywhere {
 public:
  explicit anywhere(std::uint64_t size) : size_(size) {}
  std::uint64_t next(std::uint64_t count) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    __extension__ using wide = unsigned __int128;
    return static_cast<std::uint64_t>((wide{state_} * (size_ - count + 1)) >> 64);
  }

 private:
  std::uint64_t size_;
  std::uint64_t state_ = 1;
};

// ---- the order, block by block

template <class Places>
void read_permutation(benchmark::State& state) {
  const std::span<const std::uint64_t> list{permutation()};
  Places places{list.size()};
  for (auto _ : state) {
    benchmark::DoNotOptimize(sum_of(list.subspan(places.next(block), block)));
  }
  count_indices(state, permutation_bytes());
}

template <class Places>
void fill_blocks(benchmark::State& state) {
  const std::uint64_t samples = static_cast<std::uint64_t>(state.range(0));
  const auto order = ps::shuffled{}.order(samples, 1);
  Places places{samples};
  std::array<std::uint64_t, block> indices;
  for (auto _ : state) {
    order.fill(places.next(block), indices);
    benchmark::DoNotOptimize(indices.data());
    benchmark::DoNotOptimize(sum_of(indices));
  }
  count_indices(state, sizeof(order));
}

// A mixture of parts with a billion samples each, whose weights change sixteen times.
void mixture_blocks(benchmark::State& state) {
  const auto parts = static_cast<std::size_t>(state.range(0));
  ps::mixture_options options{.seed = 1, .schedule = {}, .batch_size = 1024};
  for (std::uint32_t change = 0; change < 16; ++change) {
    std::vector<std::uint32_t> weights(parts);
    for (std::size_t part = 0; part < parts; ++part) {
      weights[part] = static_cast<std::uint32_t>((part * 7 + change) % 10 + 1);
    }
    options.schedule.push_back({{.step = change * std::uint64_t{100'000}}, weights});
  }
  const std::uint64_t samples = parts * std::uint64_t{1'000'000'000};
  const ps::mixture mixed =
      ps::mixture::of_sizes(options, std::vector<std::uint64_t>(parts, 1'000'000'000));
  const auto order = mixed.order(samples, 1);
  std::vector<std::uint64_t> indices(static_cast<std::size_t>(state.range(1)));
  in_order places{mixed.size(samples)};
  for (auto _ : state) {
    order.fill(places.next(indices.size()), indices);
    benchmark::DoNotOptimize(sum_of(indices));
  }
  state.SetItemsProcessed(state.iterations() * state.range(1));
}

// ---- random bits

std::uint64_t draw_64_bits(ps::sample_generator& generator) {
  const std::uint64_t high = generator();
  return high << 32 | generator();
}

// A generator per sample, from which two 64-bit words are drawn, for example for a shift and an
// angle.
void fresh_philox(benchmark::State& state) {
  std::uint64_t index = 0;
  for (auto _ : state) {
    for (std::size_t i = 0; i < block; ++i) {
      ps::sample_generator generator{{.seed = 1, .epoch = 1}, index++};
      benchmark::DoNotOptimize(draw_64_bits(generator) ^ draw_64_bits(generator));
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(block));
}
void fresh_mt19937_64(benchmark::State& state) {
  std::uint64_t index = 0;
  for (auto _ : state) {
    for (std::size_t i = 0; i < block; ++i) {
      std::mt19937_64 generator{index++};
      benchmark::DoNotOptimize(generator() ^ generator());
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(block));
}

}  // namespace

int main(int argc, char** argv) {
  const auto add = [](const char* name, void (*run)(benchmark::State&)) {
    return benchmark::RegisterBenchmark(name, run);
  };
  add("read_permutation", read_permutation<in_order>);
  add("read_permutation_blocks", read_permutation<anywhere>);
  add("shuffled", fill_blocks<in_order>)->ArgName("samples")->Arg(1'000'000)->Arg(trillion);
  add("shuffled_blocks", fill_blocks<anywhere>)->ArgName("samples")->Arg(trillion);
  add("mixture", mixture_blocks)->ArgNames({"parts", "chunk"})->Args({16, 64})->Args({64, 1024});
  add("fresh_philox", fresh_philox);
  add("fresh_mt19937_64", fresh_mt19937_64);

  using enum bench::goal::kind;
  const auto of = [](const char* name, std::int64_t samples) {
    return bench::named(name, {{"samples", samples}});
  };
  return bench::run(
      argc, argv, "sampler_bench",
      {{of("shuffled", trillion), "read_permutation", time_at_most, 1.5},
       {of("shuffled_blocks", trillion), "read_permutation_blocks", time_at_most, 1.5},
       {of("shuffled", trillion), of("shuffled", 1'000'000), time_at_most},
       {"fresh_philox", "fresh_mt19937_64", speed_at_least}});
}
