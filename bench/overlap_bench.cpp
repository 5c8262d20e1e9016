// SPDX-License-Identifier: BSL-1.0
// Measures the overlap of load, copy and compute: the time per batch of the whole flow (a loader, a
// transfer and a step on a stream of the CPU device) divided by the bound max(load / workers, copy,
// compute), for cost ratios from 1:10:1 to 10:1:10. Also measures a transform on the device, as a
// separate stage, for several ratios of copy and transform.
//
//   build/bench/bench/penstock_overlap_bench [--json FILE]
//
// The stages sleep instead of using a core, so two cores are enough for five overlapping threads.
// Copy and transform are copies on a CPU device with a set bandwidth and latency. Each takes the
// simulated time, and the next copy starts when its dependencies are complete, even if its thread
// is late. Load and step are timed waits. A timed wait returns late by a varying amount, which
// shortens the next wait. A stage therefore occupies its thread for exactly n * cost in n batches
// and never less, so any loss in the library is visible. All times are measured in the step.
//
// `wait_alone` is the floor: only the waits of the slowest stage. `plain_wait_alone` omits the
// correction for late returns, to show the lateness of this machine's timers. The counters of a
// `flow` row are its costs in microseconds and the measured time of the serial loop.

#include <benchmark/benchmark.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;
using clock_type = std::chrono::steady_clock;
using microseconds = std::chrono::microseconds;
using nanoseconds = std::chrono::nanoseconds;

constexpr std::size_t samples_a_batch = 64;
constexpr std::size_t values_a_sample = 64;
constexpr microseconds unit{400};
constexpr microseconds latency{10};  // included in the cost of every copy and step
constexpr std::size_t prefetch = 2;  // as for a loader of large batches, which is the hardest case

struct point {
  std::int64_t load;  // all three costs in units
  std::int64_t copy;
  std::int64_t compute;
  std::int64_t workers;
  std::int64_t transform = 0;  // 0 means no transform

  [[nodiscard]] microseconds bound() const {
    return std::max({load * unit / workers, copy * unit, transform * unit, compute * unit});
  }
};

constexpr std::array<std::int64_t, 3> costs{1, 3, 10};
constexpr std::size_t points = costs.size() * costs.size() * costs.size() * 2;

constexpr std::size_t transformed_points = costs.size() * costs.size();

constexpr point point_at(std::size_t i) {
  if (i >= points) {
    const std::size_t j = i - points;
    return {1, costs[j % costs.size()], 1, 2, costs[j / costs.size()]};
  }
  const auto digit = [&](std::size_t place) { return costs[i / place % costs.size()]; };
  return {digit(1), digit(3), digit(9), i < points / 2 ? 1 : 2};
}

// The approximate duration of the batches in a repetition.
constexpr std::chrono::milliseconds repetition{60};
constexpr int warm_up = 8;  // more batches than the flow can hold

int batches_in(microseconds each) {
  return static_cast<int>(std::max<std::int64_t>(16, repetition / each));
}

double in_microseconds(clock_type::duration span) {
  return std::chrono::duration<double, std::micro>(span).count();
}

/// Waits whose total has the intended length. Not thread-safe.
class steady_wait {
 public:
  void operator()(nanoseconds cost) {
    const auto until = clock_type::now() + cost - late_;
    std::this_thread::sleep_until(until);
    late_ = clock_type::now() - until;
  }

 private:
  nanoseconds late_{0};
};

/// Disables the timer slack of the calling thread, because the kernel may otherwise add 50 us to
/// every wait.
void wait_exactly() { ::prctl(PR_SET_TIMERSLACK, 1UL); }

struct slow_samples {
  using record_type = ps::record<ps::field<"x", float, values_a_sample>>;

  std::uint64_t batches;
  nanoseconds load;

  [[nodiscard]] std::uint64_t size() const { return batches * samples_a_batch; }
  void read_chunk(std::span<const std::uint64_t> indices, ps::batch_view<record_type> out) const {
    thread_local steady_wait waits = (wait_exactly(), steady_wait{});
    for (float& value : ps::get<"x">(out).flat()) value = static_cast<float>(indices.front());
    waits(load * indices.size() / samples_a_batch);
  }
};

constexpr std::size_t batch_bytes = samples_a_batch * values_a_sample * sizeof(float);

ps::cpu_device device_of(const point& at) {
  const std::chrono::duration<double> bus = at.copy * unit - latency;
  return ps::cpu_device{
      {.copy_bytes_per_second = batch_bytes / bus.count(), .launch_latency = latency}};
}

/// The work on the consumer's stream, which waits and records the time.
struct step {
  nanoseconds cost;
  steady_wait waits;
  std::vector<clock_type::time_point> ends;

  void operator()() {
    waits(cost);
    ends.push_back(clock_type::now());
  }
};

/// Returns the microseconds per batch, from the first batch in a full flow to the last.
/// `make_feed(loader, stream)` returns the feed for the batches.
template <class MakeFeed>
double run_flow(const point& at, const MakeFeed& make_feed) {
  const int batches = batches_in(at.bound()) + warm_up;
  const auto device = device_of(at);
  auto stream = device.make_stream();
  step work{at.compute * unit - latency, {}, {}};
  work.ends.reserve(static_cast<std::size_t>(batches));
  ps::loader loader{slow_samples{static_cast<std::uint64_t>(batches), at.load * unit},
                    ps::sequential{},
                    device,
                    {.batch_size = samples_a_batch,
                     .workers = static_cast<std::size_t>(at.workers),
                     .prefetch = prefetch}};
  auto feed = make_feed(loader, stream);
  for ([[maybe_unused]] auto& batch : feed.epoch(0)) stream.launch([&work] { work(); });
  stream.synchronize();
  const auto first = work.ends[warm_up - 1];
  return in_microseconds(work.ends.back() - first) / (batches - warm_up);
}

double run_flow(const point& at) {
  if (at.transform == 0) {
    return run_flow(at, [](auto& loader, auto& stream) { return ps::transfer{loader, stream}; });
  }
  const auto device = device_of(at);
  // Subtracts the latency of a launch and of a copy.
  const auto cost = at.transform * unit - 2 * latency;
  const auto bytes = static_cast<std::size_t>(device.options().copy_bytes_per_second *
                                              std::chrono::duration<double>{cost}.count());
  const std::vector<std::byte> from(bytes);
  std::vector<std::byte> to(bytes);
  const auto copied_slowly = [&](auto in, auto out, ps::cpu_stream_ref stream) {
    stream.launch([from = ps::get<"x">(in), to = ps::get<"x">(out)] {
      std::copy_n(from.data(), from.size(), to.data());
    });
    device.copy_async(to.data(), from.data(), bytes, stream);
  };
  return run_flow(at, [&](auto& loader, auto& stream) {
    return ps::transfer{loader, stream, ps::on_stream<slow_samples::record_type>(copied_slowly)};
  });
}

/// Reads, copies and computes in sequence on a single thread.
double run_serial(const point& at) {
  constexpr int batches = 4;
  const auto device = device_of(at);
  auto stream = device.make_stream();
  step work{at.compute * unit - latency, {}, {}};
  work.ends.reserve(batches + 1);
  ps::loader loader{slow_samples{batches + 1, at.load * unit},
                    ps::sequential{},
                    device,
                    {.batch_size = samples_a_batch, .workers = 0}};
  ps::transfer feed{loader, stream, {.depth = 1}};
  for ([[maybe_unused]] auto& batch : feed.epoch(0)) {
    stream.launch([&work] { work(); });
    stream.synchronize();
  }
  return in_microseconds(work.ends.back() - work.ends.front()) / batches;
}

std::string name_of(const point& at) {
  if (at.transform != 0) {
    return bench::named("transformed", {{"copy", at.copy}, {"transform", at.transform}});
  }
  return bench::named(
      "flow",
      {{"load", at.load}, {"copy", at.copy}, {"compute", at.compute}, {"workers", at.workers}});
}

std::string floor_of(const point& at) {
  return bench::named("wait_alone", {{"us", at.bound().count()}});
}

// Uses manual time, because the measured unit is a batch among many and not an iteration of the
// State.

void flow(benchmark::State& state, const point& at) {
  for (auto _ : state) {
    const double achieved = run_flow(at);
    state.SetIterationTime(achieved * 1e-6);
    const auto in_us = [](microseconds span) { return static_cast<double>(span.count()); };
    state.counters["copy_us"] = in_us(at.copy * unit);
    state.counters["bound_us"] = in_us(at.bound());
    state.counters["achieved_us"] = achieved;
    state.counters["over_bound"] = achieved / in_us(at.bound());
    if (at.transform != 0) {
      state.counters["transform_us"] = in_us(at.transform * unit);
      continue;
    }
    state.counters["load_us"] = in_us(at.load * unit);
    state.counters["compute_us"] = in_us(at.compute * unit);
    state.counters["serial_us"] = run_serial(at);
  }
}

template <class Wait>
void wait_alone(benchmark::State& state, microseconds cost) {
  std::thread{[&] {
    wait_exactly();
    for (auto _ : state) {
      const int batches = batches_in(cost);
      Wait wait;
      wait(cost);  // makes the clock start at a late return, as it stops at one
      const auto start = clock_type::now();
      for (int i = 0; i < batches; ++i) wait(cost);
      state.SetIterationTime(in_microseconds(clock_type::now() - start) * 1e-6 / batches);
    }
  }}.join();
}

struct plain_wait {
  void operator()(nanoseconds cost) const { std::this_thread::sleep_for(cost); }
};

template <std::size_t... I>
int run_with_goals(int argc, char** argv, std::index_sequence<I...>) {
  using enum bench::goal::kind;
  return bench::run(
      argc, argv, "overlap_bench",
      {bench::goal{name_of(point_at(I)), floor_of(point_at(I)), time_at_most, 1.02}...});
}

}  // namespace

int main(int argc, char** argv) {
  const auto once = [](benchmark::internal::Benchmark* made) {
    made->UseManualTime()->Iterations(1)->Unit(benchmark::kMicrosecond);
  };
  std::vector<microseconds> bounds;
  for (std::size_t i = 0; i < points + transformed_points; ++i) {
    const point at = point_at(i);
    once(benchmark::RegisterBenchmark(name_of(at).c_str(), flow, at));
    bounds.push_back(at.bound());
  }
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  for (const microseconds cost : bounds) {
    const auto us = "/us:" + std::to_string(cost.count());
    once(benchmark::RegisterBenchmark(("wait_alone" + us).c_str(), wait_alone<steady_wait>, cost));
    once(benchmark::RegisterBenchmark(("plain_wait_alone" + us).c_str(), wait_alone<plain_wait>,
                                      cost));
  }
  // Sets defaults before the caller's options, because the grid is large.
  std::vector<char*> words{argv, argv + argc};
  std::string few{"--benchmark_repetitions=5"};
  words.insert(words.begin() + 1, few.data());
  return run_with_goals(static_cast<int>(words.size()), words.data(),
                        std::make_index_sequence<points + transformed_points>{});
}
