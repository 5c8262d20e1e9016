// SPDX-License-Identifier: BSL-1.0
// Measures the cost of returning results. The time of a batch in a loop whose steps leave results,
// which are copied to the host and consumed by a thread, is divided by a floor: the loop that
// discards them if the step is the slowest stage, otherwise max(step, copy, consumer).
//
//   build/bench/bench/penstock_results_bench [--json FILE]
//
// The stages sleep instead of using a core, as in overlap_bench: the copy on the CPU device's
// modeled bus, step and consumer with timed waits that correct late returns. `thrown_away` is the
// loop without results; `wait_alone` is only the waits of the slowest stage.
#include <benchmark/benchmark.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/results/results.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;
using clock_type = std::chrono::steady_clock;
using microseconds = std::chrono::microseconds;
using nanoseconds = std::chrono::nanoseconds;
using record = ps::record<ps::field<"embedding", float, 64>>;

constexpr std::size_t batch_size = 64;
constexpr std::size_t batch_bytes = batch_size * 64 * sizeof(float);
constexpr microseconds unit{400};
constexpr microseconds latency{10};  // part of the cost of a copy and of a step
constexpr int batches = 60;
constexpr int warm_up = 8;  // more batches than the flow holds

struct point {
  std::int64_t step;  // all three in units
  std::int64_t copy;
  std::int64_t consume;
  [[nodiscard]] std::int64_t slowest() const { return std::max({step, copy, consume}); }
};
constexpr std::array<std::int64_t, 3> costs{1, 3, 10};
constexpr std::size_t points = costs.size() * costs.size() * costs.size();
constexpr point point_at(std::size_t i) { return {costs[i % 3], costs[i / 3 % 3], costs[i / 9]}; }

/// Waits whose total has the intended length. Only one thread may use an object.
class steady_wait {
 public:
  void operator()(nanoseconds cost) {
    if (!is_exact_) ::prctl(PR_SET_TIMERSLACK, 1UL);  // the kernel may otherwise add 50 us
    is_exact_ = true;
    const auto until = clock_type::now() + cost - late_;
    std::this_thread::sleep_until(until);
    late_ = clock_type::now() - until;
  }

 private:
  nanoseconds late_{0};
  bool is_exact_ = false;
};

/// Returns the seconds per batch of a loop over steps that record when they end. `step_of(number,
/// launch)` launches a step.
template <class StepOf>
double seconds_a_batch(std::int64_t step, ps::cpu_stream& stream, const StepOf& step_of) {
  steady_wait waits;
  std::vector<clock_type::time_point> ends;
  ends.reserve(batches);
  for (std::uint64_t number = 0; number < batches; ++number) {
    step_of(number, [&] {
      stream.launch([&] {
        waits(step * unit - latency);
        ends.push_back(clock_type::now());
      });
    });
  }
  stream.synchronize();
  const std::chrono::duration<double> span = ends.back() - ends[warm_up - 1];
  return span.count() / (batches - warm_up);
}

void with_results(benchmark::State& state, const point& at) {
  const std::chrono::duration<double> bus = at.copy * unit - latency;
  const ps::cpu_device device{
      {.copy_bytes_per_second = batch_bytes / bus.count(), .launch_latency = latency}};
  for (auto _ : state) {
    auto stream = device.make_stream();
    steady_wait waits;
    ps::results<record> out{device, stream, batch_size,
                            [&](const auto&) { waits(at.consume * unit); }};
    state.SetIterationTime(
        seconds_a_batch(at.step, stream, [&](std::uint64_t number, const auto& launch) {
          auto slot = out.acquire({.batch = number, .size = batch_size, .valid_size = batch_size});
          launch();
          slot.send();
        }));
    out.close();
    state.counters["step_us"] = static_cast<double>((at.step * unit).count());
    state.counters["copy_us"] = static_cast<double>((at.copy * unit).count());
    state.counters["consume_us"] = static_cast<double>((at.consume * unit).count());
  }
}

void thrown_away(benchmark::State& state, std::int64_t step) {
  const ps::cpu_device device{{.launch_latency = latency}};
  for (auto _ : state) {
    auto stream = device.make_stream();
    state.SetIterationTime(
        seconds_a_batch(step, stream, [](std::uint64_t, const auto& launch) { launch(); }));
  }
}

void wait_alone(benchmark::State& state, std::int64_t cost) {
  for (auto _ : state) {
    std::thread{[&] {
      steady_wait waits;
      waits(unit);
      const auto begin = clock_type::now();
      for (int i = 0; i < batches; ++i) waits(cost * unit);
      const std::chrono::duration<double> span = clock_type::now() - begin;
      state.SetIterationTime(span.count() / batches);
    }}.join();
  }
}

std::string name_of(const point& at) {
  return bench::named("results", {{"step", at.step}, {"copy", at.copy}, {"consume", at.consume}});
}

}  // namespace

int main(int argc, char** argv) {
  const auto once = [](benchmark::internal::Benchmark* made) {
    made->UseManualTime()->Iterations(1)->Unit(benchmark::kMicrosecond);
  };
  std::vector<bench::goal> goals;
  for (std::size_t i = 0; i < points; ++i) {
    const point at = point_at(i);
    once(benchmark::RegisterBenchmark(name_of(at).c_str(), with_results, at));
    using enum bench::goal::kind;
    if (at.step == at.slowest()) {
      goals.push_back(
          {name_of(at), bench::named("thrown_away", {{"step", at.step}}), time_at_most, 1.02});
    } else {
      goals.push_back(
          {name_of(at), bench::named("wait_alone", {{"units", at.slowest()}}), time_at_most, 1.05});
    }
  }
  for (const std::int64_t cost : costs) {
    once(benchmark::RegisterBenchmark(bench::named("thrown_away", {{"step", cost}}).c_str(),
                                      thrown_away, cost));
    once(benchmark::RegisterBenchmark(bench::named("wait_alone", {{"units", cost}}).c_str(),
                                      wait_alone, cost));
  }
  // Sets a default before the caller's options, because the grid is large.
  std::vector<char*> words{argv, argv + argc};
  std::string few{"--benchmark_repetitions=5"};
  words.insert(words.begin() + 1, few.data());
  return bench::run(static_cast<int>(words.size()), words.data(), "results_bench", goals);
}
