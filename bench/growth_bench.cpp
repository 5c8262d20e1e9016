// SPDX-License-Identifier: BSL-1.0
// Measures the growth of costs. Each group varies a single parameter.
//
//   build/bench/bench/penstock_growth_bench
//
// samples_*    a batch of 64 from 1e3 to 1e9 computed samples, shuffled: flat. (An epoch of 1e3
//              ends every 16 batches.)
// fields       a batch of 64 samples with 1 to 64 fields of four bytes each, from arrays in the
//              cache: linear, so the fields per second are flat.
// idle         1 to 64 workers. The consumer takes a batch and sleeps for 0.1 ms. A batch is a
//              single run, so one worker can work on it and another can open the next batch:
//              further workers must cost nothing. Measures the CPU time of the whole process per
//              batch, including the consumer.
// asleep       CPU time of the same flow while no batch is consumed for 10 ms.
// saturated    the same flow while the consumer does not sleep: the CPU time per batch.
// start_stop   CPU time to start a range, receive its first batch, and end the range.
// make_loader  makes and destroys a loader: wall time; items are threads.

#include <benchmark/benchmark.h>
#include <time.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;

constexpr std::size_t batch_size = 64;
constexpr std::uint64_t forever = std::uint64_t{1} << 32;  // number of epochs

using number = ps::record<ps::field<"x", std::uint32_t>>;

// A dataset without memory, so that any number of samples costs the same to read.
struct numbers {
  using record_type = number;
  std::uint64_t samples;
  std::uint64_t size() const { return samples; }
  void read(std::uint64_t index, ps::sample<number> out) const {
    ps::get<"x">(out) = static_cast<std::uint32_t>(index);
  }
};

std::size_t argument(const benchmark::State& state) {
  return static_cast<std::size_t>(state.range(0));
}

// ---- samples

void samples(benchmark::State& state, std::size_t workers) {
  ps::loader loader{numbers{argument(state)},
                    ps::shuffled{.seed = 1},
                    {.batch_size = batch_size, .workers = workers}};
  auto batches = loader.epochs(0, forever);
  auto it = batches.begin();
  std::size_t done = 0;
  for (auto _ : state) {
    done += it->size();
    ++it;
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(done));
}

// ---- fields

// "f00", "f01", ...
constexpr ps::name numbered(std::size_t i) {
  return {'f' | ('0' + i / 10) << 8 | ('0' + i % 10) << 16, 0, 0, 0};
}

template <std::size_t... Is>
void fields_of(benchmark::State& state, std::index_sequence<Is...>) {
  using wide = ps::record<ps::field<numbered(Is), std::uint32_t>...>;
  const std::vector<std::uint32_t> values(1024, 1);
  const auto same = [&values](std::size_t) -> const auto& { return values; };
  ps::loader loader{ps::memory_dataset<wide>{same(Is)...},
                    ps::shuffled{.seed = 1},
                    {.batch_size = batch_size, .workers = 0}};
  auto batches = loader.epochs(0, forever);
  auto it = batches.begin();
  std::size_t done = 0;
  for (auto _ : state) {
    done += it->size() * sizeof...(Is);
    ++it;
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(done));
}

template <std::size_t Fields>
void fields(benchmark::State& state) {
  fields_of(state, std::make_index_sequence<Fields>{});
}

// ---- workers

double process_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

auto make_idle_loader(std::size_t workers) {
  return ps::loader{numbers{1'000'000},
                    ps::shuffled{.seed = 1},
                    {.batch_size = batch_size,
                     .workers = workers,
                     .prefetch = 8,
                     .tuning = {.chunk = batch_size}}};
}

// Measures the CPU time of `step` in all threads, per batch. `step` processes `batches` batches.
template <class Step>
void measure_cpu(benchmark::State& state, std::int64_t batches, Step step) {
  for (auto _ : state) {
    const double begin = process_seconds();
    for (std::int64_t i = 0; i < batches; ++i) step();
    state.SetIterationTime((process_seconds() - begin) / static_cast<double>(batches));
  }
  state.SetItemsProcessed(state.iterations());
}

void idle(benchmark::State& state) {
  auto loader = make_idle_loader(argument(state));
  auto batches = loader.epochs(0, forever);
  auto it = batches.begin();
  measure_cpu(state, 200, [&] {
    ++it;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  });
}

void asleep(benchmark::State& state) {
  auto loader = make_idle_loader(argument(state));
  auto batches = loader.epochs(0, forever);
  benchmark::DoNotOptimize(batches.begin()->size());
  // The workers fill the ring in this time.
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  measure_cpu(state, 1, [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); });
}

void saturated(benchmark::State& state) {
  auto loader = make_idle_loader(argument(state));
  auto batches = loader.epochs(0, forever);
  auto it = batches.begin();
  measure_cpu(state, 1'000, [&] { ++it; });
}

void start_stop(benchmark::State& state) {
  auto loader = make_idle_loader(argument(state));
  measure_cpu(state, 50, [&] {
    auto batches = loader.epochs(0, forever);
    benchmark::DoNotOptimize(batches.begin()->size());
  });
}

void make_loader(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(make_idle_loader(argument(state)).options());
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

template <class Run>
auto* add(const std::string& name, Run run) {
  return benchmark::RegisterBenchmark(name.c_str(), run);
}

auto* with_workers(benchmark::internal::Benchmark* made) {
  for (const std::int64_t workers : {1, 2, 4, 8, 16, 32, 64}) made->Arg(workers);
  return made->ArgName("workers")->Unit(benchmark::kMicrosecond);
}

template <std::size_t... Fields>
void add_fields() {
  (add("fields", fields<Fields>)->ArgName("fields")->Arg(Fields), ...);
}

bench::goal at_most(const std::string& function, const std::string& axis, std::int64_t large,
                    std::int64_t small, double bound) {
  return {.name = bench::named(function, {{axis, large}}),
          .floor = bench::named(function, {{axis, small}}),
          .what = bench::goal::kind::time_at_most,
          .bound = bound};
}

}  // namespace

int main(int argc, char** argv) {
  for (const std::size_t workers : {0U, 1U}) {
    add(workers == 0 ? "samples_inline" : "samples_one_worker",
        [workers](benchmark::State& state) { samples(state, workers); })
        ->ArgName("samples")
        ->Arg(1'000)
        ->Arg(60'000)
        ->Arg(1'000'000)
        ->Arg(1'000'000'000)
        ->UseRealTime();
  }
  add_fields<1, 2, 4, 8, 16, 32, 64>();
  with_workers(add("idle", idle))->UseManualTime()->Iterations(1);
  with_workers(add("asleep", asleep))->UseManualTime()->Iterations(2);
  with_workers(add("saturated", saturated))->UseManualTime()->Iterations(5);
  with_workers(add("start_stop", start_stop))->UseManualTime()->Iterations(2);
  with_workers(add("make_loader", make_loader))->UseRealTime();

  using enum bench::goal::kind;
  return bench::run(argc, argv, "growth_bench",
                    {at_most("samples_inline", "samples", 1'000'000'000, 1'000, 1.25),
                     at_most("samples_one_worker", "samples", 1'000'000'000, 1'000, 1.25),
                     {"fields/fields:64", "fields/fields:8", speed_at_least, 0.9},
                     at_most("idle", "workers", 64, 4, 2),
                     at_most("idle", "workers", 64, 1, 0),
                     at_most("asleep", "workers", 64, 1, 2),
                     at_most("saturated", "workers", 64, 1, 0),
                     at_most("start_stop", "workers", 64, 1, 0),
                     {"make_loader/workers:64", "make_loader/workers:1", speed_at_least, 0.9}});
}
