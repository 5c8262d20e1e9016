// SPDX-License-Identifier: BSL-1.0
// Compares batch_queue with its peers and floors in the same run.
//
//   build/bench/bench/penstock_batch_queue_bench
//   ... --benchmark_filter=capacity:256     the throughput of every shape at one capacity
//   ... --benchmark_filter=wake             the cost of a wake-up
//
// QUEUE/producers:P/consumers:C/capacity:N: an iteration passes 96,000 tickets of 64 bits from P
// threads to C threads as fast as possible, in equal shares. The clock starts when all threads are
// ready and stops when the last consumer has finished. batch_queue_spsc is the queue for a single
// producer and a single consumer. Two peers have blocking calls: oneTBB's concurrent_bounded_queue,
// and a ring with a mutex and two condition variables. Boost.Lockfree's queue and spsc_queue
// (single producer and consumer) and rigtorp's MPMCQueue (not lock-free) fail immediately: threads
// retry 32 times with pauses and then yield between retries. moodycamel's ConcurrentQueue and
// BlockingConcurrentQueue use a token for each thread, which is their best setting, and keep only
// the order of each producer's tickets. moodycamel's queues and oneTBB's concurrent_queue are
// unbounded, so no thread waits for space there. If an unbounded queue without blocking calls is
// empty, threads retry as with Boost's queues.
//
// round_trip: the floor. Two spinning threads pass a cache line back and forth.
//
// wake/...: a round trip between two threads, one of which has been asleep for 200 microseconds
// when the clock starts. Floor: two atomics with std::atomic's wait and notify_one.

#include <benchmark/benchmark.h>

#include <boost/lockfree/queue.hpp>
#include <boost/lockfree/spsc_queue.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(PENSTOCK_BENCH_HAS_TBB)
#include <oneapi/tbb/concurrent_queue.h>
#endif
#if defined(PENSTOCK_BENCH_HAS_MOODYCAMEL)
#include <concurrentqueue/blockingconcurrentqueue.h>
#include <concurrentqueue/concurrentqueue.h>
#endif

#if defined(PENSTOCK_BENCH_HAS_RIGTORP)
#include <rigtorp/MPMCQueue.h>
#endif

#include <penstock/threads/batch_queue.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock_ext/lockfree/single_producer_single_consumer.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;
using ticket = std::uint64_t;

// ---- the queues
//
// All queues have blocking calls of push and pop. They are members of a `producer` or `consumer`
// endpoint, of which each thread creates its own.

struct shape {
  std::size_t producers;
  std::size_t consumers;
  std::size_t capacity;
};

// Retries a call of a queue without blocking calls.
template <class Try>
void insist(Try attempt) noexcept {
  for (int tries = 0; !attempt(); ++tries) {
    if (tries < 32) {
      ps::detail::std_atomics::pause();
    } else {
      std::this_thread::yield();
    }
  }
}

template <class Threads>
class batch_queue_of {
 public:
  explicit batch_queue_of(const shape& of) : queue_(of.capacity) {}
  void push(ticket value) { queue_.push(value); }
  ticket pop() { return *queue_.pop(); }

 private:
  ps::batch_queue<ticket, Threads> queue_;
};
using ours = batch_queue_of<ps::many_producers_many_consumers>;
using ours_spsc = batch_queue_of<ps::single_producer_single_consumer>;

class boost_queue {
 public:
  explicit boost_queue(const shape& of) : queue_(of.capacity) {}
  void push(ticket value) {
    insist([&] { return queue_.bounded_push(value); });
  }
  ticket pop() {
    ticket value = 0;
    insist([&] { return queue_.pop(value); });
    return value;
  }

 private:
  boost::lockfree::queue<ticket, boost::lockfree::fixed_sized<true>> queue_;
};

class boost_spsc_queue {
 public:
  explicit boost_spsc_queue(const shape& of) : queue_(of.capacity) {}
  void push(ticket value) {
    insist([&] { return queue_.push(value); });
  }
  ticket pop() {
    ticket value = 0;
    insist([&] { return queue_.pop(value); });
    return value;
  }

 private:
  boost::lockfree::spsc_queue<ticket> queue_;
};

class mutex_ring {
 public:
  explicit mutex_ring(const shape& of) : ring_(of.capacity) {}
  void push(ticket value) {
    std::unique_lock lock{mutex_};
    room_.wait(lock, [&] { return count_ < ring_.size(); });
    ring_[(first_ + count_) % ring_.size()] = value;
    ++count_;
    lock.unlock();
    filled_.notify_one();
  }
  ticket pop() {
    std::unique_lock lock{mutex_};
    filled_.wait(lock, [&] { return count_ > 0; });
    const ticket value = ring_[first_];
    first_ = (first_ + 1) % ring_.size();
    --count_;
    lock.unlock();
    room_.notify_one();
    return value;
  }

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::condition_variable room_;
  std::vector<ticket> ring_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

// The endpoint of a queue that needs no state per thread.
template <class Queue>
struct end_of {
  explicit end_of(Queue& queue) : queue_(queue) {}
  void push(ticket value) { queue_.push(value); }
  ticket pop() { return queue_.pop(); }

 private:
  Queue& queue_;
};

template <class Queue>
struct ends {
  using producer = end_of<Queue>;
  using consumer = end_of<Queue>;
};

#if defined(PENSTOCK_BENCH_HAS_RIGTORP)
class rigtorp_queue {
 public:
  explicit rigtorp_queue(const shape& of) : queue_(of.capacity) {}
  void push(ticket value) {
    insist([&] { return queue_.try_push(value); });
  }
  ticket pop() {
    ticket value = 0;
    insist([&] { return queue_.try_pop(value); });
    return value;
  }

 private:
  rigtorp::MPMCQueue<ticket> queue_;
};
#endif

#if defined(PENSTOCK_BENCH_HAS_TBB)
class tbb_bounded_queue {
 public:
  explicit tbb_bounded_queue(const shape& of) {
    queue_.set_capacity(static_cast<std::ptrdiff_t>(of.capacity));
  }
  void push(ticket value) { queue_.push(value); }
  ticket pop() {
    ticket value = 0;
    queue_.pop(value);
    return value;
  }

 private:
  tbb::concurrent_bounded_queue<ticket> queue_;
};

class tbb_queue {
 public:
  explicit tbb_queue(const shape&) {}
  void push(ticket value) { queue_.push(value); }
  ticket pop() {
    ticket value = 0;
    insist([&] { return queue_.try_pop(value); });
    return value;
  }

 private:
  tbb::concurrent_queue<ticket> queue_;
};
#endif

#if defined(PENSTOCK_BENCH_HAS_MOODYCAMEL)
template <class Queue>
struct with_tokens : Queue {
  explicit with_tokens(const shape& of) : Queue(of.capacity, of.producers, 0) {}
};
using moodycamel_queue = with_tokens<moodycamel::ConcurrentQueue<ticket>>;
using moodycamel_blocking = with_tokens<moodycamel::BlockingConcurrentQueue<ticket>>;

template <class Queue>
struct ends<with_tokens<Queue>> {
  class producer {
   public:
    explicit producer(Queue& queue) : queue_(queue), token_(queue) {}
    void push(ticket value) { queue_.enqueue(token_, value); }

   private:
    Queue& queue_;
    moodycamel::ProducerToken token_;
  };
  class consumer {
   public:
    explicit consumer(Queue& queue) : queue_(queue), token_(queue) {}
    ticket pop() {
      ticket value = 0;
      if constexpr (requires { queue_.wait_dequeue(token_, value); }) {
        queue_.wait_dequeue(token_, value);
      } else {
        insist([&] { return queue_.try_dequeue(token_, value); });
      }
      return value;
    }

   private:
    Queue& queue_;
    moodycamel::ConsumerToken token_;
  };
};
#endif

// ---- throughput

// A multiple of every number of threads, so that all threads push or pop equal shares.
constexpr std::size_t tickets = 96'000;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>{std::chrono::steady_clock::now() - start}.count();
}

template <class Queue>
void pass(benchmark::State& state, const shape& of) {
  for (auto _ : state) {
    Queue queue{of};
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
        typename ends<Queue>::producer end{queue};
        line_up();
        for (ticket value = p; value < tickets; value += of.producers) end.push(value);
      });
    }
    for (std::size_t c = 0; c < of.consumers; ++c) {
      threads.emplace_back([&] {
        typename ends<Queue>::consumer end{queue};
        line_up();
        ticket got = 0;
        for (std::size_t count = tickets / of.consumers; count > 0; --count) got += end.pop();
        sum.fetch_add(got);
      });
    }
    while (there.load() < threads.size()) std::this_thread::yield();
    const auto start = std::chrono::steady_clock::now();
    started.store(true);
    started.notify_all();
    for (auto& thread : threads) thread.join();
    state.SetIterationTime(seconds_since(start));
    if (sum.load() != ticket{tickets} * (tickets - 1) / 2) state.SkipWithError("tickets were lost");
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(tickets));
}

// ---- floors and wake-ups

// A round trip of a cache line.
class spinning {
 public:
  void send(std::uint32_t value) { word_.store(value, std::memory_order_release); }
  void receive(std::uint32_t value) {
    while (word_.load(std::memory_order_acquire) != value) ps::detail::std_atomics::pause();
  }

 private:
  std::atomic<std::uint32_t> word_{0};
};

// 32 bits, the size on which the kernel can wait without help from the standard library.
class atomic_wait {
 public:
  void send(std::uint32_t value) {
    word_.store(value, std::memory_order_release);
    word_.notify_one();
  }
  void receive(std::uint32_t value) { word_.wait(value - 1, std::memory_order_acquire); }

 private:
  std::atomic<std::uint32_t> word_{0};
};

template <class Queue>
class by_queue {
 public:
  void send(std::uint32_t value) { producer_.push(value); }
  void receive(std::uint32_t value) {
    if (consumer_.pop() != value) std::abort();
  }

 private:
  Queue queue_{shape{1, 1, 16}};
  typename ends<Queue>::producer producer_{queue_};
  typename ends<Queue>::consumer consumer_{queue_};
};

template <class Channel>
void there_and_back(benchmark::State& state, std::chrono::microseconds idle) {
  alignas(ps::detail::cache_line) Channel there;
  alignas(ps::detail::cache_line) Channel back;
  std::thread other{[&, rounds = static_cast<std::uint32_t>(state.max_iterations)] {
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      there.receive(round);
      back.send(round);
    }
  }};
  std::uint32_t round = 0;
  for (auto _ : state) {
    // Spins instead of sleeping, so that this core stays awake. The other core may sleep.
    for (auto begin = std::chrono::steady_clock::now();
         std::chrono::steady_clock::now() < begin + idle;) {
      ps::detail::std_atomics::pause();
    }
    const auto start = std::chrono::steady_clock::now();
    there.send(++round);
    back.receive(round);
    state.SetIterationTime(seconds_since(start));
  }
  other.join();
}

void round_trip(benchmark::State& state) {
  alignas(ps::detail::cache_line) spinning there;
  alignas(ps::detail::cache_line) spinning back;
  std::thread other{[&, rounds = static_cast<std::uint32_t>(state.max_iterations)] {
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      there.receive(round);
      back.send(round);
    }
  }};
  std::uint32_t round = 0;
  for (auto _ : state) {
    there.send(++round);
    back.receive(round);
  }
  other.join();
}

// ---- registration

constexpr shape shapes[] = {
    {1, 1, 256}, {2, 1, 256}, {1, 2, 256},  {2, 2, 256}, {4, 4, 256},
    {8, 8, 256}, {1, 1, 16},  {1, 1, 4096}, {4, 4, 16},  {4, 4, 4096},
};

std::string name_of(const std::string& queue, const shape& of) {
  return bench::named(queue, {{"producers", static_cast<std::int64_t>(of.producers)},
                              {"consumers", static_cast<std::int64_t>(of.consumers)},
                              {"capacity", static_cast<std::int64_t>(of.capacity)}});
}

template <class Queue>
void add_pass(const std::string& queue, const shape& of) {
  benchmark::RegisterBenchmark(name_of(queue, of).c_str(),
                               [of](benchmark::State& state) { pass<Queue>(state, of); })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.01);
}

template <class Queue>
void add_pass(const std::string& queue) {
  for (const shape& of : shapes) add_pass<Queue>(queue, of);
}

template <class Channel>
void add_wake(const std::string& name) {
  benchmark::RegisterBenchmark(("wake/" + name).c_str(),
                               [](benchmark::State& state) {
                                 there_and_back<Channel>(state, std::chrono::microseconds{200});
                               })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond)
      ->MinTime(0.02);
}

[[maybe_unused]] void add_absent(const std::string& name, const char* why) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [why](benchmark::State& state) { state.SkipWithError(why); });
}

bench::goal faster_than(const std::string& peer, const shape& of, double times = 1) {
  return {.name = name_of("batch_queue", of),
          .floor = name_of(peer, of),
          .what = bench::goal::kind::speed_at_least,
          .bound = times};
}

bench::goal spsc_goal(const shape& of) {
  return {.name = name_of("batch_queue_spsc", of),
          .floor = name_of("boost_spsc_queue", of),
          .what = bench::goal::kind::speed_at_least,
          .bound = 0.9};
}

bench::goal crowd(const std::string& queue, double bound) {
  return {.name = name_of(queue, {8, 8, 256}),
          .floor = name_of(queue, {1, 1, 256}),
          .what = bench::goal::kind::speed_at_least,
          .bound = bound};
}

bench::goal wake_up(const std::string& name, double bound) {
  return {.name = "wake/" + name,
          .floor = "wake/atomic",
          .what = bench::goal::kind::time_at_most,
          .bound = bound};
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::RegisterBenchmark("round_trip", round_trip)->UseRealTime()->MinTime(0.02);
  add_wake<atomic_wait>("atomic");
  add_wake<by_queue<ours>>("batch_queue");
  add_wake<by_queue<ours_spsc>>("batch_queue_spsc");
  add_wake<by_queue<mutex_ring>>("mutex");
  add_pass<ours>("batch_queue");
  add_pass<boost_queue>("boost_queue");
  for (const shape& of : shapes) {
    if (of.producers != 1 || of.consumers != 1) continue;
    add_pass<ours_spsc>("batch_queue_spsc", of);
    add_pass<boost_spsc_queue>("boost_spsc_queue", of);
  }
  add_pass<mutex_ring>("mutex");
#if defined(PENSTOCK_BENCH_HAS_RIGTORP)
  add_pass<rigtorp_queue>("rigtorp_queue");
#else
  add_absent("rigtorp_queue", "left out: rigtorp's MPMCQueue is not installed");
#endif
#if defined(PENSTOCK_BENCH_HAS_TBB)
  add_wake<by_queue<tbb_bounded_queue>>("tbb_bounded_queue");
  add_pass<tbb_bounded_queue>("tbb_bounded_queue");
  add_pass<tbb_queue>("tbb_queue");
#else
  for (const char* name : {"wake/tbb_bounded_queue", "tbb_bounded_queue", "tbb_queue"}) {
    add_absent(name, "left out: oneTBB is not installed");
  }
#endif
#if defined(PENSTOCK_BENCH_HAS_MOODYCAMEL)
  add_wake<by_queue<moodycamel_blocking>>("moodycamel_blocking");
  add_pass<moodycamel_queue>("moodycamel_queue");
  add_pass<moodycamel_blocking>("moodycamel_blocking");
#else
  for (const char* name : {"wake/moodycamel_blocking", "moodycamel_queue", "moodycamel_blocking"}) {
    add_absent(name, "left out: moodycamel's ConcurrentQueue is not installed");
  }
#endif
  std::vector<bench::goal> goals{
      wake_up("batch_queue", 1.3),     wake_up("batch_queue_spsc", 0),    wake_up("mutex", 0),
      wake_up("tbb_bounded_queue", 0), wake_up("moodycamel_blocking", 0), crowd("batch_queue", 0.5),
      crowd("boost_queue", 0),
  };
  for (const shape& of : shapes) {
    const bool is_few = of.producers <= 2 && of.consumers <= 2 && of.capacity == 256;
    goals.push_back(faster_than("boost_queue", of, is_few ? 5 : 1));
    goals.push_back(faster_than("tbb_bounded_queue", of));
    goals.push_back(faster_than("mutex", of));
    if (of.producers == 1 && of.consumers == 1) goals.push_back(spsc_goal(of));
  }
  return bench::run(argc, argv, "batch_queue_bench", goals);
}
