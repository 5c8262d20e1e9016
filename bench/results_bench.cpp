// SPDX-License-Identifier: BSL-1.0
// Measures the cost of returning results. The time of a batch in a loop whose steps leave results,
// which are copied to the host and consumed by a thread, is divided by a floor: the loop that
// discards them if the step is the slowest stage, otherwise max(step, copy, consumer).
//
//   build/bench/bench/penstock_results_bench [--json FILE]
//
// The stages sleep instead of using a core, as in overlap_bench: the copy on the CPU device's
// modeled bus, step and consumer with timed waits that correct late returns. `thrown_away` is the
// loop that discards its results. `wait_alone` consists only of the waits of the slowest stage.
//
// `returned` is a loop of results of 64 KiB whose steps and consumers take no time, with a number
// of device slots. The floor is the same copies back to back. In `returned_by_gpu` the calls of the
// device take time, and a worker notices the end of a copy late, as on a GPU.
#include <benchmark/benchmark.h>

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
#include "support/steady_wait.hpp"

namespace {

namespace ps = penstock;
using clock_type = std::chrono::steady_clock;
using microseconds = std::chrono::microseconds;
using record = ps::record<ps::field<"embedding", float, 64>>;

constexpr std::size_t batch_size = 64;
constexpr std::size_t batch_bytes = batch_size * 64 * sizeof(float);
using small_record = ps::record<ps::field<"embedding", float, 256>>;
constexpr std::size_t small_bytes = batch_size * 256 * sizeof(float);  // 64 KiB
constexpr int small_results = 200;
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

/// Returns the time per batch in seconds of a loop over steps that record when they end.
/// `step_of(number, launch)` launches a step.
template <class StepOf>
double seconds_a_batch(std::int64_t step, ps::cpu_stream& stream, const StepOf& step_of) {
  bench::steady_wait waits;
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
    bench::steady_wait waits;
    ps::results<record> out{device, stream, batch_size,
                            [&](const auto&) { waits(at.consume * unit); }};
    state.SetIterationTime(
        seconds_a_batch(at.step, stream, [&](std::uint64_t number, const auto& launch) {
          auto slot = out.acquire({.batch = number, .size = batch_size, .valid_size = batch_size});
          launch();
          slot.send();
        }));
    out.close();
  }
}

/// A model of an H100 and its host, slowed down by a factor of 100, so that the wake-up times of
/// threads are negligible. The times of a copy (3 us) and of a nap (8 us) were measured, and the
/// times of the calls are estimates.
struct slow_gpu : ps::cpu_device {
  slow_gpu() : cpu_device{{.copy_bytes_per_second = small_bytes / 300e-6}} {}
  static void take(microseconds cost) {
    thread_local bench::steady_wait waits;
    waits(cost);
  }
  void copy_async(void* to, const void* from, std::size_t bytes, stream_ref stream) const {
    take(microseconds{150});
    cpu_device::copy_async(to, from, bytes, stream);
  }
  void record(event_type& event, stream_ref stream) const {
    take(microseconds{70});
    cpu_device::record(event, stream);
  }
  void wait(stream_ref stream, const event_type& event) const {
    take(microseconds{60});
    cpu_device::wait(stream, event);
  }
  [[nodiscard]] bool is_complete(const event_type& event) const {
    take(microseconds{50});
    return cpu_device::is_complete(event);
  }
  using cpu_device::synchronize;
  void synchronize(const event_type& event) const { synchronize(event, take); }
  template <class Nap>
  void synchronize(const event_type& event, const Nap& nap) const {
    while (!is_complete(event)) nap(microseconds{800});
  }
};

/// A device with a bus on which a copy takes 50 us. The calls of the device take almost no time.
struct fast_calls : ps::cpu_device {
  fast_calls() : cpu_device{{.copy_bytes_per_second = small_bytes / 50e-6}} {}
};

template <class Device>
void returned(benchmark::State& state, std::size_t in_flight) {
  const Device device;
  const auto stream = device.make_stream();
  ps::results<small_record, Device> out{
      device, stream, batch_size, [](const auto&) {}, {.depth = in_flight}};
  for (auto _ : state) {
    const auto begin = clock_type::now();
    for (std::uint64_t number = 0; number < small_results; ++number) {
      out.acquire({.batch = number, .size = batch_size, .valid_size = batch_size}).send();
    }
    out.finish();
    const std::chrono::duration<double> span = clock_type::now() - begin;
    state.SetIterationTime(span.count() / small_results);
  }
}

/// Measures copies that are queued at once, at the speed of the device's bus.
template <class Device>
void back_to_back(benchmark::State& state) {
  const ps::cpu_device bus = Device{};
  const auto stream = bus.make_stream();
  std::vector<std::byte> from(small_bytes);
  std::vector<std::byte> to(small_bytes);
  for (auto _ : state) {
    const auto begin = clock_type::now();
    for (int i = 0; i < small_results; ++i) {
      bus.copy_async(to.data(), from.data(), small_bytes, stream);
    }
    stream.synchronize();
    const std::chrono::duration<double> span = clock_type::now() - begin;
    state.SetIterationTime(span.count() / small_results);
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
  for (auto _ : state) state.SetIterationTime(bench::seconds_of_waits(cost * unit, batches));
}

std::string name_of(const point& at) {
  return bench::named("results", {{"step", at.step}, {"copy", at.copy}, {"consume", at.consume}});
}

}  // namespace

int main(int argc, char** argv) {
  using enum bench::goal::kind;
  std::vector<bench::goal> goals;
  for (std::size_t i = 0; i < points; ++i) {
    const point at = point_at(i);
    bench::add_once(name_of(at), with_results, at);
    const bool is_step = at.step == at.slowest();
    goals.push_back({name_of(at),
                     is_step ? bench::named("thrown_away", {{"step", at.step}})
                             : bench::named("wait_alone", {{"units", at.slowest()}}),
                     time_at_most, is_step ? 1.02 : 1.05});
  }
  for (const std::int64_t cost : costs) {
    bench::add_once(bench::named("thrown_away", {{"step", cost}}), thrown_away, cost);
    bench::add_once(bench::named("wait_alone", {{"units", cost}}), wait_alone, cost);
  }
  bench::add_once("back_to_back", back_to_back<fast_calls>);
  bench::add_once("back_to_back_by_gpu", back_to_back<slow_gpu>);
  for (const std::int64_t in_flight : {1, 2, 4, 8, 16}) {
    const auto add = [&](const char* function, auto* run, const char* floor) {
      const auto name = bench::named(function, {{"in_flight", in_flight}});
      bench::add_once(name, run, static_cast<std::size_t>(in_flight));
      goals.push_back({name, floor, time_at_most, 1 / 0.95});
    };
    add("returned", returned<fast_calls>, "back_to_back");
    add("returned_by_gpu", returned<slow_gpu>, "back_to_back_by_gpu");
  }
  return bench::run(argc, argv, "results_bench", goals, 5);
}
