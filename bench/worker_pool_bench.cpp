// SPDX-License-Identifier: BSL-1.0
// Measures the cost of passing index ranges to a worker_pool, using the same classes as a loader.
//
//   build/bench/bench/penstock_worker_pool_bench
//   ... --benchmark_filter=range             only the loops over indices
//
// range: an iteration is a loop over `pieces` indices, piece by piece, which the calling thread
// shares with threads - 1 others. `steps` is the computing time of a piece; with 0, a piece returns
// immediately. penstock: a claim_cursor (range/cursor); a loader also decrements a counter per
// piece, because several batches are in flight (range/cursor_countdown). Peers: oneTBB's
// parallel_for with a grain of one piece, with simple_partitioner, which also distributes single
// pieces, and with auto_partitioner, which distributes as few chunks as possible. Floors: the loop
// on a single thread, and a bare fetch_add by a single thread and by several threads on the same
// word.
//
// idle: the CPU time that idle threads use in 100 ms, starting 1 ms after their last work; this is
// the displayed time. The floor is a spinning thread, so the ratio is the fraction of a core in
// use.

#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#if defined(PENSTOCK_BENCH_HAS_TBB)
#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>
#endif

#include <penstock/load/detail/claim_cursor.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/waitable_counter.hpp>
#include <penstock/threads/worker_pool.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;

// The work of a piece on all sides. The function is not inlined, so that the compiler cannot fold
// loops over it.
[[gnu::noinline]] void compute(std::uint32_t index, std::uint32_t steps) noexcept {
  std::uint32_t value = index;
  for (std::uint32_t step = 0; step < steps; ++step) value = value * 1664525U + 1013904223U;
  benchmark::DoNotOptimize(value);
}

// ---- ranges of indices

// The way in which a thread reports finished pieces: all at once when no more pieces are left, or
// one by one.
enum class counting { by_thread, by_piece };

// A loop over indices that the caller shares with the threads of a pool, as workers share a batch.
// A range corresponds to a batch, and a piece to a chunk. Only one thread at a time may call the
// loop.
template <counting Counting>
class shared_loop {
 public:
  shared_loop(std::size_t threads, std::uint32_t pieces, std::uint32_t steps)
      : pieces_(pieces),
        steps_(steps),
        cursor_(pieces),
        caller_opens_(cursor_.next().what == ps::detail::claim::kind::open),
        pool_(threads - 1, work_on{this}, wake_all{this}) {}

  // Runs all pieces and returns when they have finished.
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
      cursor_.wait_past(got.batch);  // a worker must open the range first
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

  // Reports the end of a thread's pieces. The thread that ran the last piece of a range ends the
  // range, and only then can the next range start.
  void finish(std::uint32_t ran) {
    if (ran != 0 && left_.fetch_sub(ran, std::memory_order_acq_rel) == ran) done_.advance();
  }

  std::uint32_t pieces_;
  std::uint32_t steps_;
  ps::detail::claim_cursor<> cursor_;
  bool caller_opens_;       // true if the caller claimed the piece that opens the next range
  std::uint32_t next_ = 0;  // index of the next range
  alignas(ps::detail::cache_line) std::atomic<std::uint32_t> left_{0};
  // Number of requested ranges.
  alignas(ps::detail::cache_line) ps::detail::waitable_counter wanted_;
  // Number of finished ranges.
  alignas(ps::detail::cache_line) ps::detail::waitable_counter done_;
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
// Uses as many threads as penstock's side, even if there are fewer cores.
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

// ---- idle threads

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

std::size_t threads_of(const benchmark::State& state) {
  return static_cast<std::size_t>(state.range(0));
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
constexpr auto* idle_tbb = absent;
namespace tbb {
struct simple_partitioner;
struct auto_partitioner;
}  // namespace tbb
#endif

// ---- registration

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
  add_idle("spinning", idle_spinning, 1);
  add_idle("cursor", idle_cursor, 4);
  add_idle("tbb", idle_tbb, 4);
  return bench::run(
      argc, argv, "worker_pool_bench",
      {range_goal("cursor", "tbb_simple", 2, 4096, 0, 2.0),
       range_goal("cursor", "tbb_simple", 2, 64, 0, 2.0),
       range_goal("cursor", "tbb_auto", 2, 4096, 256),
       range_goal("cursor_countdown", "tbb_simple", 2, 4096, 0, 2.0),
       {"idle/cursor/threads:4", "idle/spinning/threads:1", kind::time_at_most, 0.01}});
}
