// SPDX-License-Identifier: BSL-1.0
// Measures how often ps::diagnose is right about a running loop. There are 54 loops from
// overlap_bench's grid of load, copy and compute, on the CPU device with a simulated bus, and six
// more.
//
//   build/bench/bench/penstock_observe_bench
//
// An item is a loop. A repetition runs all loops and counts as one second.
//
// right    the diagnosis names the slowest part of the model. If two parts are equally slow, either
//          is right, and so is "mixed".
// near     the promised gain of more workers, a deeper ring or more prefetching is, with these
//          options, within a tenth of the loop's actual time.
// all, promised   the floors: the numbers of loops and of promised gains.
//
// Reads and the body sleep instead of using a core, so reads count as waiting for storage. A loop
// that takes a twelfth longer than its model was disturbed by the machine and is repeated up to
// five times. The six additional loops: a single slot on the device, slow samples, too many
// workers, reads that wait for very long, reads that compute, a very slow bus.

#include <benchmark/benchmark.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/observe/stats.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/report/diagnose.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;
using clock_type = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr std::size_t samples_a_batch = 16;
constexpr microseconds unit{400};

/// Waits whose total has the intended length: a late return shortens the next waits. A very long
/// delay, during which the machine has stopped the thread, is not compensated. Not thread-safe.
class steady_wait {
 public:
  void operator()(nanoseconds cost) {
    if (!is_exact_) is_exact_ = ::prctl(PR_SET_TIMERSLACK, 1UL) == 0;
    const auto until = clock_type::now() + cost - late_;
    std::this_thread::sleep_until(until);
    late_ = std::min<nanoseconds>(clock_type::now() - until, unit);
  }

 private:
  bool is_exact_ = false;
  nanoseconds late_{0};
};

void burn(nanoseconds cost) {
  const auto until = clock_type::now() + cost;
  while (clock_type::now() < until) {
  }
}

/// A loop, described by the time of its parts per batch.
struct loop {
  double load = 1;  // of a single worker, in units
  double copy = 1;
  double body = 1;
  std::size_t workers = 1;
  std::size_t prefetch = 4;
  std::size_t depth = 3;
  std::size_t slow_every = 0;  // every `slow_every`-th sample takes `slow` units; 0 means none
  double slow = 0;
  bool burns = false;  // true if reads compute
};

nanoseconds of(double units) { return nanoseconds{std::llround(units * 1e3 * unit.count())}; }

struct samples {
  using record_type = ps::record<ps::field<"x", float, 64>>;
  loop how;
  std::uint64_t batches;
  [[nodiscard]] std::uint64_t size() const { return batches * samples_a_batch; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    thread_local steady_wait waits;
    const bool is_slow = how.slow_every != 0 && index % how.slow_every == how.slow_every - 1;
    const auto cost = of(is_slow ? how.slow : how.load / samples_a_batch);
    how.burns ? burn(cost) : waits(cost);
    ps::get<"x">(out).flat()[0] = static_cast<float>(index);
  }
};

struct judged {
  double time = 0;  // seconds per batch
  ps::diagnosis said;
};

/// Returns the time per batch of an undisturbed loop without slow samples, in the model's units.
double modelled(const loop& how) {
  const double load = how.load / static_cast<double>(how.workers);
  if (how.depth == 1) return std::max(load, how.copy + how.body);
  return std::max({load, how.copy, how.body});
}

judged run_once(const loop& how) {
  const double longest = std::max({how.load, how.copy, how.body});
  const auto batches = static_cast<std::uint64_t>(std::max(60.0, 300 / longest));
  const std::uint64_t warm = std::max<std::uint64_t>(12, how.prefetch / 2);  // fills the ring
  const double bytes = samples_a_batch * 64 * sizeof(float);
  const ps::cpu_device device{
      {.copy_bytes_per_second = bytes / std::chrono::duration<double>{of(how.copy)}.count()}};
  ps::loader loader{samples{how, batches + warm},
                    ps::sequential{},
                    device,
                    {.batch_size = samples_a_batch,
                     .workers = how.workers,
                     .prefetch = how.prefetch,
                     .tuning = {.chunk = 1}}};
  ps::transfer feed{loader, {.depth = how.depth}};
  steady_wait waits;
  ps::transfer_stats before;
  clock_type::time_point began;
  std::uint64_t count = 0;
  for (auto& batch : feed.epoch(0)) {
    if (++count == warm) {
      before = feed.stats();
      began = clock_type::now();
    }
    benchmark::DoNotOptimize(batch.size());
    waits(of(how.body));
  }
  const std::chrono::duration<double> took = clock_type::now() - began;
  return {took.count() / static_cast<double>(batches), ps::diagnose(before, feed.stats(), 16)};
}

/// Runs the loop. If the machine stops a thread for long, `diagnose` judges a different loop than
/// the model, so the run is repeated a few times.
judged run(const loop& how) {
  const double max = (1 + 1.0 / 12) * std::chrono::duration<double>{of(modelled(how))}.count();
  auto found = run_once(how);
  for (int again = 0; again < 4 && found.time > max && how.slow_every == 0; ++again) {
    const auto next = run_once(how);
    if (next.time < found.time) found = next;
  }
  return found;
}

bool is_reading(ps::bottleneck limit) {
  return limit == ps::bottleneck::storage || limit == ps::bottleneck::workers;
}

/// Returns true if the diagnosis names the slowest part. Parts within a tenth of the slowest time
/// count as equally slow.
bool is_right(const loop& how, ps::bottleneck said) {
  const double load = how.load / static_cast<double>(how.workers);
  const double longest = 0.9 * std::max({load, how.copy, how.body});
  if (said == ps::bottleneck::step) return how.body >= longest;
  if (said == ps::bottleneck::copy) return how.copy >= longest;
  if (said == ps::bottleneck::device) return (std::max)(how.copy, how.body) >= longest;
  if (said == ps::bottleneck::mixed) {
    return (load >= longest) + (how.copy >= longest) + (how.body >= longest) >= 2;
  }
  return is_reading(said) && load >= longest;
}

struct tally {
  int right = 0;
  int all = 0;
  int near = 0;
  int promised = 0;

  void promise(const loop& how, const judged& found, const loop& better) {
    ++promised;
    const double expected = found.time / (1 + found.said.gain);
    const double got = run(better).time;
    const bool is_near = std::abs(got / expected - 1) <= 0.1;
    near += is_near ? 1 : 0;
    if (!is_near) {
      std::printf("# load %.3g copy %.3g body %.3g workers %zu: %s; expected %.3g us, got %.3g\n",
                  how.load, how.copy, how.body, how.workers, found.said.str().c_str(),
                  1e6 * expected, 1e6 * got);
    }
  }
  void judge(const loop& how, const judged& found, bool is_so) {
    ++all;
    right += is_so ? 1 : 0;
    if (!is_so) {
      std::printf("# load %.3g copy %.3g body %.3g workers %zu depth %zu: %s\n", how.load, how.copy,
                  how.body, how.workers, how.depth, found.said.str().c_str());
    }
  }
};

void add_grid(tally& count) {
  for (const double load : {1, 3, 10}) {
    for (const double copy : {1, 3, 10}) {
      for (const double body : {1, 3, 10}) {
        for (const std::size_t workers : {1U, 2U}) {
          const loop how{.load = load, .copy = copy, .body = body, .workers = workers};
          const auto found = run(how);
          count.judge(how, found, is_right(how, found.said.limit));
          if (!is_reading(found.said.limit) || copy > body) continue;
          loop better = how;
          better.workers = found.said.wanted_workers;
          count.promise(how, found, better);
        }
      }
    }
  }
}

void add_others(tally& count) {
  const auto expect = [&](const loop& how, ps::bottleneck limit) {
    auto found = run(how);
    count.judge(how, found, found.said.limit == limit);
    return found;
  };
  const loop shallow{.load = 0.3, .copy = 2, .body = 2, .depth = 1};
  loop deeper = shallow;
  deeper.depth = 3;
  count.promise(shallow, expect(shallow, ps::bottleneck::depth), deeper);

  const loop uneven{.load = 2, .copy = 0.1, .body = 2, .workers = 8, .slow_every = 320, .slow = 60};
  loop ahead = uneven;
  ahead.prefetch = 64;
  count.promise(uneven, expect(uneven, ps::bottleneck::slow_samples), ahead);

  expect({.load = 0.3, .copy = 0.1, .body = 3, .workers = 8}, ps::bottleneck::step);
  expect({.load = 40, .copy = 0.1, .body = 1, .workers = 4}, ps::bottleneck::storage);
  expect({.load = 4, .copy = 0.1, .body = 1, .workers = 1, .burns = true}, ps::bottleneck::workers);
  expect({.load = 2, .copy = 12, .body = 1, .workers = 2}, ps::bottleneck::copy);
}

void count_of(benchmark::State& state, int tally::*what) {
  for (auto _ : state) {
    tally count;
    add_grid(count);
    add_others(count);
    state.SetIterationTime(1);
    state.SetItemsProcessed(count.*what);
    state.counters["right"] = count.right;
    state.counters["all"] = count.all;
    state.counters["near"] = count.near;
    state.counters["promised"] = count.promised;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto add = [](const char* name, int tally::*what) {
    benchmark::RegisterBenchmark(name, count_of, what)->UseManualTime()->Iterations(1);
  };
  add("right", &tally::right);
  add("all", &tally::all);
  add("near", &tally::near);
  add("promised", &tally::promised);

  using enum bench::goal::kind;
  std::vector<char*> words{argv, argv + argc};
  std::string few{"--benchmark_repetitions=3"};  // each repetition takes half a minute
  words.insert(words.begin() + 1, few.data());
  return bench::run(
      static_cast<int>(words.size()), words.data(), "observe_bench",
      {{"right", "all", speed_at_least, 1.0}, {"near", "promised", speed_at_least, 1.0}});
}
