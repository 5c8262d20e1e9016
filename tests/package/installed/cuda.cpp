// SPDX-License-Identifier: BSL-1.0
#include <penstock/cuda.hpp>

#include <cstdio>

// The real CUDA runtime. A machine without a device gets a typed error that says so.
int main() {
  try {
    std::printf("%d CUDA devices\n", penstock::cuda_device::count());
  } catch (const penstock::no_cuda_driver& why) {
    std::printf("%s\n", why.what());
  } catch (const penstock::no_cuda_device& why) {
    std::printf("%s\n", why.what());
  }
}
