// SPDX-License-Identifier: BSL-1.0
// The main function of the tests that need a GPU: without one they are skipped, and say why.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <penstock/cuda/cuda_device.hpp>

#include "support/run_catch.hpp"

int main(int argc, char** argv) {
  // A held kernel must not hold streams that happen to share its queue in the hardware.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const bool lists = std::any_of(argv + 1, argv + argc,
                                 [](std::string_view word) { return word.starts_with("--list"); });
  if (!lists) {
    try {
      static_cast<void>(penstock::cuda_device::count());
    } catch (const penstock::cuda_error& error) {
      std::printf("skipped: %s\n", error.what());
      return 77;  // what CTest is told to take for a skipped test
    }
  }
  return test::run_catch(argc, argv);
}
