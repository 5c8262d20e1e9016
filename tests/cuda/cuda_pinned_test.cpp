// SPDX-License-Identifier: BSL-1.0
#include <penstock/cuda/cuda_pinned.hpp>

#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory_resource>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock/memory/pinned_resource.hpp>

#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

constexpr std::size_t page = 4096;

/// Thresholds so small that even blocks of a few KiB are allocated in the same way as large blocks.
const ps::detail::pinned_sizes tiny{.mapped_above = 2 * page, .chunk = 4 * page, .page = page};

/// Returns true if the page at `data` is mapped.
bool is_mapped(const void* data) {
  unsigned char resident = 0;
  return ::mincore(const_cast<void*>(data), 1, &resident) == 0;
}

/// Returns the number of resident pages in the range.
std::size_t resident_pages(const std::byte* data, std::size_t length) {
  std::vector<unsigned char> resident(length / page);
  REQUIRE(::mincore(const_cast<std::byte*>(data), length, resident.data()) == 0);
  return static_cast<std::size_t>(std::count_if(resident.begin(), resident.end(),
                                                [](unsigned char of) { return (of & 1U) != 0; }));
}

/// Returns the size of the process's mapped address space in bytes.
std::size_t mapped_bytes() {
  std::ifstream file{"/proc/self/statm"};
  std::size_t pages = 0;
  file >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Returns the memory policy of the calling thread, or -1 if the system does not report the policy.
int memory_policy() {
  int mode = -1;
  return ::syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL) == 0 ? mode : -1;
}

/// Resets the fake CUDA runtime. The destructor checks that the test has released everything.
struct clean_runtime {
  explicit clean_runtime(const fake_cuda::config& config = {}) { fake_cuda::reset(config); }
  clean_runtime(clean_runtime&&) = delete;
  ~clean_runtime() {
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(fake_cuda::live().pinned_blocks == 0);
    CHECK(fake_cuda::live().registrations == 0);
    CHECK(fake_cuda::findings().empty());
  }
};

}  // namespace

// ---- the plan -----------------------------------------------------------------------------------

TEST_CASE("the chunks of a plan cover the memory once, and split no page and no unit", "[cuda]") {
  std::size_t plans = 0;
  for (const std::size_t page_bytes : {1U, 4U, 8U}) {
    for (std::size_t bytes = 1; bytes <= 70; ++bytes) {
      for (std::size_t unit = 0; unit <= 24; ++unit) {
        for (std::size_t chunk = 1; chunk <= 40; ++chunk) {
          const auto plan = ps::detail::plan_pinned(
              bytes, unit, {.mapped_above = 0, .chunk = chunk, .page = page_bytes});
          std::size_t covered = 0;
          bool cuts = false;
          std::size_t longest = 0;
          for (std::size_t which = 0; which < plan.pieces(); ++which) {
            cuts = cuts || plan.offset(which) != covered || plan.bytes(which) == 0 ||
                   covered % page_bytes != 0 || (which != 0 && (unit == 0 || covered % unit != 0));
            covered += plan.bytes(which);
            longest = std::max(longest, plan.bytes(which));
          }
          const std::size_t whole = (bytes + page_bytes - 1) / page_bytes * page_bytes;
          const std::size_t step = unit == 0 ? whole : std::lcm(unit, page_bytes);
          // Each piece has the requested length, or the nearest length that ends at a unit
          // boundary.
          const std::size_t expected = std::min(whole, std::max(step, chunk / step * step));
          ++plans;
          if (!plan.is_mapped() || plan.length != whole || covered != whole || cuts ||
              longest != expected) {
            CAPTURE(page_bytes, bytes, unit, chunk, covered, longest, expected);
            FAIL_CHECK("a wrong plan");
          }
        }
      }
    }
  }
  CHECK(plans == 3 * 70 * 25 * 40);
}

TEST_CASE("memory is mapped above the limit and not at the limit", "[cuda]") {
  const ps::detail::pinned_sizes sizes;
  CHECK(sizes.mapped_above == ps::detail::small_pinned_bytes);
  CHECK_FALSE(ps::detail::plan_pinned(ps::detail::small_pinned_bytes, 256, sizes).is_mapped());
  CHECK(ps::detail::plan_pinned(ps::detail::small_pinned_bytes + 1, 256, sizes).is_mapped());
}

TEST_CASE("sizes near 2^64 do not wrap", "[cuda]") {
  constexpr std::size_t max = std::numeric_limits<std::size_t>::max();
  const ps::detail::pinned_sizes sizes{.page = page};
  for (const std::size_t bytes : {max - page, max / 2, max / 3}) {
    for (const std::size_t unit : {max, max / 2 + 2, max / 4 + 3, max / 4096, std::size_t{1}}) {
      CAPTURE(bytes, unit);
      const auto plan = ps::detail::plan_pinned(bytes, unit, sizes);
      CHECK(plan.length >= bytes);
      CHECK(plan.length - bytes < page);
      CHECK(plan.chunk % page == 0);
      CHECK(plan.chunk <= plan.length);
      CHECK((plan.pieces() == 1 || plan.chunk % unit == 0));
      const std::size_t last = plan.pieces() - 1;
      CHECK(plan.offset(last) + plan.bytes(last) == plan.length);
    }
  }
}

// ---- pages --------------------------------------------------------------------------------------

TEST_CASE("a mapping is aligned to 2 MiB, has the requested size, and is unmapped at its end",
          "[cuda]") {
  const void* data = nullptr;
  {
    ps::detail::page_mapping pages{5 * page, 17'000};
    data = pages.data();
    CHECK(reinterpret_cast<std::uintptr_t>(data) % (std::size_t{2} << 20) == 0);
    std::memset(pages.data(), 1, 5 * page);
    CHECK(is_mapped(pages.data() + 4 * page));
  }
  CHECK_FALSE(is_mapped(data));
}

TEST_CASE("the slack around an aligned mapping is unmapped at once", "[cuda]") {
  static_cast<void>(mapped_bytes());  // the first call allocates once
  const std::size_t before = mapped_bytes();
  const ps::detail::page_mapping one{page, page};
  const ps::detail::page_mapping two{page, page};
  CHECK(mapped_bytes() - before < (std::size_t{1} << 20));
}

TEST_CASE("a released mapping stays mapped", "[cuda]") {
  std::byte* data = nullptr;
  {
    ps::detail::page_mapping pages{page, page};
    data = pages.release();
  }
  CHECK(is_mapped(data));
  ::munmap(data, page);
}

TEST_CASE("a failed mapping reports the requested size", "[cuda]") {
  for (const std::size_t length :
       {std::size_t{1} << 60, std::numeric_limits<std::size_t>::max() / page * page}) {
    const auto error = test::error_of<ps::out_of_memory>(
        [&] { const ps::detail::page_mapping pages{length, 12'345}; });
    CHECK(error.bytes() == 12'345);
    CHECK(test::has(error.what(), "Cannot allocate memory"));
  }
}

TEST_CASE("every page is touched, by any number of threads", "[cuda]") {
  for (const std::size_t pages : {1U, 2U, 7U, 64U}) {
    for (std::size_t threads = 1; threads <= 5; ++threads) {
      CAPTURE(pages, threads);
      void* const data =
          ::mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      REQUIRE(data != MAP_FAILED);
      ::madvise(data, pages * page, MADV_NOHUGEPAGE);
      auto* const begin = static_cast<std::byte*>(data);
      CHECK(resident_pages(begin, pages * page) == 0);
      ps::detail::touch_pages(begin, pages * page, page, threads);
      CHECK(resident_pages(begin, pages * page) == pages);
      ::munmap(data, pages * page);
    }
  }
}

TEST_CASE("if no thread can start, the calling thread touches every page",
          "[cuda][fault:memory-6]") {
  enum outcome { touched = 0, not_touched = 1, cannot_lower = 3 };
  ps::detail::page_mapping pages{12 * page, 12 * page};
  ::madvise(pages.data(), 12 * page, MADV_NOHUGEPAGE);
  ::madvise(pages.data(), 12 * page, MADV_DOFORK);
  const ::pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const ::rlimit nothing{0, 0};
    // The limit does not apply to root, so the child switches to the user nobody.
    if (::setrlimit(RLIMIT_NPROC, &nothing) != 0 || (::geteuid() == 0 && ::setuid(65534) != 0)) {
      ::_exit(cannot_lower);
    }
    try {
      std::thread{[] {}}.join();
      ::_exit(cannot_lower);
    } catch (const std::system_error&) {
    }
    ps::detail::touch_pages(pages.data(), 12 * page, page, 4);
    unsigned char resident[12] = {};
    ::mincore(pages.data(), 12 * page, resident);
    const bool all = std::all_of(std::begin(resident), std::end(resident),
                                 [](unsigned char of) { return (of & 1U) != 0; });
    ::_exit(all ? touched : not_touched);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == cannot_lower) {
    WARN("not tested: the process may not give up its right to start threads");
    return;
  }
  CHECK(WEXITSTATUS(status) == touched);
}

TEST_CASE("a few threads touch the pages, and one thread touches few pages", "[cuda]") {
  CHECK(ps::detail::touching_threads(1) == 1);
  CHECK(ps::detail::touching_threads(std::size_t{16} << 20) == 1);
  CHECK(ps::detail::touching_threads(std::size_t{1} << 40) ==
        std::clamp(std::thread::hardware_concurrency(), 1U, 8U));
}

TEST_CASE("a thread allocates on the chosen node within a scope only", "[cuda]") {
  if (memory_policy() != 0) {
    WARN("not tested: memory policies are not available, or the program runs under one");
    return;
  }
  {
    const ps::detail::scoped_node nowhere{-1};
    CHECK(memory_policy() == 0);
  }
  {
    const ps::detail::scoped_node beyond{100'000};
    CHECK(memory_policy() == 0);
  }
  {
    const ps::detail::scoped_node first{0};
    if (memory_policy() != 1) {
      WARN("not tested: memory policies can't be set here");
      return;
    }
    int of_a_new_thread = -1;
    std::thread{[&] { of_a_new_thread = memory_policy(); }}.join();
    CHECK(of_a_new_thread == 1);  // simulates the helper threads that touch the pages
    { const ps::detail::scoped_node second{0}; }
    CHECK(memory_policy() == 1);  // an existing policy remains unchanged
  }
  CHECK(memory_policy() == 0);
}

// ---- allocation and deallocation ----------------------------------------------------------------

TEST_CASE("small memory is one portable cudaHostAlloc and one cudaFreeHost", "[cuda]") {
  const clean_runtime runtime;
  void* data = ps::detail::cuda_allocate_pinned(0, 2 * page, 256, tiny);
  CHECK(fake_cuda::calls_of("cudaHostAlloc") == 1);
  CHECK(fake_cuda::calls_of("cudaHostRegister") == 0);
  std::memset(data, 1, 2 * page);
  ps::detail::cuda_deallocate_pinned(0, data, 2 * page, 256, tiny);
  CHECK(fake_cuda::calls_of("cudaFreeHost") == 1);
}

TEST_CASE("large memory is registered chunk by chunk and released completely",
          "[cuda][promise:honest-17]") {
  const clean_runtime runtime{{.host_numa_id = 0}};
  const int policy = memory_policy();
  for (const std::size_t unit : {std::size_t{0}, std::size_t{256}, 3 * page, std::size_t{768}}) {
    for (const std::size_t bytes : {2 * page + 1, 24 * page, 50 * page - 13}) {
      CAPTURE(unit, bytes);
      const auto before = fake_cuda::calls_of("cudaHostRegister");
      const auto plan = ps::detail::plan_pinned(bytes, unit, tiny);
      void* data = ps::detail::cuda_allocate_pinned(0, bytes, unit, tiny);
      CHECK(fake_cuda::calls_of("cudaHostRegister") - before == plan.pieces());
      CHECK(static_cast<std::size_t>(fake_cuda::live().registrations) == plan.pieces());
      CHECK(reinterpret_cast<std::uintptr_t>(data) % (std::size_t{2} << 20) == 0);
      cudaPointerAttributes known{};
      CHECK(cudaPointerGetAttributes(&known, data) == cudaSuccess);
      CHECK(known.devicePointer == data);  // kernels can access the memory
      std::memset(data, 1, bytes);
      ps::detail::cuda_deallocate_pinned(0, data, bytes, unit, tiny);
      CHECK(fake_cuda::live().registrations == 0);
      CHECK_FALSE(is_mapped(data));
    }
  }
  CHECK(fake_cuda::calls_of("cudaHostAlloc") == 0);
  CHECK(memory_policy() == policy);  // the policy applied only to these pages
}

TEST_CASE("the device takes the large path above its limit", "[cuda]") {
  const clean_runtime runtime;
  const ps::cuda_device device;
  const std::size_t unit = ps::detail::small_pinned_bytes / 4 + 256;
  const auto block = device.allocate_pinned(4 * unit, unit);
  CHECK(block.pinned);
  CHECK(fake_cuda::live().registrations == 1);
  static_cast<std::byte*>(block.data)[4 * unit - 1] = std::byte{1};
  device.deallocate_pinned(block.data, 4 * unit, unit);
}

TEST_CASE("a copy of a slot stays in one registration for any slot size", "[cuda]") {
  const clean_runtime runtime;
  const ps::cuda_device device;
  {
    const auto stream = device.make_stream();
    for (const std::size_t unit : {256U, 768U, 1280U, 4352U, 5 * 4096U, 12'544U, 65'792U}) {
      CAPTURE(unit);
      const std::size_t slots = 40;
      auto* data =
          static_cast<std::byte*>(ps::detail::cuda_allocate_pinned(0, slots * unit, unit, tiny));
      void* to = device.allocate(slots * unit);
      for (std::size_t slot = 0; slot < slots; ++slot) {
        CHECK_NOTHROW(device.copy_async(to, data + slot * unit, unit, stream));
      }
      device.synchronize(stream);
      if (ps::detail::plan_pinned(slots * unit, unit, tiny).pieces() > 1) {
        // The runtime rejects a copy that crosses the boundary of two pieces. The library never
        // makes such a copy.
        CHECK_THROWS_AS(device.copy_async(to, data, slots * unit, stream), ps::cuda_error);
      }
      device.synchronize(stream);
      device.deallocate(to, slots * unit);
      ps::detail::cuda_deallocate_pinned(0, data, slots * unit, unit, tiny);
    }
  }
}

TEST_CASE("a rejection half-way unregisters the rest, and names the remedy",
          "[cuda][fault:memory-3]") {
  const std::size_t bytes = 40 * page;
  const std::size_t chunks = ps::detail::plan_pinned(bytes, 256, tiny).pieces();
  REQUIRE(chunks == 10);
  for (std::size_t which = 0; which < chunks; ++which) {
    CAPTURE(which);
    const clean_runtime runtime;
    fake_cuda::fail_call_of("cudaHostRegister", which, cudaErrorOperatingSystem);
    fake_cuda::fail_call_of("cudaHostAlloc", 0, cudaErrorMemoryAllocation);
    const auto error = test::error_of<ps::pinning_failed>(
        [&] { static_cast<void>(ps::detail::cuda_allocate_pinned(0, bytes, 256, tiny)); });
    CHECK(error.bytes() == bytes);
    for (const char* part :
         {"pinned memory", "cudaHostRegister gave", "cudaHostAlloc gave",
          "cudaErrorMemoryAllocation", "ulimit -l", "prefetch", "pageable_fallback"}) {
      CHECK(test::has(error.what(), part));
    }
    CHECK(fake_cuda::calls_of("cudaHostUnregister") == which);
  }
}

TEST_CASE("a machine that cannot lock the requested size rejects it and grants a smaller size",
          "[cuda]") {
  const clean_runtime runtime{{.pinned_memory = 21 * page}};
  CHECK_THROWS_AS(ps::detail::cuda_allocate_pinned(0, 24 * page, 256, tiny), ps::out_of_memory);
  CHECK(fake_cuda::calls_of("cudaHostRegister") == 6);
  void* data = ps::detail::cuda_allocate_pinned(0, 20 * page, 256, tiny);
  ps::detail::cuda_deallocate_pinned(0, data, 20 * page, 256, tiny);
}

TEST_CASE("a rejection leaves no mapping behind", "[cuda][fault:memory-3]") {
  const clean_runtime runtime;
  const std::size_t bytes = std::size_t{8} << 20;
  const ps::detail::pinned_sizes sizes{.mapped_above = 0, .chunk = bytes / 2, .page = page};
  const std::size_t before = mapped_bytes();
  for (int turn = 0; turn < 16; ++turn) {
    fake_cuda::fail_call_of("cudaHostRegister", 1, cudaErrorMemoryAllocation);
    fake_cuda::fail_call_of("cudaHostAlloc", 0, cudaErrorMemoryAllocation);
    CHECK_THROWS_AS(ps::detail::cuda_allocate_pinned(0, bytes, 256, sizes), ps::out_of_memory);
  }
  CHECK(mapped_bytes() < before + 8 * bytes);
}

TEST_CASE("if registration is rejected, the driver allocates the pages and frees them", "[cuda]") {
  const std::size_t bytes = GENERATE(40 * page, 40 * page - 13, 40 * page - 4);
  const std::size_t unit = GENERATE(std::size_t{0}, std::size_t{256});
  const std::size_t chunks = ps::detail::plan_pinned(bytes, unit, tiny).pieces();
  for (const auto code : {cudaErrorMemoryAllocation, cudaErrorOperatingSystem,
                          cudaErrorNotSupported, cudaErrorNotPermitted, cudaErrorInvalidValue}) {
    CAPTURE(bytes, unit, code);
    const clean_runtime runtime;
    fake_cuda::fail_call_of("cudaHostRegister", chunks - 1, code);
    void* rejected = ps::detail::cuda_allocate_pinned(0, bytes, unit, tiny);
    CHECK(fake_cuda::calls_of("cudaHostUnregister") == chunks - 1);
    CHECK(fake_cuda::live().pinned_blocks == 1);
    CHECK_FALSE(ps::detail::is_pinned_as_planned(rejected, bytes, unit, tiny));
    void* planned = ps::detail::cuda_allocate_pinned(0, bytes, unit, tiny);
    CHECK(fake_cuda::live().registrations == chunks);
    CHECK(ps::detail::is_pinned_as_planned(planned, bytes, unit, tiny));
    std::memset(rejected, 1, bytes);
    std::memset(planned, 1, bytes);
    ps::detail::cuda_deallocate_pinned(0, rejected, bytes, unit, tiny);
    CHECK(fake_cuda::calls_of("cudaFreeHost") == 1);
    CHECK(is_mapped(planned));
    ps::detail::cuda_deallocate_pinned(0, planned, bytes, unit, tiny);
    CHECK_FALSE(is_mapped(planned));
  }
}

TEST_CASE(
    "if registration is rejected, the driver allocates the pages and the footprint reports "
    "it",
    "[cuda][fault:memory-3]") {
  const clean_runtime runtime;
  const bool rejects = GENERATE(true, false);
  if (rejects) fake_cuda::fail_call_of("cudaHostRegister", 0, cudaErrorNotSupported);
  const std::size_t samples = ps::detail::small_pinned_bytes / sizeof(std::uint64_t) / 2 + 1;
  ps::loader loader{numbered{100},
                    ps::sequential{},
                    ps::cuda_device{},
                    {.batch_size = samples, .workers = 1, .prefetch = 2}};
  const auto taken = loader.footprint();
  CHECK(taken.pinned);
  CHECK(taken.registration_failed == rejects);
  CHECK((to_text(taken).find("registration failed") != std::string::npos) == rejects);
  CHECK(fake_cuda::live().pinned_blocks == (rejects ? 1U : 0U));
}

TEST_CASE("a block that cannot be registered in one call is allocated by the driver", "[cuda]") {
  const clean_runtime runtime;
  ps::pinned_allocator<std::byte, ps::cuda_device> allocator;
  const std::size_t bytes = ps::detail::small_pinned_bytes + 1;
  fake_cuda::fail_call_of("cudaHostRegister", 0, cudaErrorInvalidValue);
  std::byte* data = allocator.allocate(bytes);
  CHECK(fake_cuda::live().pinned_blocks == 1);
  data[bytes - 1] = std::byte{1};
  allocator.deallocate(data, bytes);
}

TEST_CASE("a rejection of small memory is out of memory too", "[cuda]") {
  const clean_runtime runtime;
  fake_cuda::fail_call_of("cudaHostAlloc", 0, cudaErrorMemoryAllocation);
  const auto error = test::error_of<ps::pinning_failed>(
      [] { static_cast<void>(ps::cuda_device{}.allocate_pinned(1000)); });
  CHECK(error.bytes() == 1000);
  CHECK(test::has(error.what(), "ulimit -l"));
}

TEST_CASE("an error that is not a rejection keeps its type", "[cuda]") {
  const std::size_t bytes = GENERATE(std::size_t{page}, std::size_t{40 * page});
  const char* const call = bytes == page ? "cudaHostAlloc" : "cudaHostRegister";
  CAPTURE(call);
  const auto take = [&](cudaError_t code) {
    fake_cuda::fail_call_of(call, 0, code);
    static_cast<void>(ps::detail::cuda_allocate_pinned(0, bytes, 256, tiny));
  };
  const clean_runtime runtime;
  CHECK_THROWS_AS(take(cudaErrorIllegalAddress), ps::cuda_context_lost);
  CHECK_THROWS_AS(take(cudaErrorInsufficientDriver), ps::no_cuda_driver);
  CHECK_THROWS_AS(take(cudaErrorStreamCaptureUnsupported), ps::capture_in_progress);
  const auto error = test::error_of<ps::cuda_error>([&] { take(cudaErrorUnknown); });
  CHECK(error.code() == cudaErrorUnknown);
  CHECK(std::string{error.call()} == call);
}

TEST_CASE("impossible sizes are rejected without a call", "[cuda]") {
  const clean_runtime runtime;
  constexpr std::size_t max = std::numeric_limits<std::size_t>::max();
  const auto before = fake_cuda::calls();
  for (const std::size_t bytes : {std::size_t{0}, max, max - 4094}) {
    CHECK_THROWS_AS(ps::detail::cuda_allocate_pinned(0, bytes, 0), ps::out_of_memory);
  }
  CHECK(fake_cuda::calls() == before);
}

TEST_CASE("freeing a null pointer calls nothing", "[cuda]") {
  const clean_runtime runtime;
  const auto before = fake_cuda::calls();
  ps::detail::cuda_deallocate_pinned(0, nullptr, 1000, 0);
  CHECK(fake_cuda::calls() == before);
}

TEST_CASE("a chunk that cannot be unregistered does not prevent unregistering the others",
          "[cuda]") {
  fake_cuda::reset();
  void* data = ps::detail::cuda_allocate_pinned(0, 40 * page, 256, tiny);
  fake_cuda::fail_call_of("cudaHostUnregister", 2, cudaErrorUnknown);
  ps::detail::cuda_deallocate_pinned(0, data, 40 * page, 256, tiny);
  CHECK(fake_cuda::calls_of("cudaHostUnregister") == 10);  // one call per piece
  CHECK_FALSE(is_mapped(data));
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("a pending error of the program is not mistaken for a rejection and is not cleared",
          "[cuda]") {
  fake_cuda::reset();
  CHECK(cudaSetDevice(100) != cudaSuccess);
  CHECK_THROWS_AS(ps::cuda_device{}.allocate_pinned(page), ps::cuda_error);
  CHECK_THROWS_AS(ps::detail::cuda_allocate_pinned(0, page, 0, tiny), ps::pending_cuda_error);
  CHECK_THROWS_AS(ps::detail::cuda_allocate_pinned(0, 40 * page, 0, tiny), ps::pending_cuda_error);
  CHECK(fake_cuda::calls_of("cudaHostAlloc") == 0);
  CHECK(fake_cuda::calls_of("cudaHostRegister") == 0);
  CHECK(cudaGetLastError() != cudaSuccess);
}

TEST_CASE("a driver without NUMA nodes still pins memory, and a lost context is thrown", "[cuda]") {
  const clean_runtime runtime;
  fake_cuda::fail_call_of("cudaDeviceGetAttribute", 0, cudaErrorInvalidValue);
  void* data = ps::detail::cuda_allocate_pinned(0, 40 * page, 256, tiny);
  ps::detail::cuda_deallocate_pinned(0, data, 40 * page, 256, tiny);
  fake_cuda::fail_call_of("cudaDeviceGetAttribute", 0, cudaErrorIllegalAddress);
  CHECK_THROWS_AS(ps::detail::cuda_allocate_pinned(0, 40 * page, 256, tiny), ps::cuda_context_lost);
}

// ---- users of pinned memory --------------------------------------------------------------------

TEST_CASE("slots that the driver fails to pin throw, or are visibly pageable", "[cuda]") {
  const clean_runtime runtime;
  const ps::cuda_device device;
  fake_cuda::fail_call_of("cudaHostAlloc", 0, cudaErrorMemoryAllocation);
  CHECK_THROWS_AS((ps::loader{numbered{100}, ps::sequential{}, device, {.batch_size = 10}}),
                  ps::out_of_memory);
  fake_cuda::fail_call_of("cudaHostAlloc", 0, cudaErrorMemoryAllocation);
  ps::loader fallen{numbered{100},
                    ps::sequential{},
                    device,
                    {.batch_size = 10, .memory = {.pageable_fallback = true}}};
  CHECK_FALSE(fallen.footprint().pinned);
  CHECK(fake_cuda::live().pinned_blocks == 0);
  std::size_t samples = 0;
  for (const auto& batch : fallen.epoch(0)) samples += batch.size();
  CHECK(samples == 100);
  ps::loader pinned{numbered{100},
                    ps::sequential{},
                    device,
                    {.batch_size = 10, .memory = {.pageable_fallback = true}}};
  CHECK(pinned.footprint().pinned);
  CHECK(fake_cuda::live().pinned_blocks == 1);
}

TEST_CASE("a lost context is not mistaken for a lack of memory", "[cuda]") {
  const clean_runtime runtime;
  fake_cuda::fail_call_of("cudaHostAlloc", 0, cudaErrorIllegalAddress);
  CHECK_THROWS_AS(
      (ps::detail::slab{ps::cuda_device{}, 1000, ps::detail::memory_kind::pinned_or_pageable}),
      ps::cuda_context_lost);
}

TEST_CASE("containers and pools work in CUDA pinned memory", "[cuda]") {
  const clean_runtime runtime;
  {
    std::vector<float, ps::pinned_allocator<float, ps::cuda_device>> numbers(1000, 1.0F);
    CHECK(fake_cuda::live().pinned_blocks == 1);
    ps::pinned_resource<ps::cuda_device> pinned;
    std::pmr::synchronized_pool_resource pool{&pinned};
    std::pmr::vector<std::byte> bytes(100'000, std::byte{1}, &pool);
    CHECK(pinned.bytes() >= 100'000);
    CHECK(pinned.pageable_bytes() == 0);
    void* whole_pages = pool.allocate(2 * page, page);
    CHECK(reinterpret_cast<std::uintptr_t>(whole_pages) % page == 0);
    pool.deallocate(whole_pages, 2 * page, page);
  }
}
