// SPDX-License-Identifier: BSL-1.0
// Compares batch_queue with Boost.Lockfree's queues in the same run.
//
//   build/bench/bench/penstock_batch_queue_bench
//
// QUEUE/producers:P/consumers:C/capacity:N: an iteration passes 96,000 tickets of 64 bits from P
// threads to C threads as fast as possible, in equal shares. The clock starts when all threads are
// ready and stops when the last consumer has finished. batch_queue_spsc is the queue for a single
// producer and a single consumer. The peers are Boost.Lockfree's queue and spsc_queue, which fail
// immediately: threads retry 32 times with pauses and then yield between retries.

#include <benchmark/benchmark.h>

#include <boost/lockfree/queue.hpp>
#include <boost/lockfree/spsc_queue.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <penstock/threads/batch_queue.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock_ext/lockfree/single_producer_single_consumer.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;
using ticket = std::uint64_t;

template <class Threads>
class batch_queue_of {
 public:
  explicit batch_queue_of(std::size_t capacity) : queue_(capacity) {}
  void push(ticket value) { queue_.push(value); }
  ticket pop() { return *queue_.pop(); }

 private:
  ps::batch_queue<ticket, Threads> queue_;
};
using ours = batch_queue_of<ps::many_producers_many_consumers>;
using ours_spsc = batch_queue_of<ps::single_producer_single_consumer>;

// A queue without blocking calls.
template <class Queue>
class retried {
 public:
  explicit retried(std::size_t capacity) : queue_(capacity) {}
  void push(ticket value) {
    insist([&] { return queue_.push(value); });
  }
  ticket pop() {
    ticket value = 0;
    insist([&] { return queue_.pop(value); });
    return value;
  }

 private:
  template <class Try>
  static void insist(Try attempt) noexcept {
    for (int tries = 0; !attempt(); ++tries) {
      if (tries < 32) {
        ps::detail::std_atomics::pause();
      } else {
        std::this_thread::yield();
      }
    }
  }

  Queue queue_;
};
using boost_queue = retried<boost::lockfree::queue<ticket, boost::lockfree::fixed_sized<true>>>;
using boost_spsc_queue = retried<boost::lockfree::spsc_queue<ticket>>;

struct shape {
  std::size_t producers;
  std::size_t consumers;
  std::size_t capacity;
};

// A multiple of each number of threads that is measured, so that all threads push or pop equal
// shares.
constexpr std::size_t tickets = 96'000;

template <class Queue>
void pass(benchmark::State& state, const shape& of) {
  for (auto _ : state) {
    Queue queue{of.capacity};
    std::atomic<std::size_t> there{0};
    std::atomic<bool> started{false};
    std::atomic<ticket> sum{0};
    const auto line_up = [&] {
      there.fetch_add(1);
      started.wait(false);
    };
    std::vector<std::thread> threads;
    for (std::size_t p = 0; p < of.producers; ++p) {
      threads.emplace_back([&, p] {
        line_up();
        for (ticket value = p; value < tickets; value += of.producers) queue.push(value);
      });
    }
    for (std::size_t c = 0; c < of.consumers; ++c) {
      threads.emplace_back([&] {
        line_up();
        ticket got = 0;
        for (std::size_t count = tickets / of.consumers; count > 0; --count) got += queue.pop();
        sum.fetch_add(got);
      });
    }
    while (there.load() < threads.size()) std::this_thread::yield();
    const auto start = std::chrono::steady_clock::now();
    started.store(true);
    started.notify_all();
    for (auto& thread : threads) thread.join();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(taken.count());
    if (sum.load() != ticket{tickets} * (tickets - 1) / 2) state.SkipWithError("tickets were lost");
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(tickets));
}

template <class Queue>
std::string add_pass(const std::string& queue, const shape& of) {
  const auto name = bench::named(queue, {{"producers", static_cast<std::int64_t>(of.producers)},
                                         {"consumers", static_cast<std::int64_t>(of.consumers)},
                                         {"capacity", static_cast<std::int64_t>(of.capacity)}});
  benchmark::RegisterBenchmark(name.c_str(), pass<Queue>, of)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.01);
  return name;
}

}  // namespace

int main(int argc, char** argv) {
  using enum bench::goal::kind;
  std::vector<bench::goal> goals;
  for (const shape& of : {shape{1, 1, 16}, shape{1, 1, 256}, shape{2, 2, 256}, shape{4, 4, 256}}) {
    const auto name = add_pass<ours>("batch_queue", of);
    goals.push_back({name, add_pass<boost_queue>("boost_queue", of), speed_at_least,
                     of.producers <= 2 && of.capacity == 256 ? 5.0 : 1.0});
    if (of.producers != 1) continue;
    goals.push_back({add_pass<ours_spsc>("batch_queue_spsc", of),
                     add_pass<boost_spsc_queue>("boost_spsc_queue", of), speed_at_least, 0.9});
  }
  return bench::run(argc, argv, "batch_queue_bench", goals);
}
