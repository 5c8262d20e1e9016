// SPDX-License-Identifier: BSL-1.0
// The main function of the tests that need a GPU: without one they are skipped, and say why.
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <penstock/device/cuda_device.hpp>

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
  return Catch::Session().run(argc, argv);
}
