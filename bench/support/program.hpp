// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace bench {

/// How one benchmark is to stand to another one of the same program, both by their full names:
/// function, arguments, threads, as in "push_pop/producers:2/capacity:64".
struct goal {
  enum class kind {
    speed_at_least,  ///< items a second of `name` / items a second of `floor`
    time_at_most,    ///< wall time an iteration of `name` / that of `floor`
  };

  std::string name;
  std::string floor;
  kind what = kind::speed_at_least;
  double bound = 0;  ///< 0: only the ratio is of interest
};

/// What every benchmark program's main() is: runs the registered benchmarks several times in random
/// order and prints the medians, then for each goal the ratio of the medians of its two sides.
///
/// Refuses a build without NDEBUG. Says what machine this is and how busy it was, and marks a ratio
/// whose floor moved by more than 20 % within the run: then the machine was too noisy to judge.
/// Takes Google Benchmark's flags, and `--json FILE`: see bench/README.md for what is in it.
/// Returns the exit status; a goal that was missed is no failure.
int run(int argc, char** argv, const std::string& program, const std::vector<goal>& goals);

/// The full name that a goal knows a benchmark by, for axes that a loop makes:
/// named("push_pop", {{"producers", 2}, {"capacity", 64}}).
struct axis {
  std::string name;
  std::int64_t value;
};
[[nodiscard]] std::string named(std::string function, std::initializer_list<axis> axes);

}  // namespace bench
