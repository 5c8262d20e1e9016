// SPDX-License-Identifier: BSL-1.0
#include <penstock/cuda.hpp>

#include <cstdio>

// Uses the real CUDA runtime. Without a device, the program expects a typed error.
int main() {
  try {
    std::printf("%d CUDA devices\n", penstock::cuda_device::count());
  } catch (const penstock::no_cuda_driver& why) {
    std::printf("%s\n", why.what());
  } catch (const penstock::no_cuda_device& why) {
    std::printf("%s\n", why.what());
  }
}
