// SPDX-License-Identifier: BSL-1.0
// Measures the cost of passing index ranges to a worker_pool, using the same classes as a loader.
//
//   build/bench/bench/penstock_worker_pool_bench
//
// range: an iteration is a loop over `pieces` indices, whose work the calling thread shares piece
// by piece with another thread. `steps` is the computing time of a piece; with 0, a piece returns
// immediately. penstock: a claim_cursor. Peer: oneTBB's parallel_for with a grain of one piece and
// simple_partitioner, which also distributes single pieces. Floor: the loop on a single thread.

#include <benchmark/benchmark.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

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

// Does the work of one piece, the same in all variants that are compared. Not inlined, so that the
// compiler cannot fold a loop of calls.
[[gnu::noinline]] void compute(std::uint32_t index, std::uint32_t steps) noexcept {
  std::uint32_t value = index;
  for (std::uint32_t step = 0; step < steps; ++step) value = value * 1664525U + 1013904223U;
  benchmark::DoNotOptimize(value);
}

// A loop over indices whose work the caller shares with the threads of a pool, in the same way as
// workers share a batch. A range corresponds to a batch, and a piece to a chunk. Only one thread at
// a time may call the loop.
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
    ++ran;
  }

  // Records that a thread has finished its pieces. The thread that ran the last piece of a range
  // ends the range, and only then can the next range start.
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

constexpr std::size_t threads = 2;

struct range_shape {
  std::uint32_t pieces;
  std::uint32_t steps;
};

void count_pieces(benchmark::State& state, const range_shape& shape) {
  state.SetItemsProcessed(state.iterations() * shape.pieces);
}

void range_cursor(benchmark::State& state, const range_shape& shape) {
  shared_loop loop{threads, shape.pieces, shape.steps};
  for (auto _ : state) loop();
  count_pieces(state, shape);
}

void floor_loop(benchmark::State& state, const range_shape& shape) {
  for (auto _ : state) {
    for (std::uint32_t piece = 0; piece < shape.pieces; ++piece) compute(piece, shape.steps);
  }
  count_pieces(state, shape);
}

#if defined(PENSTOCK_BENCH_HAS_TBB)
void range_tbb(benchmark::State& state, const range_shape& shape) {
  // The same number of threads as for penstock, even if there are fewer cores.
  const tbb::global_control limit{tbb::global_control::max_allowed_parallelism, threads};
  tbb::task_arena arena{static_cast<int>(threads)};
  arena.execute([&] {
    for (auto _ : state) {
      tbb::parallel_for(
          tbb::blocked_range<std::uint32_t>{0, shape.pieces, 1},
          [steps = shape.steps](const tbb::blocked_range<std::uint32_t>& pieces) {
            for (std::uint32_t i = pieces.begin(); i != pieces.end(); ++i) compute(i, steps);
          },
          tbb::simple_partitioner{});
    }
  });
  count_pieces(state, shape);
}
#else
void range_tbb(benchmark::State& state, const range_shape&) {
  state.SkipWithError("left out: oneTBB is not installed");
}
#endif

}  // namespace

int main(int argc, char** argv) {
  using enum bench::goal::kind;
  std::vector<bench::goal> goals;
  for (const range_shape& shape :
       {range_shape{64, 0}, range_shape{4096, 0}, range_shape{4096, 256}}) {
    const auto add = [&shape](const char* how, auto* run) {
      const auto name = bench::named(how, {{"pieces", shape.pieces}, {"steps", shape.steps}});
      benchmark::RegisterBenchmark(name.c_str(), run, shape)->UseRealTime()->MinTime(0.03);
      return name;
    };
    const auto cursor = add("range/cursor", range_cursor);
    goals.push_back({cursor, add("range/floor_loop", floor_loop), time_at_most});
    goals.push_back({cursor, add("range/tbb", range_tbb), time_at_most, 2.0});
  }
  return bench::run(argc, argv, "worker_pool_bench", goals);
}
