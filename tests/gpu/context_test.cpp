// SPDX-License-Identifier: BSL-1.0
// Tests that work on one device creates no context on another. The test needs a process that has
// not called CUDA yet, so it restarts this program as a child process with the hidden test.
#include <cstddef>
#include <vector>

#include <penstock/cuda.hpp>

#include "gpu/checked_feed.hpp"
#include "gpu/child.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

template <class Function>
Function* driver(const char* name) {
  void* found = nullptr;
#if CUDART_VERSION >= 12050
  REQUIRE(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, nullptr) ==
          cudaSuccess);
#else
  REQUIRE(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, nullptr) == cudaSuccess);
#endif
  REQUIRE(found != nullptr);
  return reinterpret_cast<Function*>(found);
}

bool has_context(int device) {
  unsigned flags = 0;
  int active = -1;
  REQUIRE(driver<int(int, unsigned*, int*)>("cuDevicePrimaryCtxGetState")(device, &flags,
                                                                          &active) == 0);
  return active != 0;
}

bool thread_has_context() {
  int device = -1;
  return driver<int(int*)>("cuCtxGetDevice")(&device) == 0;
}

}  // namespace

TEST_CASE("child: work on the last device", "[.child]") {
  gpu::require_a_child();
  const int last = ps::cuda_device::count() - 1;
  CHECK_FALSE(thread_has_context());
  CHECK_FALSE(has_context(last));
  {
    const ps::cuda_device device{last};
    const auto stream = device.make_stream();
    CHECK_FALSE(thread_has_context());  // the stream on the other device still exists
    CHECK(has_context(last));
    CHECK(stream.device() == device);

    const std::size_t bytes = 1 << 20;
    auto* const there = device.allocate(bytes);
    auto* const here = static_cast<std::byte*>(device.allocate_pinned(2 * bytes).data);
    for (std::size_t i = 0; i < bytes; ++i) here[i] = static_cast<std::byte>(i * 7 + i / 251);
    device.copy_async(there, here, bytes, stream);
    device.copy_async(here + bytes, there, bytes, stream);
    stream.synchronize();
    CHECK(std::vector<std::byte>(here, here + bytes) ==
          std::vector<std::byte>(here + bytes, here + 2 * bytes));
    device.deallocate(there, bytes);
    device.deallocate_pinned(here, 2 * bytes);

    ps::loader loader{gpu::digits{640}, ps::sequential{}, device, {.batch_size = 64, .workers = 2}};
    ps::transfer feed{loader, stream};
    for (auto& batch : feed.epochs(0, 2)) static_cast<void>(batch);
    stream.synchronize();
  }
  for (int device = 0; device < last; ++device) {
    CAPTURE(device);
    CHECK_FALSE(has_context(device));
  }
  int current = -1;
  CHECK(cudaGetDevice(&current) == cudaSuccess);
  CHECK(current == 0);
}

TEST_CASE("work on the last device makes no context on the others", "[gpu]") {
  gpu::require_child_passes("child: work on the last device");
}
