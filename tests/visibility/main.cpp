// SPDX-License-Identifier: BSL-1.0
// One library creates loaders and batches, another library uses them, and the program checks them.
// The program catches library exceptions by type. Exits with 0 on success.
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

/// Runs one epoch. The second library and the program read each batch.
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
  // Other threads run first. The libraries and the program must agree on the ID of each thread.
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
