// SPDX-License-Identifier: BSL-1.0
// The experiment on a GPU, and the only file that nvcc compiles.
#include "cuda_experiment.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include <penstock/cuda.hpp>

#include "cuda_backend.cuh"
#include "run_on.hpp"

namespace mlp {

namespace {

std::string version_of(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

device_info describe(const penstock::cuda_device& device, const options& chosen) {
  int driver = 0;
  int runtime = 0;
  cudaDeviceProp properties{};
  cuda::check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cuda::check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  cuda::check(cudaGetDeviceProperties(&properties, device.ordinal()), "cudaGetDeviceProperties");
  return {.kind = "cuda",
          .name = properties.name,
          .driver = version_of(driver),
          .runtime = version_of(runtime),
          .capability = std::to_string(properties.major) + "." + std::to_string(properties.minor),
          .multiprocessors = static_cast<std::size_t>(properties.multiProcessorCount),
          .kernels = std::string{name_of(chosen.kernels)},
          .graph = chosen.graph,
          .why = chosen.device == device_choice::cuda ? "--device cuda" : "there is a GPU"};
}

}  // namespace

void require_cuda() { const penstock::cuda_device first{0}; }

std::optional<std::string> why_no_cuda() {
  try {
    require_cuda();
    return std::nullopt;
  } catch (const penstock::cuda_error& error) {
    return error.what();
  }
}

results run_cuda_experiment(const options& chosen, const digit_data& data, const row_done& done) {
  results found;
  try {
    const penstock::cuda_device device{0};
    device.make_current();
    found.device = describe(device, chosen);
    found.build = "nvcc " + version_of(CUDART_VERSION) + ", " MLP_BUILD_FLAGS;
    const cuda_backend backend{device, chosen.kernels, chosen.graph};
    run_on(device, backend, chosen, data, found, done);
  } catch (const penstock::cuda_context_lost& error) {
    throw context_lost("start", error.what());
  }
  return found;
}

}  // namespace mlp
