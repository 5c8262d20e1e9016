// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/registered_memory.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/cuda/cuda_device.hpp>

#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using registered = ps::registered_memory<ps::cuda_device>;
static_assert(ps::registering_device<ps::cuda_device>);

struct clean_start {
  explicit clean_start(const fake_cuda::config& config = {}) { fake_cuda::reset(config); }
  clean_start(clean_start&&) = delete;
  ~clean_start() {
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(fake_cuda::live().registrations == 0);
    CHECK(fake_cuda::findings().empty());
  }
};

}  // namespace

TEST_CASE("the program's own memory is page-locked while its registration lives", "[cuda]") {
  const clean_start runtime;
  const ps::cuda_device device;
  std::vector<std::byte> owner(10'000);
  {
    registered locked{device, std::span{owner}};
    CHECK(fake_cuda::live().registrations == 1);
    cudaPointerAttributes attributes{};
    CHECK(cudaPointerGetAttributes(&attributes, owner.data() + 9'999) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeHost);
    const registered moved{std::move(locked)};
    CHECK(fake_cuda::live().registrations == 1);
  }
  CHECK(fake_cuda::calls_of("cudaHostUnregister") == 1);
}

TEST_CASE("memory that is registered already, even in part, is a typed error",
          "[cuda][fault:devices-10]") {
  const clean_start runtime;
  const ps::cuda_device device;
  std::vector<std::byte> owner(10'000);
  {
    const registered locked{device, std::span{owner}.first(6'000)};
    try {
      const registered again{device, std::span{owner}.subspan(5'000)};
      FAIL_CHECK("was registered");
    } catch (const ps::memory_already_registered& error) {
      CHECK(error.code() == cudaErrorHostMemoryAlreadyRegistered);
      CHECK(std::string{error.what()}.find("register it once") != std::string::npos);
    }
    CHECK(fake_cuda::live().registrations == 1);
  }
  const registered now{device, std::span{owner}};
  CHECK(now.bytes() == 10'000);
}

TEST_CASE("const memory is registered read-only where the device can, else refused",
          "[cuda][fault:devices-10]") {
  const bool can = GENERATE(true, false);
  CAPTURE(can);
  const clean_start runtime{{.read_only_registration = can}};
  const ps::cuda_device device;
  const std::vector<std::byte> owner(10'000);
  if (can) {
    const registered locked{device, std::span{owner}};
    CHECK(locked.read_only());
    CHECK(fake_cuda::live().registrations == 1);
  } else {
    CHECK_THROWS_AS((registered{device, std::span{owner}}), ps::registration_unsupported);
    CHECK(fake_cuda::calls_of("cudaHostRegister") == 0);
  }
}

TEST_CASE("a refusal is out_of_memory and names what to raise, other errors keep their type",
          "[cuda]") {
  const clean_start runtime;
  const ps::cuda_device device;
  std::vector<std::byte> owner(10'000);
  const auto lock = [&](cudaError_t code) {
    fake_cuda::fail_call_of("cudaHostRegister", 0, code);
    const registered locked{device, std::span{owner}};
  };
  try {
    lock(cudaErrorMemoryAllocation);
    FAIL_CHECK("was registered");
  } catch (const ps::out_of_memory& error) {
    CHECK(error.bytes() == 10'000);
    CHECK(std::string{error.what()}.find("ulimit -l") != std::string::npos);
  }
  CHECK_THROWS_AS(lock(cudaErrorNotSupported), ps::registration_unsupported);
  CHECK_THROWS_AS(lock(cudaErrorIllegalAddress), ps::cuda_context_lost);
  CHECK_THROWS_AS(lock(cudaErrorInvalidValue), ps::cuda_error);
  CHECK(fake_cuda::calls_of("cudaHostUnregister") == 0);
}

TEST_CASE("registering no bytes makes no call", "[cuda]") {
  const clean_start runtime;
  const ps::cuda_device device;
  const auto before = fake_cuda::calls();
  { const registered nothing{device, std::span<std::byte>{}}; }
  CHECK(fake_cuda::calls() == before);
}
