// SPDX-License-Identifier: BSL-1.0
// Measures the cost of combining requests from several threads into batches.
//
//   build/bench/bench/penstock_batcher_bench
//
// submit: an iteration sends `requests` requests of 16 bytes from `threads` threads through a
// batcher with a maximum batch size of 32 to a consumer thread. Items per second are requests per
// second. Peer: the usual queue with a mutex and a condition variable, whose consumer copies
// requests into a batch.
//
// wait_above_fill: an iteration submits 2,000 single requests, one after another, to a batcher with
// a limit of 2 ms, while a thread waits for batches. The benchmark measures the time from each
// submission until the batch is delivered; above_p50 and above_p99 are microseconds above the
// limit. The time of an iteration includes the 2 ms of the limit. spin is `batcher_options::spin`,
// in microseconds. Floor: a thread that sleeps for 2 ms on a condition variable without a wake-up.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock_ext/serve/batcher.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;
using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

using request = ps::record<ps::field<"x", float, 4>>;
constexpr std::uint64_t requests_each_turn = 100'000;
constexpr std::size_t max = 32;

void write(ps::sample<request> out, std::uint64_t tag) {
  for (float& value : ps::get<"x">(out).flat()) value = static_cast<float>(tag);
}

// Runs `submit(tag)` for all tags, divided among threads. Returns when `consume()` has returned.
template <class Submit, class Consume>
void share(std::size_t threads, Submit submit, Consume consume) {
  std::thread consumer{consume};
  std::vector<std::thread> submitters;
  for (std::size_t i = 0; i < threads; ++i) {
    submitters.emplace_back([&, i] {
      for (std::uint64_t tag = i; tag < requests_each_turn; tag += threads) submit(tag);
    });
  }
  for (auto& submitter : submitters) submitter.join();
  consumer.join();
}

void submit_batcher(benchmark::State& state) {
  ps::batcher<request> requests{ps::cpu_device{}, {.max_batch_size = max, .fill = 2ms, .depth = 4}};
  for (auto _ : state) {
    share(
        static_cast<std::size_t>(state.range(0)),
        [&](std::uint64_t tag) {
          requests.submit(tag, [tag](ps::sample<request> out) { write(out, tag); });
        },
        [&] {
          for (std::uint64_t left = requests_each_turn; left != 0;) {
            const auto batch = requests.next();
            benchmark::DoNotOptimize(batch.data());
            left -= batch.size();
          }
        });
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(requests_each_turn));
}

// The peer: a queue with a mutex and a condition variable, without a deadline.
void submit_mutex(benchmark::State& state) {
  struct entry {
    std::uint64_t tag;
    std::array<float, 4> x;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::condition_variable room;
  std::deque<entry> waiting;
  std::array<entry, max> batch;
  for (auto _ : state) {
    share(
        static_cast<std::size_t>(state.range(0)),
        [&](std::uint64_t tag) {
          entry one{tag, {}};
          one.x.fill(static_cast<float>(tag));
          {
            std::unique_lock lock{mutex};
            room.wait(lock, [&] { return waiting.size() < 4 * max; });
            waiting.push_back(one);
          }
          changed.notify_one();
        },
        [&] {
          for (std::uint64_t left = requests_each_turn; left != 0;) {
            std::unique_lock lock{mutex};
            const auto wanted = std::min<std::uint64_t>(max, left);
            changed.wait(lock, [&] { return waiting.size() >= wanted; });
            std::copy_n(waiting.begin(), wanted, batch.begin());
            waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(wanted));
            lock.unlock();
            room.notify_all();
            benchmark::DoNotOptimize(batch.data());
            left -= wanted;
          }
        });
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(requests_each_turn));
}

constexpr auto fill = 2ms;
constexpr std::size_t requests_each = 2'000;

void record_above(benchmark::State& state, std::vector<double>& above) {
  std::sort(above.begin(), above.end());
  state.counters["above_p50"] = above[above.size() / 2];
  state.counters["above_p99"] = above[above.size() * 99 / 100];
}

void wait_above_fill(benchmark::State& state) {
  const std::chrono::microseconds spin{state.range(0)};
  ps::batcher<request> requests{ps::cpu_device{},
                                {.max_batch_size = max, .fill = fill, .spin = spin}};
  std::vector<double> above;
  for (auto _ : state) {
    std::atomic<std::size_t> served{0};
    clock_type::time_point submitted;
    std::thread consumer{[&] {
      for (std::size_t i = 0; i < requests_each; ++i) {
        const auto batch = requests.next();
        const std::chrono::duration<double, std::micro> late = clock_type::now() - submitted - fill;
        above.push_back(late.count());
        served.store(i + 1, std::memory_order_release);
        served.notify_one();
      }
    }};
    for (std::size_t i = 0; i < requests_each; ++i) {
      submitted = clock_type::now();
      requests.submit(i, [i](ps::sample<request> out) { write(out, i); });
      served.wait(i, std::memory_order_acquire);
    }
    consumer.join();
  }
  record_above(state, above);
}

void floor_sleep(benchmark::State& state) {
  std::vector<double> above;
  std::mutex mutex;
  std::condition_variable nobody;
  for (auto _ : state) {
    for (std::size_t i = 0; i < requests_each; ++i) {
      const auto end = clock_type::now() + fill;
      std::unique_lock lock{mutex};
      while (nobody.wait_until(lock, end) != std::cv_status::timeout) {
      }
      const std::chrono::duration<double, std::micro> late = clock_type::now() - end;
      above.push_back(late.count());
    }
  }
  record_above(state, above);
}

}  // namespace

int main(int argc, char** argv) {
  for (const std::int64_t threads : {1, 4}) {
    for (const auto& [name, run] :
         {std::pair{"submit/batcher", &submit_batcher}, std::pair{"submit/mutex", &submit_mutex}}) {
      benchmark::RegisterBenchmark(name, run)
          ->ArgName("threads")
          ->Arg(threads)
          ->UseRealTime()
          ->MinTime(0.1);
    }
  }
  const auto once = [](const char* name, void (*run)(benchmark::State&)) {
    return benchmark::RegisterBenchmark(name, run)->UseRealTime()->Iterations(1)->Unit(
        benchmark::kMillisecond);
  };
  once("wait_above_fill/batcher", wait_above_fill)->ArgName("spin")->Arg(0)->Arg(1000);
  once("wait_above_fill/floor_sleep", floor_sleep);
  using kind = bench::goal::kind;
  return bench::run(argc, argv, "batcher_bench",
                    {{"submit/batcher/threads:4", "submit/mutex/threads:4", kind::speed_at_least},
                     {"submit/batcher/threads:1", "submit/mutex/threads:1", kind::speed_at_least}});
}
