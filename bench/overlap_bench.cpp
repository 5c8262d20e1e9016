// SPDX-License-Identifier: BSL-1.0
// Measures the overlap of load, copy and compute: the time per batch of the whole flow (a loader, a
// transfer and a step on a stream of the CPU device) divided by the bound max(load / workers, copy,
// compute), for cost ratios from 1:10:1 to 10:1:10.
//
//   build/bench/bench/penstock_overlap_bench [--json FILE]
//
// The stages sleep instead of using a core, so two cores are enough for five overlapping threads.
// The copy is a copy on a CPU device with a set bandwidth and latency: it takes the simulated time,
// and the next copy starts when its dependencies are complete, even if its thread is late. Load and
// step are timed waits that correct late returns, so any loss in the library is visible. All times
// are measured in the step.
//
// `wait_alone` is the floor, which consists only of the waits of the slowest stage.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>

#include "support/program.hpp"
#include "support/steady_wait.hpp"

namespace {

namespace ps = penstock;
using clock_type = std::chrono::steady_clock;
using microseconds = std::chrono::microseconds;
using nanoseconds = std::chrono::nanoseconds;

constexpr std::size_t samples_a_batch = 64;
constexpr std::size_t values_a_sample = 64;
constexpr std::size_t batch_bytes = samples_a_batch * values_a_sample * sizeof(float);
constexpr microseconds unit{400};
constexpr microseconds latency{10};  // included in the cost of every copy and step
constexpr std::size_t prefetch = 2;  // as with large batches, which is the hardest case
constexpr std::chrono::milliseconds repetition{60};  // the approximate duration of a repetition
constexpr int warm_up = 8;                           // more batches than the flow can hold

struct point {
  std::int64_t load;  // all three costs in units
  std::int64_t copy;
  std::int64_t compute;
  std::int64_t workers;

  [[nodiscard]] microseconds bound() const {
    return std::max({load * unit / workers, copy * unit, compute * unit});
  }
};

int batches_in(microseconds each) {
  return static_cast<int>(std::max<std::int64_t>(16, repetition / each));
}

struct slow_samples {
  using record_type = ps::record<ps::field<"x", float, values_a_sample>>;

  std::uint64_t batches;
  nanoseconds load;

  [[nodiscard]] std::uint64_t size() const { return batches * samples_a_batch; }
  void read_chunk(std::span<const std::uint64_t> indices, ps::batch_view<record_type> out) const {
    thread_local bench::steady_wait waits;
    for (float& value : ps::get<"x">(out).flat()) value = static_cast<float>(indices.front());
    waits(load * indices.size() / samples_a_batch);
  }
};

/// Returns the time per batch in seconds, measured from the first batch to the last while the flow
/// is full.
double seconds_a_batch(const point& at) {
  const int batches = batches_in(at.bound()) + warm_up;
  const std::chrono::duration<double> bus = at.copy * unit - latency;
  const ps::cpu_device device{
      {.copy_bytes_per_second = batch_bytes / bus.count(), .launch_latency = latency}};
  auto stream = device.make_stream();
  bench::steady_wait waits;
  std::vector<clock_type::time_point> ends;
  ends.reserve(static_cast<std::size_t>(batches));
  ps::loader loader{slow_samples{static_cast<std::uint64_t>(batches), at.load * unit},
                    ps::sequential{},
                    device,
                    {.batch_size = samples_a_batch,
                     .workers = static_cast<std::size_t>(at.workers),
                     .prefetch = prefetch}};
  ps::transfer feed{loader, stream};
  for ([[maybe_unused]] auto& batch : feed.epoch(0)) {
    stream.launch([&] {
      waits(at.compute * unit - latency);
      ends.push_back(clock_type::now());
    });
  }
  stream.synchronize();
  const std::chrono::duration<double> span = ends.back() - ends[warm_up - 1];
  return span.count() / (batches - warm_up);
}

void flow(benchmark::State& state, const point& at) {
  for (auto _ : state) state.SetIterationTime(seconds_a_batch(at));
}

void wait_alone(benchmark::State& state, microseconds cost) {
  for (auto _ : state) state.SetIterationTime(bench::seconds_of_waits(cost, batches_in(cost)));
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::array<std::int64_t, 3> costs{1, 3, 10};
  std::vector<bench::goal> goals;
  std::set<microseconds> bounds;
  for (std::size_t i = 0; i < 2 * 27; ++i) {
    const point at{costs[i % 3], costs[i / 3 % 3], costs[i / 9 % 3], i < 27 ? 1 : 2};
    const auto name = bench::named(
        "flow",
        {{"load", at.load}, {"copy", at.copy}, {"compute", at.compute}, {"workers", at.workers}});
    bench::add_once(name, flow, at);
    bounds.insert(at.bound());
    goals.push_back({name, bench::named("wait_alone", {{"us", at.bound().count()}}),
                     bench::goal::kind::time_at_most, 1.02});
  }
  for (const microseconds cost : bounds) {
    bench::add_once(bench::named("wait_alone", {{"us", cost.count()}}), wait_alone, cost);
  }
  return bench::run(argc, argv, "overlap_bench", goals, 5);
}
