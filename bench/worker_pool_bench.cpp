// SPDX-License-Identifier: BSL-1.0
// What it costs to hand work to a worker_pool: ranges of indices and tasks, by the parts that a
// loader hands its own work out with.
//
//   build/bench/bench/penstock_worker_pool_bench
//   ... --benchmark_filter=range             the loops over indices alone
//
// range: one iteration is a loop over `pieces` indices, piece by piece, which the calling thread
// shares with threads - 1 others; `steps` is how long a piece computes, 0: it only returns. Ours: a
// claim_cursor (range/cursor), where a loader also counts each piece down, as several batches are
// on their way at once (range/cursor_countdown). Peers: oneTBB's parallel_for with a grain of one
// piece, with simple_partitioner, which hands out every piece as well, and with auto_partitioner,
// which hands out as few chunks as it can. Floors: the loop on one thread, and a bare fetch_add, by
// one thread and by several on the same word.
//
// tasks: one iteration posts `tasks` tasks, which do nothing, and waits for all; a waiting thread
// helps. Ours: a batch_queue of a function pointer and a context (tasks/batch_queue). Peers:
// oneTBB's task_group, a deque of std::function under a mutex and condition variable, std::async, a
// std::thread for each task. Floor: the loop that calls them.
//
// hand_over: one task that must run on another thread, there and back.
//
// idle: CPU time that threads without work burn in 100 ms, from 1 ms after their last work on; the
// time shown is that. Beside it one that spins: the ratio is the part of a core that is burnt.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(PENSTOCK_BENCH_HAS_TBB)
#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>
#endif

#include <penstock/core/support/cache_line.hpp>
#include <penstock/load/detail/plan/claim_cursor.hpp>
#include <penstock/threads/batch_queue.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/waitable_counter.hpp>
#include <penstock/threads/worker_pool.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;

// What every piece is, on all sides; not inlined, so that no loop over it is folded.
[[gnu::noinline]] void compute(std::uint32_t index, std::uint32_t steps) noexcept {
  std::uint32_t value = index;
  for (std::uint32_t step = 0; step < steps; ++step) value = value * 1664525U + 1013904223U;
  benchmark::DoNotOptimize(value);
}

// ---- ranges of indices

// How a thread says that it has run its pieces: all at once when it finds no more, or one by one.
enum class counting { by_thread, by_piece };

// A loop over indices that the caller shares with the threads of a pool, as workers share a batch:
// a range is a batch of the cursor, a piece is a run. One thread at a time calls.
template <counting Counting>
class shared_loop {
 public:
  shared_loop(std::size_t threads, std::uint32_t pieces, std::uint32_t steps)
      : pieces_(pieces),
        steps_(steps),
        cursor_(pieces),
        caller_opens_(cursor_.next().what == ps::detail::claim::kind::open),
        pool_(threads - 1, work_on{this}, wake_all{this}) {}

  // Runs all pieces, and returns when they have run.
  void operator()() {
    const std::uint32_t range = next_++;
    left_.store(pieces_, std::memory_order_relaxed);
    wanted_.advance();
    std::uint32_t ran = 0;
    if (caller_opens_) {
      cursor_.publish(range, 0);
      run(0, ran);
    }
    for (;;) {
      const ps::detail::claim got = cursor_.next();
      if (got.what == ps::detail::claim::kind::work) {
        run(got.chunk, ran);
        continue;
      }
      caller_opens_ = got.what == ps::detail::claim::kind::open;
      if (got.batch == range) break;
      cursor_.wait_past(got.batch);  // a worker is to open the range
    }
    finish(ran);
    done_.wait([range](std::uint32_t now) { return now == range + 1; });
  }

 private:
  struct work_on {
    shared_loop* self;
    void operator()(const std::stop_token& stop, std::size_t) const { self->work(stop); }
  };
  struct wake_all {
    shared_loop* self;
    void operator()() const noexcept {
      self->wanted_.advance();
      self->cursor_.wake();
    }
  };

  void work(const std::stop_token& stop) {
    std::uint32_t ran = 0;
    while (!stop.stop_requested()) {
      const ps::detail::claim got = cursor_.next();
      if (got.what == ps::detail::claim::kind::work) {
        run(got.chunk, ran);
        continue;
      }
      finish(std::exchange(ran, 0));
      if (got.what == ps::detail::claim::kind::wait) {
        cursor_.wait_past(got.batch);
        continue;
      }
      const std::uint32_t range = got.batch + 1;
      wanted_.wait([range](std::uint32_t now) { return now != range; });
      if (stop.stop_requested()) return;
      cursor_.publish(range, 0);
      run(0, ran);
    }
  }

  void run(std::uint32_t piece, std::uint32_t& ran) {
    compute(piece, steps_);
    if constexpr (Counting == counting::by_piece) {
      finish(1);
    } else {
      ++ran;
    }
  }

  // Whoever has run the last piece of a range ends it; the next range begins no sooner.
  void finish(std::uint32_t ran) {
    if (ran != 0 && left_.fetch_sub(ran, std::memory_order_acq_rel) == ran) done_.advance();
  }

  std::uint32_t pieces_;
  std::uint32_t steps_;
  ps::detail::claim_cursor<> cursor_;
  bool caller_opens_;       // the caller claimed what opens the next range
  std::uint32_t next_ = 0;  // the number of the next range
  alignas(ps::detail::cache_line) std::atomic<std::uint32_t> left_{0};
  alignas(ps::detail::cache_line) ps::detail::waitable_counter wanted_;  // ranges asked for
  alignas(ps::detail::cache_line) ps::detail::waitable_counter done_;    // ranges done
  ps::worker_pool<work_on, wake_all> pool_;
};

struct range_shape {
  std::size_t threads;
  std::uint32_t pieces;
  std::uint32_t steps;

  explicit range_shape(const benchmark::State& state)
      : threads(static_cast<std::size_t>(state.range(0))),
        pieces(static_cast<std::uint32_t>(state.range(1))),
        steps(static_cast<std::uint32_t>(state.range(2))) {}
};

void count_pieces(benchmark::State& state) {
  state.SetItemsProcessed(state.iterations() * state.range(1));
}

template <counting Counting>
void range_cursor(benchmark::State& state) {
  const range_shape shape{state};
  shared_loop<Counting> loop{shape.threads, shape.pieces, shape.steps};
  for (auto _ : state) loop();
  count_pieces(state);
}

void floor_loop(benchmark::State& state) {
  const range_shape shape{state};
  for (auto _ : state) {
    for (std::uint32_t piece = 0; piece < shape.pieces; ++piece) compute(piece, shape.steps);
  }
  count_pieces(state);
}

void floor_fetch_add(benchmark::State& state) {
  static std::atomic<std::uint64_t> next{0};
  for (auto _ : state) benchmark::DoNotOptimize(next.fetch_add(1, std::memory_order_acq_rel));
  state.SetItemsProcessed(state.iterations());
}

#if defined(PENSTOCK_BENCH_HAS_TBB)
// As many threads as ours, also where that is more than there are cores.
class tbb_threads {
 public:
  explicit tbb_threads(std::size_t threads)
      : limit_(tbb::global_control::max_allowed_parallelism, threads),
        arena_(static_cast<int>(threads)) {}
  tbb::task_arena& arena() noexcept { return arena_; }

 private:
  tbb::global_control limit_;
  tbb::task_arena arena_;
};

template <class Partitioner>
void range_tbb(benchmark::State& state) {
  const range_shape shape{state};
  tbb_threads threads{shape.threads};
  threads.arena().execute([&] {
    for (auto _ : state) {
      tbb::parallel_for(
          tbb::blocked_range<std::uint32_t>{0, shape.pieces, 1},
          [steps = shape.steps](const tbb::blocked_range<std::uint32_t>& pieces) {
            for (std::uint32_t i = pieces.begin(); i != pieces.end(); ++i) compute(i, steps);
          },
          Partitioner{});
    }
  });
  count_pieces(state);
}
#endif

// ---- posted tasks

// Tasks that are waited for together.
class countdown {
 public:
  void begin(std::uint32_t tasks) { left_.store(tasks, std::memory_order_relaxed); }
  void one_ran() {
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) done_.advance();
  }
  [[nodiscard]] std::uint32_t rounds() const { return done_.load(); }
  void wait_past(std::uint32_t rounds) const {
    done_.wait([rounds](std::uint32_t now) { return now != rounds; });
  }

 private:
  alignas(ps::detail::cache_line) std::atomic<std::uint32_t> left_{0};
  alignas(ps::detail::cache_line) ps::detail::waitable_counter done_;
};

// Tasks through the queue that a loader's batches go through: a preempted thread holds up no other.
class queue_pool {
 public:
  struct task {
    void (*run)(void*);
    void* context;
  };

  explicit queue_pool(std::size_t workers)
      : queue_(capacity), pool_(workers, run_all{&queue_}, close{&queue_}) {}

  // Where the queue is full, the caller helps.
  void post(task what) {
    while (!queue_.try_push(what)) help();
  }
  bool help() {
    const auto got = queue_.try_pop();
    if (got) got->run(got->context);
    return got.has_value();
  }

 private:
  static constexpr std::size_t capacity = 4096;
  using queue = ps::batch_queue<task>;

  struct run_all {
    queue* tasks;
    void operator()(const std::stop_token&, std::size_t) const {
      for (;;) {
        auto got = tasks->try_pop();
        if (!got) got = tasks->pop();
        if (!got) return;
        got->run(got->context);
      }
    }
  };
  struct close {
    queue* tasks;
    void operator()() const noexcept { tasks->close(); }
  };

  queue queue_;
  ps::worker_pool<run_all, close> pool_;
};

// The peer that everybody has written once.
class mutex_pool {
 public:
  explicit mutex_pool(std::size_t workers) {
    for (std::size_t i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
  }
  ~mutex_pool() {
    {
      const std::lock_guard lock{mutex_};
      closed_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  void post(std::function<void()> task) {
    {
      const std::lock_guard lock{mutex_};
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }
  bool help() {
    std::unique_lock lock{mutex_};
    if (tasks_.empty()) return false;
    run_first(lock);
    return true;
  }

 private:
  void work() {
    for (;;) {
      std::unique_lock lock{mutex_};
      changed_.wait(lock, [this] { return closed_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      run_first(lock);
    }
  }
  void run_first(std::unique_lock<std::mutex>& lock) {
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

// One name for how each pool is told what to run.
void post(queue_pool& pool, countdown& count) {
  pool.post({[](void* context) {
               compute(0, 0);
               static_cast<countdown*>(context)->one_ran();
             },
             &count});
}
void post(mutex_pool& pool, countdown& count) {
  pool.post([&count] {
    compute(0, 0);
    count.one_ran();
  });
}

std::size_t threads_of(const benchmark::State& state) {
  return static_cast<std::size_t>(state.range(0));
}
std::uint32_t tasks_of(const benchmark::State& state) {
  return static_cast<std::uint32_t>(state.range(1));
}
void count_tasks(benchmark::State& state) {
  state.SetItemsProcessed(state.iterations() * state.range(1));
}

void tasks_floor(benchmark::State& state) {
  const std::uint32_t tasks = tasks_of(state);
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < tasks; ++i) compute(i, 0);
  }
  count_tasks(state);
}

template <class Pool>
void tasks_pool(benchmark::State& state) {
  const std::uint32_t tasks = tasks_of(state);
  countdown count;
  Pool pool{threads_of(state) - 1};
  for (auto _ : state) {
    const std::uint32_t seen = count.rounds();
    count.begin(tasks);
    for (std::uint32_t i = 0; i < tasks; ++i) post(pool, count);
    while (pool.help()) {
    }
    count.wait_past(seen);
  }
  count_tasks(state);
}

void tasks_async(benchmark::State& state) {
  std::vector<std::future<void>> all(tasks_of(state));
  for (auto _ : state) {
    for (auto& one : all) one = std::async(std::launch::async, [] { compute(0, 0); });
    for (auto& one : all) one.get();
  }
  count_tasks(state);
}

void tasks_thread(benchmark::State& state) {
  std::vector<std::thread> all(tasks_of(state));
  for (auto _ : state) {
    for (auto& one : all) one = std::thread{[] { compute(0, 0); }};
    for (auto& one : all) one.join();
  }
  count_tasks(state);
}

template <class Pool>
void hand_over_pool(benchmark::State& state) {
  countdown count;
  Pool pool{1};
  for (auto _ : state) {
    const std::uint32_t seen = count.rounds();
    count.begin(1);
    post(pool, count);
    count.wait_past(seen);
  }
  state.SetItemsProcessed(state.iterations());
}

void hand_over_async(benchmark::State& state) {
  for (auto _ : state) std::async(std::launch::async, [] { compute(0, 0); }).get();
  state.SetItemsProcessed(state.iterations());
}

#if defined(PENSTOCK_BENCH_HAS_TBB)
void tasks_tbb(benchmark::State& state) {
  const std::uint32_t tasks = tasks_of(state);
  tbb_threads threads{threads_of(state)};
  threads.arena().execute([&] {
    tbb::task_group group;
    for (auto _ : state) {
      for (std::uint32_t i = 0; i < tasks; ++i) {
        group.run([i] { compute(i, 0); });
      }
      group.wait();
    }
  });
  count_tasks(state);
}

void hand_over_tbb(benchmark::State& state) {
  const tbb::global_control limit{tbb::global_control::max_allowed_parallelism, 2};
  tbb::task_arena arena{1, 0};  // its one place is a worker's
  countdown count;
  for (auto _ : state) {
    const std::uint32_t seen = count.rounds();
    count.begin(1);
    arena.enqueue([&count] {
      compute(0, 0);
      count.one_ran();
    });
    count.wait_past(seen);
  }
  state.SetItemsProcessed(state.iterations());
}
#endif

// ---- threads without work

double cpu_seconds() {
  std::timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The time of an iteration is the CPU time of the whole process while this thread sleeps.
void measure_idle(benchmark::State& state) {
  constexpr std::chrono::milliseconds span{100};
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    const double before = cpu_seconds();
    const auto begin = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(span);
    const double burnt = cpu_seconds() - before;
    const std::chrono::duration<double> lasted = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(burnt);
    state.counters["idle_cpu_ms_per_s"] = 1e3 * burnt / lasted.count();
  }
}

template <class Pool>
void idle_pool(benchmark::State& state) {
  countdown count;
  Pool pool{threads_of(state) - 1};
  const std::uint32_t seen = count.rounds();
  count.begin(1000);
  for (int i = 0; i < 1000; ++i) post(pool, count);
  count.wait_past(seen);
  measure_idle(state);
}

void idle_cursor(benchmark::State& state) {
  shared_loop<counting::by_thread> loop{threads_of(state), 1000, 0};
  loop();
  measure_idle(state);
}

void idle_spinning(benchmark::State& state) {
  std::atomic<bool> ended{false};
  std::thread burner{[&ended] {
    while (!ended.load(std::memory_order_relaxed)) ps::detail::std_atomics::pause();
  }};
  measure_idle(state);
  ended = true;
  burner.join();
}

#if defined(PENSTOCK_BENCH_HAS_TBB)
void idle_tbb(benchmark::State& state) {
  tbb_threads threads{threads_of(state)};
  threads.arena().execute(
      [] { tbb::parallel_for(0, 1000, [](int i) { compute(static_cast<std::uint32_t>(i), 0); }); });
  measure_idle(state);
}
#else
void absent(benchmark::State& state) { state.SkipWithError("left out: oneTBB is not installed"); }
template <class>
constexpr auto* range_tbb = absent;
constexpr auto* tasks_tbb = absent;
constexpr auto* hand_over_tbb = absent;
constexpr auto* idle_tbb = absent;
namespace tbb {
struct simple_partitioner;
struct auto_partitioner;
}  // namespace tbb
#endif

// ---- what is run

using function = void (*)(benchmark::State&);

auto* add(const std::string& name, function run) {
  return benchmark::RegisterBenchmark(name.c_str(), run)->UseRealTime()->MinTime(0.03);
}

void add_range(const std::string& how, function run, bool alone = false) {
  auto* made = add("range/" + how, run)->ArgNames({"threads", "pieces", "steps"});
  for (const std::int64_t threads : {1, 2, 4}) {
    if (alone && threads != 1) continue;
    made->Args({threads, 64, 0})->Args({threads, 4096, 0})->Args({threads, 4096, 256});
  }
}

void add_tasks(const std::string& how, function run, std::initializer_list<std::int64_t> threads,
               std::initializer_list<std::int64_t> tasks) {
  auto* made = add("tasks/" + how, run)->ArgNames({"threads", "tasks"});
  for (const std::int64_t t : threads) {
    for (const std::int64_t n : tasks) made->Args({t, n});
  }
}

void add_idle(const std::string& how, function run, std::int64_t threads) {
  benchmark::RegisterBenchmark(("idle/" + how).c_str(), run)
      ->ArgName("threads")
      ->Arg(threads)
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMicrosecond);
}

using kind = bench::goal::kind;

bench::goal range_goal(const std::string& ours, const std::string& peer, std::int64_t threads,
                       std::int64_t pieces, std::int64_t steps, double bound = 0) {
  const auto name = [&](const std::string& how) {
    return bench::named("range/" + how,
                        {{"threads", threads}, {"pieces", pieces}, {"steps", steps}});
  };
  return {name(ours), name(peer), kind::time_at_most, bound};
}

bench::goal tasks_goal(const std::string& ours, const std::string& peer, std::int64_t threads,
                       std::int64_t tasks, double bound = 0) {
  const auto name = [&](const std::string& how) {
    return bench::named("tasks/" + how, {{"threads", threads}, {"tasks", tasks}});
  };
  return {name(ours), name(peer), kind::time_at_most, bound};
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::RegisterBenchmark("floor_fetch_add", floor_fetch_add)
      ->UseRealTime()
      ->MinTime(0.03)
      ->Threads(1)
      ->Threads(2)
      ->Threads(4);
  add_range("floor_loop", floor_loop, true);
  add_range("cursor", range_cursor<counting::by_thread>);
  add_range("cursor_countdown", range_cursor<counting::by_piece>);
  add_range("tbb_simple", range_tbb<tbb::simple_partitioner>);
  add_range("tbb_auto", range_tbb<tbb::auto_partitioner>);
  add_tasks("floor_loop", tasks_floor, {1}, {1, 64, 1024});
  add_tasks("batch_queue", tasks_pool<queue_pool>, {1, 2, 4}, {1, 64, 1024});
  add_tasks("tbb_task_group", tasks_tbb, {1, 2, 4}, {1, 64, 1024});
  add_tasks("mutex", tasks_pool<mutex_pool>, {1, 2, 4}, {1, 64, 1024});
  add_tasks("std_async", tasks_async, {2}, {64});
  add_tasks("std_thread", tasks_thread, {2}, {64});
  add("hand_over/batch_queue", hand_over_pool<queue_pool>);
  add("hand_over/tbb_arena", hand_over_tbb);
  add("hand_over/mutex", hand_over_pool<mutex_pool>);
  add("hand_over/std_async", hand_over_async);
  add_idle("spinning", idle_spinning, 1);
  add_idle("cursor", idle_cursor, 4);
  add_idle("batch_queue", idle_pool<queue_pool>, 4);
  add_idle("mutex", idle_pool<mutex_pool>, 4);
  add_idle("tbb", idle_tbb, 4);
  return bench::run(
      argc, argv, "worker_pool_bench",
      {range_goal("cursor", "tbb_simple", 2, 4096, 0, 2.0),
       range_goal("cursor", "tbb_simple", 2, 64, 0, 2.0),
       range_goal("cursor", "tbb_auto", 2, 4096, 256),
       range_goal("cursor_countdown", "tbb_simple", 2, 4096, 0, 2.0),
       tasks_goal("batch_queue", "tbb_task_group", 2, 1024),
       tasks_goal("batch_queue", "mutex", 2, 1024),
       {"idle/batch_queue/threads:4", "idle/spinning/threads:1", kind::time_at_most, 0.01},
       {"idle/cursor/threads:4", "idle/spinning/threads:1", kind::time_at_most, 0.01}});
}
