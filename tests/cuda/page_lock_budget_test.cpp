// SPDX-License-Identifier: BSL-1.0
// Tests loaders on a system that page-locks only a limited amount of memory, as WSL does.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock_ext/streamed/streamed.hpp>

#include "cuda/clean_fake.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "memory/machine.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

/// The bytes of a slot with 10 samples: 32 bytes of values and 8 bytes of labels each, aligned.
constexpr std::size_t slot_bytes = 512 + 256;

/// Returns options for 8 slots of 10 samples, or for fewer slots after a rejection.
ps::loader_options fewer(std::size_t workers = 1) {
  return {.batch_size = 10,
          .workers = workers,
          .prefetch = 7,
          .memory = {.on_budget_exceeded = ps::budget_action::fewer_slots}};
}

/// Returns the labels and the first values of all samples, in the order of the batches.
template <class Loader>
std::vector<double> content_of(Loader& loader) {
  std::vector<double> all;
  for (const auto& batch : loader.epoch(0)) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      all.push_back(static_cast<double>(ps::get<"label">(batch).flat()[i]));
      all.push_back(static_cast<double>(ps::get<"values">(batch).flat()[8 * i]));
    }
  }
  return all;
}

auto loader_with(const ps::loader_options& options) {
  return ps::loader{numbered{100}, ps::shuffled{.seed = 3}, ps::cuda_device{0}, options};
}

}  // namespace

TEST_CASE("a rejection of the system names the locked bytes and the limits, and leaves no error",
          "[cuda][memory][fault:memory-3]") {
  const clean_fake runtime{{.pinned_memory = 10'000}};
  const ps::cuda_device device;
  CHECK(ps::cuda_device::page_locked_bytes() == 0);
  const ps::pinned_block fits = device.allocate_pinned(8'000);
  const auto error =
      test::error_of<ps::pinning_failed>([&] { static_cast<void>(device.allocate_pinned(3'000)); });
  CHECK(error.bytes() == 3'000);
  CHECK(error.locked() == 8'000);
  for (const char* part : {"3000 bytes", "cudaErrorMemoryAllocation",
                           "the library has page-locked 8000 bytes", "the process may lock",
                           "ulimit -l", "prefetch", "on_budget_exceeded", "pageable_fallback"}) {
    CHECK(test::has(error.what(), part));
  }
  // A program that checks its next kernel launch does not find the error of the library.
  CHECK(cudaGetLastError() == cudaSuccess);
  device.deallocate_pinned(device.allocate_pinned(2'000).data, 2'000);
  device.deallocate_pinned(fits.data, 8'000);
  CHECK(ps::cuda_device::page_locked_bytes() == 0);
}

TEST_CASE("all page-locked memory of the library is counted until it is freed", "[cuda][memory]") {
  const clean_fake runtime;
  const ps::cuda_device device;
  constexpr std::size_t large = ps::detail::small_pinned_bytes + 1;  // is registered
  std::vector<std::byte> owner(5'000);
  {
    const ps::registered_memory locked{device, std::span{owner}};
    const ps::pinned_block one = device.allocate_pinned(1'000);
    const ps::pinned_block two = device.allocate_pinned(large);
    fake_cuda::fail_call_of("cudaHostRegister", 0, cudaErrorNotSupported);
    const ps::pinned_block three = device.allocate_pinned(large);
    CHECK(ps::cuda_device::page_locked_bytes() == 6'000 + 2 * large);
    fake_cuda::fail_call_of("cudaHostRegister", 0, cudaErrorMemoryAllocation);
    CHECK_THROWS_AS(device.register_memory(owner.data(), 100, false), ps::pinning_failed);
    CHECK(ps::cuda_device::page_locked_bytes() == 6'000 + 2 * large);
    device.deallocate_pinned(one.data, 1'000);
    device.deallocate_pinned(two.data, large);
    device.deallocate_pinned(three.data, large);
    device.deallocate_pinned(nullptr, large);
    CHECK(ps::cuda_device::page_locked_bytes() == 5'000);
  }
  CHECK(ps::cuda_device::page_locked_bytes() == 0);
}

TEST_CASE("the limits name WSL only if the kernel is that of WSL", "[cuda][memory]") {
  const auto limits_of = [](const std::string& version) {
    test::machine it;
    it.file("/proc/version", version);
    return ps::detail::lock_limits(it.root());
  };
  CHECK(test::has(limits_of("Linux version 5.15.90.1-microsoft-standard-WSL2 (gcc)"), "Windows"));
  CHECK(test::has(limits_of("Linux version 4.4.0-19041-Microsoft"), "Windows"));
  CHECK(limits_of("Linux version 6.1.0-13-amd64").find("Windows") == std::string::npos);
  CHECK(limits_of("").find("bytes") != std::string::npos);
}

TEST_CASE("a loader with fewer_slots continues with the slots that the system locks",
          "[cuda][memory][fault:memory-3]") {
  std::optional<std::vector<double>> expected;
  for (const std::size_t workers : {0U, 1U, 3U}) {
    for (const std::size_t fitting : {1U, 2U, 3U, 4U, 7U, 8U}) {
      CAPTURE(workers, fitting);
      const clean_fake runtime{{.pinned_memory = fitting * slot_bytes + 100}};
      const auto budget = ps::memory_budget::bytes(100 * slot_bytes);
      {
        ps::loader_options options = fewer(workers);
        options.memory.budget = budget;
        auto loader = loader_with(options);
        const ps::loader_footprint taken = loader.footprint();
        const std::size_t halved = fitting == 8 ? 8 : fitting >= 4 ? 4 : fitting >= 2 ? 2 : 1;
        CHECK(taken.slot_bytes == slot_bytes);
        CHECK(taken.slot_count == halved);
        CHECK(taken.slots_requested == 8);
        CHECK(taken.bytes == halved * slot_bytes);
        CHECK(taken.pinned);
        CHECK(taken.failed_bytes == (halved == 8 ? 0 : 2 * halved * slot_bytes));
        CHECK(budget.used() == halved * slot_bytes);
        CHECK(cudaGetLastError() == cudaSuccess);
        const std::vector<double> content = content_of(loader);
        if (!expected) expected = content;
        CHECK(content == *expected);
        CHECK(content.size() == 200);
      }
      CHECK(budget.used() == 0);
    }
  }
}

TEST_CASE("a feed over a loader with fewer slots delivers all batches",
          "[cuda][memory][fault:memory-3]") {
  const clean_fake runtime{{.pinned_memory = 2 * slot_bytes}};
  const auto stream = ps::cuda_device{0}.make_stream();
  auto loader = loader_with(fewer(2));
  ps::transfer feed{loader, stream};
  std::uint64_t samples = 0;
  for (auto& batch : feed.epoch(0)) samples += batch.size();
  CHECK(samples == 100);
  CHECK(loader.footprint().slot_count == 2);
}

TEST_CASE("a loader throws if the system does not lock the smallest number of slots",
          "[cuda][memory][fault:memory-3]") {
  const auto budget = ps::memory_budget::bytes(100 * slot_bytes);
  ps::loader_options options = fewer();
  options.memory.budget = budget;
  SECTION("a single slot does not fit") {
    const clean_fake runtime{{.pinned_memory = slot_bytes - 1}};
    const auto error =
        test::error_of<ps::pinning_failed>([&] { static_cast<void>(loader_with(options)); });
    CHECK(error.bytes() == slot_bytes);
    CHECK(error.locked() == 0);
    CHECK(fake_cuda::calls_of("cudaHostAlloc") == 4);
  }
  SECTION("fewer slots are not allowed") {
    const clean_fake runtime{{.pinned_memory = 7 * slot_bytes}};
    options.memory.on_budget_exceeded = ps::budget_action::reject;
    const auto error =
        test::error_of<ps::pinning_failed>([&] { static_cast<void>(loader_with(options)); });
    CHECK(error.bytes() == 8 * slot_bytes);
    CHECK(fake_cuda::calls_of("cudaHostAlloc") == 1);
  }
  SECTION("a tuned prefetch needs two slots") {
    const clean_fake runtime{{.pinned_memory = 2 * slot_bytes - 1}};
    options.prefetch = ps::automatic;
    const auto error =
        test::error_of<ps::pinning_failed>([&] { static_cast<void>(loader_with(options)); });
    CHECK(error.bytes() == 2 * slot_bytes);
  }
  CHECK(budget.used() == 0);
}

TEST_CASE("a tuned prefetch continues with fewer slots by itself", "[cuda][memory]") {
  const clean_fake runtime{{.pinned_memory = 2 * slot_bytes}};
  auto loader = loader_with({.batch_size = 10, .workers = 2, .prefetch = ps::automatic});
  CHECK(loader.footprint().slot_count == 2);
  CHECK(content_of(loader).size() == 200);
}

TEST_CASE("fewer pinned slots come before ordinary memory, which has all slots",
          "[cuda][memory][fault:memory-3]") {
  const bool fits = GENERATE(true, false);
  const clean_fake runtime{{.pinned_memory = fits ? slot_bytes : slot_bytes - 1}};
  ps::loader_options options = fewer();
  options.memory.pageable_fallback = true;
  auto loader = loader_with(options);
  const ps::loader_footprint taken = loader.footprint();
  CHECK(taken.pinned == fits);
  CHECK(taken.slot_count == (fits ? 1 : 8));
  CHECK(taken.failed_bytes == (fits ? 2 : 1) * slot_bytes);
  CHECK(content_of(loader).size() == 200);
}

TEST_CASE("large slots that are registered piece by piece are halved too, and leave nothing behind",
          "[cuda][memory][fault:memory-3]") {
  const std::size_t bytes = std::size_t{1} << 20;
  // A rejected registration is followed by a rejected cudaHostAlloc.
  const clean_fake runtime{{.pinned_memory = 5 * bytes}};
  ps::loader loader{numbered{100'000},
                    ps::sequential{},
                    ps::cuda_device{0},
                    {.batch_size = bytes / 40,
                     .prefetch = 7,
                     .memory = {.on_budget_exceeded = ps::budget_action::fewer_slots}}};
  CHECK(loader.footprint().slot_count == 4);
  CHECK(fake_cuda::live().registrations + fake_cuda::live().pinned_blocks == 1);
  CHECK(to_text(loader.footprint()).find(" (the system could not lock 8") != std::string::npos);
}

TEST_CASE("leases_exhausted names the limit on locked memory if it took the slots",
          "[cuda][memory]") {
  const clean_fake runtime{{.pinned_memory = slot_bytes}};
  auto loader = loader_with(fewer());
  auto range = loader.epoch(0);
  auto it = range.begin();
  const auto kept = std::move(*it);
  const auto error = test::error_of<ps::leases_exhausted>([&] { ++it; });
  CHECK(test::has(error.what(),
                  "raise the limits on locked memory (ulimit -l), which did not suffice for the 8 "
                  "slots requested"));
}

TEST_CASE("a stream of records continues with fewer slots", "[cuda][memory]") {
  using number = ps::record<ps::field<"x", std::uint64_t>>;
  const clean_fake runtime{{.pinned_memory = 3 * 256}};
  std::uint64_t next = 0;
  ps::streamed<number, ps::cuda_device> numbers{
      ps::cuda_device{0},
      [&](const ps::batch_view<number>& out) {
        std::size_t n = 0;
        while (n != out.size() && next != 100) ps::get<"x">(out[n++]) = next++;
        return n;
      },
      {.batch_size = 10,
       .prefetch = 7,
       .memory = {.on_budget_exceeded = ps::budget_action::fewer_slots}}};
  CHECK(numbers.footprint().slot_count == 2);
  CHECK(numbers.footprint().slots_requested == 8);
  CHECK(numbers.footprint().failed_bytes == 4 * 256);
  std::uint64_t samples = 0;
  for (const auto& batch : numbers.epoch(0)) samples += batch.size();
  CHECK(samples == 100);
}
