// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <type_traits>

#include "rows.hpp"

namespace bench {

/// What every main() here is: measures, and writes what was measured where `--json FILE` says.
///
/// `measure` gets the rows to fill and, where it takes that, whether `--quick` was given; it returns
/// the facts to write beside the rows, as JSON members. Returns the exit status: 1 after an error,
/// 2 for other arguments. `name` is how the program calls itself where it says what is wrong.
template <class Measure>
int run(int argc, char** argv, const char* name, const Measure& measure) {
  constexpr bool has_quick = std::is_invocable_v<const Measure&, rows&, bool>;
  const char* json = nullptr;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else if (has_quick && std::strcmp(argv[i], "--quick") == 0) {
      quick = true;
    } else {
      std::fprintf(stderr, "usage: %s [--json FILE]%s\n", argv[0], has_quick ? " [--quick]" : "");
      return 2;
    }
  }
  try {
    rows out;
    std::string facts;
    if constexpr (has_quick) {
      facts = measure(out, quick);
    } else {
      facts = measure(out);
    }
    if (json != nullptr && !out.write(json, facts)) {
      std::fprintf(stderr, "%s: %s can't be written\n", name, json);
      return 1;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
}

}  // namespace bench
