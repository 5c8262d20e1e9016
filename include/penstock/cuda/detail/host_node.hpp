// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include <penstock/core/version.hpp>
#include <penstock/cuda/cuda_error.hpp>
#include <penstock/cuda/detail/cuda_call.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The NUMA node of the device on the bus at `id`, out of `root`/bus/pci/devices; -1 where the
/// system does not say, or there is none. CUDA writes the id in capitals, the kernel does not.
/// Reads a file.
[[nodiscard]] inline int node_of_pci_device(const std::string& root, std::string_view id) {
  std::string name{id};
  for (char& letter : name) {
    if (letter >= 'A' && letter <= 'F') letter = static_cast<char>(letter - 'A' + 'a');
  }
  const auto is_of_an_id = [](char letter) {
    return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f') || letter == ':' ||
           letter == '.';
  };
  if (!std::all_of(name.begin(), name.end(), is_of_an_id)) return -1;
  std::ifstream file{root + "/bus/pci/devices/" + name + "/numa_node"};
  std::string line;
  if (!std::getline(file, line)) return -1;
  int node = -1;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), node);
  const bool is_node = error == std::errc{} && end == line.data() + line.size() && node >= 0;
  return is_node ? node : -1;
}

/// The host's NUMA node next to the device `ordinal`; -1 where there is none, or neither the driver
/// nor the system knows. `root` is "/sys" but for tests.
[[nodiscard]] inline int nearest_node(int ordinal, const std::string& root = "/sys") {
  require_nothing_pending("cudaDeviceGetAttribute");
  int node = -1;
  cudaError_t code =
      cuda_try([&] { return cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, ordinal); });
  // A driver older than the question says that the value is invalid.
  if (code != cudaSuccess && code != cudaErrorInvalidValue)
    throw_cuda_error(code, "cudaDeviceGetAttribute");
  if (code == cudaSuccess && node >= 0) return node;
  std::array<char, 32> id{};
  code = cuda_try(
      [&] { return cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()) - 1, ordinal); });
  if (code == cudaErrorInvalidValue) return -1;
  if (code != cudaSuccess) throw_cuda_error(code, "cudaDeviceGetPCIBusId");
  return node_of_pci_device(root, id.data());
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
