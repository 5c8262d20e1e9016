// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/registered_memory.hpp>

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/cuda/cuda_device.hpp>

#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

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

TEST_CASE("existing memory is page-locked for the lifetime of its registration", "[cuda]") {
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

TEST_CASE("memory that is already registered, even partly, is rejected with a typed error",
          "[cuda][fault:devices-10]") {
  const clean_start runtime;
  const ps::cuda_device device;
  std::vector<std::byte> owner(10'000);
  {
    const registered locked{device, std::span{owner}.first(6'000)};
    const auto error = test::error_of<ps::memory_already_registered>(
        [&] { const registered again{device, std::span{owner}.subspan(5'000)}; });
    CHECK(error.code() == cudaErrorHostMemoryAlreadyRegistered);
    CHECK(test::has(error.what(), "register it only once"));
    CHECK(fake_cuda::live().registrations == 1);
  }
  const registered now{device, std::span{owner}};
  CHECK(now.bytes() == 10'000);
}

TEST_CASE("const memory is registered read-only if the device supports it and rejected otherwise",
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

TEST_CASE(
    "failed page-locking throws out_of_memory with the limit, and other errors keep their type",
    "[cuda]") {
  const clean_start runtime;
  const ps::cuda_device device;
  std::vector<std::byte> owner(10'000);
  const auto lock = [&](cudaError_t code) {
    fake_cuda::fail_call_of("cudaHostRegister", 0, code);
    const registered locked{device, std::span{owner}};
  };
  const auto error = test::error_of<ps::pinning_failed>([&] { lock(cudaErrorMemoryAllocation); });
  CHECK(error.bytes() == 10'000);
  CHECK(test::has(error.what(), "ulimit -l"));
  CHECK_THROWS_AS(lock(cudaErrorNotSupported), ps::registration_unsupported);
  CHECK_THROWS_AS(lock(cudaErrorIllegalAddress), ps::cuda_context_lost);
  CHECK_THROWS_AS(lock(cudaErrorInvalidValue), ps::cuda_error);
  CHECK(fake_cuda::calls_of("cudaHostUnregister") == 0);
}

TEST_CASE("the error for more than 256 GiB in one call advises registration in pieces", "[cuda]") {
  const clean_start runtime;
  constexpr std::size_t limit = std::size_t{256} << 30;
  std::byte first{};  // The call fails before it reads the memory.
  const auto reported = [&](std::size_t bytes) {
    fake_cuda::fail_call_of("cudaHostRegister", 0, cudaErrorMemoryAllocation);
    try {
      ps::detail::cuda_register(0, &first, bytes, false);
    } catch (const ps::out_of_memory& error) {
      return std::string{error.what()};
    }
    return std::string{"was registered"};
  };
  CHECK(reported(limit + 1).find("the unit of registered_memory") != std::string::npos);
  CHECK(reported(limit).find("ulimit -l") != std::string::npos);
}

TEST_CASE("the pieces of a registration cover it once and do not split pages or units", "[cuda]") {
  std::size_t plans = 0;
  std::size_t cut = 0;
  for (const std::size_t page : {1U, 4U, 8U}) {
    for (std::size_t address = 0; address < page; ++address) {
      for (std::size_t bytes = 1; bytes <= 60; ++bytes) {
        for (std::size_t unit = 0; unit <= 20; ++unit) {
          for (const std::size_t largest : {1U, 5U, 16U, 40U}) {
            const auto plan = ps::detail::plan_registration(address, bytes, unit, page, largest);
            std::size_t covered = 0;
            bool is_wrong = false;
            for (std::size_t which = 0; which < plan.pieces(); ++which) {
              is_wrong = is_wrong || plan.offset(which) != covered || plan.bytes(which) == 0;
              if (which != 0) {
                is_wrong =
                    is_wrong || unit == 0 || covered % unit != 0 || (address + covered) % page != 0;
              }
              // No piece is longer than requested, unless unit boundaries require it.
              const std::size_t step = unit == 0 ? bytes : std::lcm(unit, page);
              const bool has_borders = plan.pieces() > 1;
              is_wrong = is_wrong || (has_borders && plan.bytes(which) > std::max(largest, step));
              covered += plan.bytes(which);
            }
            ++plans;
            if (plan.pieces() > 1) ++cut;
            if (is_wrong || covered != bytes) {
              CAPTURE(page, address, bytes, unit, largest, covered);
              FAIL_CHECK("a wrong plan");
            }
          }
        }
      }
    }
  }
  CHECK(plans == (1 + 4 + 8) * 60 * 21 * 4);
  CHECK(cut > plans / 5);
}

namespace {

/// A range of reserved address space without physical memory.
struct much_memory {
  std::span<std::byte> bytes;

  explicit much_memory(std::size_t count)
      : bytes(static_cast<std::byte*>(::mmap(nullptr, count, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
              count) {
    REQUIRE(bytes.data() != MAP_FAILED);
  }
  much_memory(much_memory&&) = delete;
  ~much_memory() { ::munmap(bytes.data(), bytes.size()); }
};

constexpr std::size_t gib = std::size_t{1} << 30;

}  // namespace

TEST_CASE(
    "a large range with a unit is registered in pieces of 1 GiB, and every piece is unregistered",
    "[cuda]") {
  const clean_start runtime;
  const ps::cuda_device device;
  const much_memory mine{2 * gib + gib / 2};
  {
    registered locked{device, mine.bytes, 3072};
    CHECK(fake_cuda::live().registrations == 3);
    const registered moved{std::move(locked)};
    const auto stream = device.make_stream();
    void* const to = device.allocate(3072);
    const auto copy = [&](std::size_t at) {
      device.copy_to_device(to, mine.bytes.data() + at, 3072, stream);
    };
    const std::size_t border = gib / 12288 * 12288;  // a multiple of pages and units
    copy(border - 3072);
    copy(border);
    CHECK_THROWS_AS(copy(border - 1024), ps::cuda_error);
    device.synchronize(stream);
    device.deallocate(to, 3072);
  }
  CHECK(fake_cuda::calls_of("cudaHostUnregister") == 3);
  for (std::uint64_t which = 0; which < 3; ++which) {
    const auto ended = fake_cuda::calls_of("cudaHostUnregister");
    fake_cuda::fail_call_of("cudaHostRegister", which, cudaErrorMemoryAllocation);
    CHECK_THROWS_AS((registered{device, mine.bytes, 3072}), ps::out_of_memory);
    CHECK(fake_cuda::live().registrations == 0);
    CHECK(fake_cuda::calls_of("cudaHostUnregister") - ended == which);
  }
}

TEST_CASE("a machine that cannot register 2 GB in one call is detected, and a unit splits the call",
          "[cuda][fault:devices-10]") {
  const clean_start runtime;
  const ps::cuda_device device;
  const much_memory mine{2 * gib};
  fake_cuda::fail_call_of("cudaHostRegister", 0, cudaErrorInvalidValue);
  const auto error = test::error_of<ps::registration_unsupported>(
      [&] { const registered locked{device, mine.bytes}; });
  CHECK(test::has(error.what(), "so that the memory is locked in pieces"));
  const registered locked{device, mine.bytes, 4096};
  CHECK(fake_cuda::live().registrations == 2);
}

TEST_CASE("registering an empty range does not call CUDA", "[cuda]") {
  const clean_start runtime;
  const ps::cuda_device device;
  const auto before = fake_cuda::calls();
  { const registered nothing{device, std::span<std::byte>{}}; }
  CHECK(fake_cuda::calls() == before);
}
