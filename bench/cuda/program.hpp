// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "rows.hpp"

#if defined(PENSTOCK_BENCH_ON_DOUBLE)
#include "failing_call.hpp"
#endif

namespace bench {

/// What every main() here is: measures, and keeps what was measured in the file of `--json FILE`
/// after every row, with "complete" false until all rows are there.
///
/// `measure` gets the rows to fill, of the groups that were given by `--group` or of all, and
/// whether `--quick` was given: few repetitions of the small sizes, to see whether it works.
/// Returns the exit status: 1 after an error outside of all groups, 2 for other arguments and where
/// there is no group of a name that was given, 3 where the GPU's context was lost. `name` is how
/// the program calls itself where it says what is wrong.
template <class Measure>
int run(int argc, char** argv, const char* name, const Measure& measure) {
  const char* json = nullptr;
  bool quick = false;
  std::vector<std::string> groups;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else if (std::strcmp(argv[i], "--group") == 0 && i + 1 < argc) {
      groups.emplace_back(argv[++i]);
    } else if (std::strcmp(argv[i], "--quick") == 0) {
      quick = true;
    } else {
      std::fprintf(stderr, "usage: %s [--json FILE] [--quick] [--group NAME]...\n", argv[0]);
      return 2;
    }
  }
  try {
#if defined(PENSTOCK_BENCH_ON_DOUBLE)
    arm_failure();
#endif
    rows out{json, std::move(groups)};
    measure(out, quick);
    if (const auto unknown = out.unknown_group(); !unknown.empty()) {
      std::fprintf(stderr, "%s: there is no group %s\n", name, unknown.c_str());
      return 2;
    }
    out.complete();
#if defined(PENSTOCK_BENCH_ON_DOUBLE)
    list_calls();
#endif
    if (!out.is_lost()) return 0;
    std::fprintf(stderr, "%s: the GPU's context was lost\n", name);
    return 3;
  } catch (const rows::write_error& error) {
    std::fprintf(stderr, "%s: %s can't be written\n", name, error.path.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
  }
  return 1;
}

}  // namespace bench
