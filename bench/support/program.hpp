// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace bench {

/// The required relation between two benchmarks of the same program. Both are identified by their
/// full names (function, arguments, threads), such as "push_pop/producers:2/capacity:64".
struct goal {
  enum class kind {
    speed_at_least,  ///< items per second of `name` divided by those of `floor`
    time_at_most,    ///< wall time per iteration of `name` divided by that of `floor`
  };

  std::string name;
  std::string floor;
  kind what = kind::speed_at_least;
  double bound = 0;  ///< 0 means that only the ratio is of interest
};

/// The main function of every benchmark program. Runs the registered benchmarks several times in
/// random order and prints the medians. Then prints, for each goal, the ratio between the medians
/// of its two benchmarks.
///
/// The program does not run without NDEBUG. Google Benchmark prints the number of cores, the
/// caches and the load. A ratio is noisy if its floor varied by more than 20 % within the run. The
/// program accepts Google Benchmark's flags and `--json FILE`; bench/README.md describes the file. `repetitions` is the
/// default of `--benchmark_repetitions`. Returns the exit status; a missed goal is not a failure.
int run(int argc, char** argv, const std::string& program, const std::vector<goal>& goals,
        int repetitions = 9);

/// Registers a benchmark that takes its own time measurements, with a single iteration per
/// repetition.
template <class Run, class... Arguments>
benchmark::internal::Benchmark* add_once(const std::string& name, Run run, Arguments... arguments) {
  return benchmark::RegisterBenchmark(name.c_str(), run, arguments...)
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMicrosecond);
}

/// Returns the full name of a benchmark with the given axes, for use in a goal: named("push_pop",
/// {{"producers", 2}, {"capacity", 64}}).
struct axis {
  std::string name;
  std::int64_t value;
};
[[nodiscard]] std::string named(std::string function, std::initializer_list<axis> axes);

}  // namespace bench
