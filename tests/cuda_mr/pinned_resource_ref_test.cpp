// SPDX-License-Identifier: BSL-1.0
// Tests pinned memory through CCCL resource references, with the names of CCCL 3.0 and later
// versions. The header is included first, to test that it needs no other header.
#include <penstock/cuda/pinned_resource_ref.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"
#include "support/ledger_device.hpp"

namespace ps = penstock;

namespace {

namespace mr = ::cuda::mr;

using on_gpu = ps::pinned_resource_ref<ps::cuda_device>;
using on_cpu = ps::pinned_resource_ref<ps::cpu_device>;
using on_other = ps::pinned_resource_ref<ledger_device>;

#if CCCL_VERSION >= 3001000
template <class... Properties>
using any_ref = mr::synchronous_resource_ref<Properties...>;
template <class T, class... Properties>
inline constexpr bool is_memory_with = mr::synchronous_resource_with<T, Properties...>;
static_assert(mr::synchronous_resource<on_gpu> && mr::synchronous_resource<on_cpu>);
static_assert(!mr::resource<on_gpu>, "its memory is not ordered by streams");

template <class Ref>
void* take(Ref& from, std::size_t bytes, std::size_t alignment) {
  return from.allocate_sync(bytes, alignment);
}
template <class Ref>
void release(Ref& to, void* data, std::size_t bytes, std::size_t alignment) {
  to.deallocate_sync(data, bytes, alignment);
}
#else
template <class... Properties>
using any_ref = mr::resource_ref<Properties...>;
template <class T, class... Properties>
inline constexpr bool is_memory_with = mr::resource_with<T, Properties...>;
static_assert(mr::resource<on_gpu> && mr::resource<on_cpu>);
static_assert(!mr::async_resource<on_gpu>, "its memory is not ordered by streams");

template <class Ref>
void* take(Ref& from, std::size_t bytes, std::size_t alignment) {
  return from.allocate(bytes, alignment);
}
template <class Ref>
void release(Ref& to, void* data, std::size_t bytes, std::size_t alignment) {
  to.deallocate(data, bytes, alignment);
}
#endif

using any_host = any_ref<mr::host_accessible>;
using any_both = any_ref<mr::host_accessible, mr::device_accessible>;

static_assert(is_memory_with<on_gpu, mr::host_accessible, mr::device_accessible>);
static_assert(std::is_convertible_v<on_gpu&, any_both> && std::is_convertible_v<on_gpu&, any_host>);
// Memory that kernels cannot access must not have the property `device_accessible`.
static_assert(is_memory_with<on_cpu, mr::host_accessible>);
static_assert(!is_memory_with<on_cpu, mr::device_accessible>);
static_assert(!is_memory_with<on_other, mr::device_accessible>);
static_assert(std::is_convertible_v<on_cpu&, any_host> &&
              !std::is_convertible_v<on_cpu&, any_both>);
static_assert(on_gpu::is_device_accessible && !on_cpu::is_device_accessible);

// Like a reference, the type is copyable and comparable, and requires a resource.
static_assert(std::is_trivially_copyable_v<on_gpu> && !std::is_default_constructible_v<on_gpu>);
static_assert(sizeof(on_gpu) == sizeof(void*));
static_assert(!std::is_convertible_v<ps::pinned_resource<ps::cuda_device>&, on_gpu>);
static_assert(noexcept(std::declval<on_gpu&>().deallocate_sync(nullptr, 0, 1)));
static_assert(noexcept(std::declval<on_gpu&>().deallocate(nullptr, 0, 1)));

constexpr std::size_t large = ps::detail::small_pinned_bytes + 1;  // large enough to be registered

/// Resets the fake CUDA runtime. The destructor checks that everything was freed and that no error
/// was detected.
struct clean_start {
  explicit clean_start(const fake_cuda::config& how = {}) { fake_cuda::reset(how); }
  clean_start(clean_start&&) = delete;
  ~clean_start() { CHECK(fake_cuda::expect_clean()); }
};

}  // namespace

TEST_CASE("pinned memory is allocated and freed through a cuda::mr reference",
          "[cuda_mr][promise:honest-17]") {
  const clean_start runtime;
  ps::pinned_resource<ps::cuda_device> pinned;
  ps::pinned_resource_ref memory{pinned};
#if CCCL_VERSION >= 3001000
  cuda::mr::synchronous_resource_ref<cuda::mr::host_accessible, cuda::mr::device_accessible> any =
      memory;
#else
  cuda::mr::resource_ref<cuda::mr::host_accessible, cuda::mr::device_accessible> any = memory;
#endif
  CHECK(&memory.resource() == &pinned);
  void* const one = take(any, 1000, 64);
  CHECK(pinned.bytes() == 1000);
  CHECK(fake_cuda::live().pinned_blocks == 1);
  cudaPointerAttributes known{};
  CHECK(cudaPointerGetAttributes(&known, one) == cudaSuccess);
  CHECK(known.type == cudaMemoryTypeHost);
  CHECK(known.devicePointer == one);  // guaranteed by the property
  std::memset(one, 1, 1000);
  void* const nothing = take(any, 0, 1);
  CHECK(nothing != nullptr);
  CHECK(pinned.bytes() == 1000);
  any_host narrowed = any;
  void* const two = take(narrowed, 24, 8);
  CHECK(pinned.bytes() == 1024);
  release(any, one, 1000, 64);
  CHECK(pinned.bytes() == 24);
  release(any, two, 24, 8);
  release(narrowed, nothing, 0, 1);
  CHECK(pinned.bytes() == 0);
  CHECK(fake_cuda::live().pinned_blocks == 0);
}

TEST_CASE("both CCCL names refer to one memory resource", "[cuda_mr]") {
  const ledger_device device;
  ps::pinned_resource pinned{device};
  const ps::pinned_resource_ref memory{pinned};
  void* const one = memory.allocate(100, 8);
  void* const two = memory.allocate_sync(200, 8);
  CHECK(pinned.bytes() == 300);
  CHECK(device.pinned_bytes() == 300);
  memory.deallocate_sync(one, 100, 8);
  memory.deallocate(two, 200, 8);
  CHECK(device.pinned_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("memory from a cuda::mr reference has the requested alignment",
          "[cuda_mr][promise:honest-17]") {
  const clean_start runtime;
  ps::pinned_resource<ps::cuda_device> pinned;
  ps::pinned_resource_ref memory{pinned};
  any_both any = memory;
  for (std::size_t alignment = 1; alignment <= std::size_t{1} << 16; alignment *= 2) {
    CAPTURE(alignment);
    void* const data = take(any, 3, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(data) % alignment == 0);
    std::memset(data, 1, 3);
    release(any, data, 3, alignment);
  }
  CHECK_THROWS_AS(take(any, 3, 24), ps::out_of_memory);
  CHECK(pinned.bytes() == 0);
}

TEST_CASE("a reference of cuda::mr throws out_of_memory, and nothing is counted",
          "[cuda_mr][promise:honest-17]") {
  const clean_start runtime{{.pinned_memory = 10'000}};
  ps::pinned_resource<ps::cuda_device> pinned;
  ps::pinned_resource_ref memory{pinned};
  any_both any = memory;
  void* const fits = take(any, 8'000, 8);
  try {
    static_cast<void>(take(any, 3'000, 8));
    FAIL_CHECK("memory was given");
  } catch (const ps::out_of_memory& error) {
    CHECK(error.bytes() == 3'000);
    CHECK(std::string{error.what()}.find("ulimit -l") != std::string::npos);
  }
  CHECK(pinned.bytes() == 8'000);
  release(any, fits, 8'000, 8);
  release(any, take(any, 3'000, 8), 3'000, 8);
  CHECK(pinned.bytes() == 0);
}

TEST_CASE("cuda::mr references are equal if they refer to the same pinned resource",
          "[cuda_mr][promise:honest-17]") {
  const clean_start runtime;
  ps::pinned_resource<ps::cuda_device> pinned;
  ps::pinned_resource<ps::cuda_device> another;
  on_gpu one{pinned};
  on_gpu copy = one;
  on_gpu other{another};
  CHECK(one == copy);
  CHECK(one != other);
  CHECK(any_both{one} == any_both{copy});
  CHECK(any_both{one} != any_both{other});
  void* const data = one.allocate_sync(10, 8);
  copy.deallocate_sync(data, 10, 8);
  CHECK(pinned.bytes() == 0);
  copy = other;
  CHECK(copy == other);
}

TEST_CASE("large pinned memory has one address for the host and for kernels",
          "[cuda_mr][promise:honest-17]") {
  const clean_start runtime;
  ps::pinned_resource<ps::cuda_device> pinned;
  ps::pinned_resource_ref memory{pinned};
  any_both any = memory;
  void* const data = take(any, large, 8);
  CHECK(fake_cuda::live().registrations == 1);
  cudaPointerAttributes known{};
  CHECK(cudaPointerGetAttributes(&known, data) == cudaSuccess);
  CHECK(known.devicePointer == data);
  release(any, data, large, 8);
  CHECK(fake_cuda::live().registrations == 0);
}

TEST_CASE("memory is not registered if kernels access it at a different address",
          "[cuda_mr][promise:honest-17]") {
  const clean_start runtime{{.registered_at_host_address = false}};
  ps::pinned_resource<ps::cuda_device> pinned;
  ps::pinned_resource_ref memory{pinned};
  any_both any = memory;
  void* const data = take(any, large, 8);
  CHECK(fake_cuda::live().registrations == 0);
  cudaPointerAttributes known{};
  CHECK(cudaPointerGetAttributes(&known, data) == cudaSuccess);
  CHECK(known.devicePointer == data);
  release(any, data, large, 8);
  CHECK(pinned.bytes() == 0);
}

TEST_CASE(
    "if CUDA cannot report the device address, the error keeps its type and all memory is "
    "freed",
    "[cuda_mr][promise:honest-17]") {
  const clean_start runtime;
  ps::pinned_resource<ps::cuda_device> pinned;
  const on_gpu memory{pinned};
  // Call 0 queries the NUMA node, so call 1 fails.
  fake_cuda::fail_call_of("cudaDeviceGetAttribute", 1, cudaErrorInvalidDevice);
  try {
    static_cast<void>(memory.allocate_sync(large, 8));
    FAIL_CHECK("memory was given");
  } catch (const ps::cuda_error& error) {
    CHECK(error.code() == cudaErrorInvalidDevice);
    CHECK(std::string{error.call()} == "cudaDeviceGetAttribute");
  }
  CHECK(pinned.bytes() == 0);
}

TEST_CASE(
    "memory for one GPU is allocated while another thread captures, and no other GPU is "
    "used",
    "[cuda_mr][promise:honest-17]") {
  const clean_start runtime{{.devices = 2}};
  cudaStream_t stream = nullptr;
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  std::thread{[] {
    ps::pinned_resource pinned{ps::cuda_device{1}};
    ps::pinned_resource_ref memory{pinned};
    any_both any = memory;
    release(any, take(any, 100, 8), 100, 8);
  }}.join();
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  CHECK(fake_cuda::contexts(0) == 0);
}

TEST_CASE("memory of the CPU device is accepted if only the host accesses it",
          "[cuda_mr][promise:honest-17]") {
  fake_cuda::reset();
  const auto before = fake_cuda::calls();
  ps::pinned_resource<> pinned;
  ps::pinned_resource_ref memory{pinned};
  any_host any = memory;
  void* const data = take(any, 5'000, 128);
  std::memset(data, 1, 5'000);
  CHECK(pinned.bytes() == 5'000);
  release(any, data, 5'000, 128);
  CHECK(pinned.bytes() == 0);
  CHECK(fake_cuda::calls() == before);
}
