// SPDX-License-Identifier: BSL-1.0
#include <penstock/cuda/detail/cuda_call.hpp>

#include <optional>
#include <string>

#include <penstock/cuda.hpp>
#include <penstock/threads/cpu_list.hpp>

#include "cuda/clean_fake.hpp"
#include "cuda/digits_flow.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "memory/machine.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using penstock::detail::nearest_node;
using penstock::detail::node_of_pci_device;

TEST_CASE("a GPU's NUMA node is found through the driver or its PCI address",
          "[cuda][promise:honest-16]") {
  test::machine files;
  files.file("/sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
  const std::string root = files.root() + "/sys";
  {
    const clean_fake knows{{.host_numa_id = 3, .pci_bus_id = "0000:3B:00.0"}};
    CHECK(nearest_node(0, root) == 3);
    CHECK(fake_cuda::calls_of("cudaDeviceGetPCIBusId") == 0);
    CHECK(ps::cuda_device{0}.host_node() == 3);
  }
  {
    const clean_fake does_not{{.host_numa_id = -1, .pci_bus_id = "0000:3B:00.0"}};
    CHECK(nearest_node(0, root) == 1);
    // Simulates a driver that does not have this attribute, and a driver that cannot return its
    // value.
    for (const cudaError_t code : {cudaErrorInvalidValue, cudaErrorNotSupported}) {
      fake_cuda::fail_call_of("cudaDeviceGetAttribute", 0, code);
      CHECK(nearest_node(0, root) == 1);
      fake_cuda::fail_call_of("cudaDeviceGetPCIBusId", 0, code);
      CHECK(nearest_node(0, root) == -1);
      CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
    for (const char* call : {"cudaDeviceGetAttribute", "cudaDeviceGetPCIBusId"}) {
      fake_cuda::fail_call_of(call, 0, cudaErrorIllegalAddress);
      CHECK_THROWS_AS(nearest_node(0, root), ps::cuda_context_lost);
    }
  }
  {
    const clean_fake nowhere{{.pci_bus_id = "0000:AF:00.0"}};
    CHECK(nearest_node(0, root) == -1);
  }
  const clean_fake no_such_bus;
  CHECK(ps::cuda_device{0}.host_node() == std::nullopt);
  CHECK(fake_cuda::contexts(0) == 0);  // the query does not use the device
}

TEST_CASE("the NUMA node of a PCI address is a number or missing", "[cuda]") {
  test::machine files;
  const std::string folder = "/sys/bus/pci/devices/0000:0b:00.0/numa_node";
  const std::string root = files.root() + "/sys";
  for (const auto& [text, node] :
       {std::pair{"0\n", 0}, std::pair{"7", 7}, std::pair{"-1\n", -1}, std::pair{"-2\n", -1},
        std::pair{"", -1}, std::pair{"one\n", -1}, std::pair{"1x\n", -1}, std::pair{" 1\n", -1},
        std::pair{"99999999999\n", -1}}) {
    CAPTURE(text);
    files.file(folder, text);
    CHECK(node_of_pci_device(root, "0000:0B:00.0") == node);
    CHECK(node_of_pci_device(root, "0000:0b:00.0") == node);
  }
  files.file(folder, "0\n");
  CHECK(node_of_pci_device(root, "../devices/0000:0b:00.0") == -1);
}

TEST_CASE("a loader queries the NUMA node of the GPU and reports it", "[cuda]") {
  const clean_fake runtime{{.host_numa_id = 4711}};  // no machine has a node with this number
  const ps::loader loader{
      digits_flow::digits{10}, ps::sequential{}, ps::cuda_device{0}, {.workers = 1}};
  CHECK(loader.footprint().workers ==
        ps::affinity_report{.binding = ps::core_binding::unknown_cores, .node = 4711});
}
