// SPDX-License-Identifier: BSL-1.0
// Measures the cost of returning small results: a loop of results of 64 KiB whose steps and
// consumers take no time, with a number of device slots. The floor is the same copies back to back.
//
//   build/bench/bench/penstock_results_bench [--json FILE]
//
// In `returned_by_gpu` the calls of the device take time, and a worker notices the end of a copy
// late, as on a GPU. In `returned` the calls take almost no time.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
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
using record = ps::record<ps::field<"embedding", float, 256>>;

constexpr std::size_t batch_size = 64;
constexpr std::size_t result_bytes = batch_size * 256 * sizeof(float);  // 64 KiB
constexpr int results_per_run = 200;

/// A model of an H100 and its host, slowed down by a factor of 100, so that the wake-up times of
/// threads are negligible. The times of a copy (3 us) and of a nap (8 us) were measured, and the
/// times of the calls are estimates.
struct slow_gpu : ps::cpu_device {
  slow_gpu() : cpu_device{{.copy_bytes_per_second = result_bytes / 300e-6}} {}
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
  fast_calls() : cpu_device{{.copy_bytes_per_second = result_bytes / 50e-6}} {}
};

template <class Device>
void returned(benchmark::State& state, std::size_t in_flight) {
  const Device device;
  const auto stream = device.make_stream();
  ps::results<record, Device> out{
      device, stream, batch_size, [](const auto&) {}, {.depth = in_flight}};
  for (auto _ : state) {
    const auto begin = clock_type::now();
    for (std::uint64_t number = 0; number < results_per_run; ++number) {
      out.acquire({.batch = number, .size = batch_size, .valid_size = batch_size}).send();
    }
    out.finish();
    const std::chrono::duration<double> span = clock_type::now() - begin;
    state.SetIterationTime(span.count() / results_per_run);
  }
}

/// Measures copies that are queued at once, at the speed of the device's bus.
template <class Device>
void back_to_back(benchmark::State& state) {
  const ps::cpu_device bus = Device{};
  const auto stream = bus.make_stream();
  std::vector<std::byte> from(result_bytes);
  std::vector<std::byte> to(result_bytes);
  for (auto _ : state) {
    const auto begin = clock_type::now();
    for (int i = 0; i < results_per_run; ++i) {
      bus.copy_async(to.data(), from.data(), result_bytes, stream);
    }
    stream.synchronize();
    const std::chrono::duration<double> span = clock_type::now() - begin;
    state.SetIterationTime(span.count() / results_per_run);
  }
}

}  // namespace

int main(int argc, char** argv) {
  using enum bench::goal::kind;
  std::vector<bench::goal> goals;
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
