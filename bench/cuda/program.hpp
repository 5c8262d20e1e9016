// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "rows.hpp"

#if defined(PENSTOCK_BENCH_ON_FAKE)
#include "failing_call.hpp"
#endif

namespace bench {

/// The main function of every program here. Measures, and writes the results to the file of `--json
/// FILE` after every row, with "complete" false until all rows are present.
///
/// `measure` receives the rows to fill and the value of `--quick`. The rows include only the groups
/// given by `--group`, or all groups. `--quick` means few repetitions of the small sizes, to check
/// that the program works. Returns the exit status: 1 after an error outside all groups; 2 for
/// invalid arguments or an unknown group; 3 if the GPU's context was lost. `name` is the program's
/// name in error messages.
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
#if defined(PENSTOCK_BENCH_ON_FAKE)
    arm_failure();
#endif
    rows out{json, std::move(groups)};
    measure(out, quick);
    if (const auto unknown = out.unknown_group(); !unknown.empty()) {
      std::fprintf(stderr, "%s: there is no group %s\n", name, unknown.c_str());
      return 2;
    }
    out.complete();
#if defined(PENSTOCK_BENCH_ON_FAKE)
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
