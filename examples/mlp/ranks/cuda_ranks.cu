// SPDX-License-Identifier: BSL-1.0
// The training of one rank on its GPU, with sums by NCCL.
#include <array>
#include <cstddef>
#include <cstring>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>

#include <penstock/cuda.hpp>
#include <penstock/penstock.hpp>

#include "cuda_backend.cuh"
#include "ranks/cuda_ranks.hpp"
#include "ranks/device_place.hpp"
#include "ranks/nccl_collective.hpp"
#include "ranks/train.hpp"

namespace mlp {

namespace {

device_place place_of(const penstock::cuda_device& device) {
  std::array<char, 64> bus{};
  cuda::check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()) - 1, device.ordinal()),
              "cudaDeviceGetPCIBusId");
  std::array<std::byte, 16> id{};
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, device.ordinal()), "cudaGetDeviceProperties");
  static_assert(sizeof properties.uuid == sizeof id);
  std::memcpy(id.data(), &properties.uuid, sizeof id);
  return device_place::of(bus.data(), id);
}

}  // namespace

std::optional<std::string> why_no_cuda_ranks() { return std::nullopt; }

parallel_result train_on_cuda(const digit_source& digits, const penstock::world& w,
                              host_ranks& ranks, const rank_options& chosen) {
  namespace ps = penstock;
  const ps::cuda_device device{w.local_rank};
  device.make_current();
  const auto shared = shared_devices(place_of(device), ranks);
  if (!shared.empty() && w.rank == 0) {
    std::cerr << "warning: " << shared
              << ": NCCL wants a GPU for each rank; start as many ranks on a machine as it has GPUs"
              << std::endl;
  }
  const auto stream = device.make_stream();
  const auto share = chosen.global_batch / static_cast<std::size_t>(w.size);
  const cuda_backend backend{device, share, kernel_choice::thrust, false};
  nccl_collective summing{ranks, device, stream, chosen.patience};
  return train_in_parallel(digits, w, device, backend, stream, summing, chosen);
}

}  // namespace mlp
