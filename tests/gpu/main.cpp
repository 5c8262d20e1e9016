// SPDX-License-Identifier: BSL-1.0
// The main function of the tests that need a GPU. Without a GPU, the program skips them and prints
// the reason.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <penstock/cuda/cuda_device.hpp>

#include "support/run_catch.hpp"

int main(int argc, char** argv) {
  // A blocked kernel must not block streams that share its hardware queue.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const bool lists = std::any_of(argv + 1, argv + argc,
                                 [](std::string_view word) { return word.starts_with("--list"); });
  if (!lists) {
    try {
      static_cast<void>(penstock::cuda_device::count());
    } catch (const penstock::cuda_error& error) {
      std::printf("skipped: %s\n", error.what());
      return 77;  // the exit status by which CTest recognizes a skipped test
    }
  }
  return test::run_catch(argc, argv);
}
