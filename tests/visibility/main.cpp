// SPDX-License-Identifier: BSL-1.0
// What one library makes, another one uses and the program looks at, and what one throws is caught
// by its type in the program. Ends with 0 when all is right.
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "parts.hpp"

namespace {

int failures = 0;

void check(bool is_right, const char* what) {
  if (is_right) return;
  std::printf("failed: %s\n", what);
  ++failures;
}

/// One epoch, each batch looked at by the second library and by the program.
void loop() {
  auto loader = parts::make(100, 10);
  std::uint64_t sum = 0;
  std::uint64_t seen = 0;
  for (auto& batch : loader.epoch(0)) {
    for (const std::uint64_t x : penstock::get<"x">(batch).flat()) seen += x;
    sum += parts::sum(batch);
  }
  check(sum == 4950 && seen == 4950, "both see every number");
}

}  // namespace

int main() {
  // The libraries meet other threads first: each must be the same thread for all of them.
  std::thread{loop}.join();
  std::thread{[] {
    auto loader = parts::make(10, 10);
    for (auto& batch : loader.epoch(0)) check(parts::sum(batch) == 45, "on another thread");
  }}.join();
  loop();

  try {
    static_cast<void>(parts::make(10, 0));
    check(false, "no batches of no samples");
  } catch (const penstock::option_error& error) {
    check(error.option() == "batch_size", "the option by name");
  }
  try {
    parts::throw_index_error();
  } catch (const penstock::error&) {
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  return EXIT_FAILURE;
}
