// SPDX-License-Identifier: BSL-1.0
// Tests the fake CUDA runtime itself: it behaves like the real runtime and detects forbidden use.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fake_cuda/fake_cuda.hpp"
#include "fake_cuda/typed_calls.hpp"
#include "support/catch.hpp"
#include "support/last_words.hpp"

namespace {

using fake_cuda::policy;

struct handles {
  cudaStream_t one = nullptr;
  cudaStream_t two = nullptr;
  cudaEvent_t event = nullptr;
  unsigned char* device = nullptr;
  unsigned char* pinned = nullptr;
  static constexpr std::size_t bytes = 1000;

  handles() {
    REQUIRE(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    REQUIRE(cudaMalloc(reinterpret_cast<void**>(&device), bytes) == cudaSuccess);
    REQUIRE(cudaHostAlloc(reinterpret_cast<void**>(&pinned), bytes, 0) == cudaSuccess);
  }
  ~handles() {
    cudaStreamSynchronize(one);
    cudaStreamSynchronize(two);
    cudaFreeHost(pinned);
    cudaFree(device);
    cudaEventDestroy(event);
    cudaStreamDestroy(two);
    cudaStreamDestroy(one);
  }
  handles(handles&&) = delete;

  /// Returns an address at which the test can inspect device memory.
  [[nodiscard]] unsigned char* seen() const { return fake_cuda::inspect(device); }
  [[nodiscard]] cudaError_t copy_in(cudaStream_t on) const {
    return cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyDefault, on);
  }
};

bool has_finding(const std::string& kind) {
  const auto found = fake_cuda::findings();
  return std::any_of(found.begin(), found.end(), [&](const auto& one) { return one.kind == kind; });
}

void ignore(cudaError_t) {}

}  // namespace

TEST_CASE("memory is poison until it is written", "[fake_cuda][promise:race-free-12]") {
  fake_cuda::reset();
  const handles all;
  CHECK(std::all_of(all.seen(), all.seen() + handles::bytes,
                    [](unsigned char c) { return c == fake_cuda::poison; }));
  CHECK(all.pinned[7] == fake_cuda::poison);
}

TEST_CASE("calls with typed pointers reach the fake", "[fake_cuda]") {
  fake_cuda::reset();
  float* device = nullptr;
  const int* constant = nullptr;
  double* pinned = nullptr;
  float* portable = nullptr;
  void* untyped = nullptr;
  cudaEvent_t event = nullptr;
  REQUIRE(cudaMalloc(&device, 8 * sizeof(float)) == cudaSuccess);
  REQUIRE(cudaMalloc(&constant, 8 * sizeof(int)) == cudaSuccess);
  REQUIRE(cudaMallocHost(&pinned, sizeof(double)) == cudaSuccess);
  REQUIRE(cudaMallocHost(&untyped, 8, cudaHostAllocPortable) == cudaSuccess);
  REQUIRE(cudaHostAlloc(&portable, 8 * sizeof(float), cudaHostAllocPortable) == cudaSuccess);
  REQUIRE(cudaEventCreate(&event, cudaEventDisableTiming) == cudaSuccess);
  CHECK(fake_cuda::calls_of("cudaMalloc") == 2);
  CHECK(fake_cuda::calls_of("cudaHostAlloc") == 3);
  CHECK(fake_cuda::calls_of("cudaEventCreateWithFlags") == 1);
  CHECK(*pinned == *reinterpret_cast<const double*>(portable));  // both have the poison value
  REQUIRE(cudaMemcpy(device, portable, 8 * sizeof(float), cudaMemcpyDefault) == cudaSuccess);
  CHECK(cudaMemcpy(device, portable, 9 * sizeof(float), cudaMemcpyDefault) ==
        cudaErrorInvalidValue);
  CHECK(has_finding("out of bounds"));
  SECTION("a failure of the call is returned") {
    float* rejected = device;
    fake_cuda::fail_call_of("cudaMalloc", 0, cudaErrorMemoryAllocation);
    CHECK(cudaMalloc(&rejected, 4) == cudaErrorMemoryAllocation);
    ignore(cudaGetLastError());
  }
  ignore(cudaEventDestroy(event));
  ignore(cudaFreeHost(portable));
  ignore(cudaFreeHost(untyped));
  ignore(cudaFreeHost(pinned));
  ignore(cudaFree(const_cast<int*>(constant)));
  ignore(cudaFree(device));
}

TEST_CASE("a graph is instantiated with room for a log", "[fake_cuda]") {
  fake_cuda::reset();
  {
    const handles all;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    REQUIRE(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    REQUIRE(cudaMemsetAsync(all.device, 3, handles::bytes, all.one) == cudaSuccess);
    REQUIRE(cudaStreamEndCapture(all.one, &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&executable, graph, nullptr, nullptr, 0) == cudaSuccess);
    REQUIRE(cudaGraphLaunch(executable, all.one) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(all.one) == cudaSuccess);
    CHECK(all.seen()[handles::bytes - 1] == 3);
    ignore(cudaGraphExecDestroy(executable));
    ignore(cudaGraphDestroy(graph));
  }
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("late: a copy poisons its target when it may start, and ends when waited for",
          "[fake_cuda]") {
  fake_cuda::reset({.policy = policy::late});
  const handles all;
  std::memset(all.pinned, 1, handles::bytes);
  std::memset(all.seen(), 2, handles::bytes);
  CHECK(all.copy_in(all.one) == cudaSuccess);
  CHECK(all.seen()[0] == fake_cuda::poison);
  std::memset(all.pinned, 3, handles::bytes);  // too early, so the copy transfers the new value
  CHECK(cudaStreamSynchronize(all.one) == cudaSuccess);
  CHECK(all.seen()[0] == 3);
  CHECK(all.seen()[handles::bytes - 1] == 3);
}

TEST_CASE("early: a copy completes at once when nothing is queued before it", "[fake_cuda]") {
  fake_cuda::reset({.policy = policy::early});
  const handles all;
  std::memset(all.pinned, 1, handles::bytes);
  CHECK(all.copy_in(all.one) == cudaSuccess);
  CHECK(all.seen()[0] == 1);
}

TEST_CASE("late: only the work that a wait needs runs", "[fake_cuda]") {
  fake_cuda::reset({.policy = policy::late});
  const handles all;
  std::vector<int> ran;
  fake_cuda::launch(all.one, [&] { ran.push_back(1); });
  CHECK(cudaEventRecord(all.event, all.one) == cudaSuccess);
  fake_cuda::launch(all.one, [&] { ran.push_back(2); });
  fake_cuda::launch(all.two, [&] { ran.push_back(3); });
  CHECK(cudaStreamWaitEvent(all.two, all.event, 0) == cudaSuccess);
  fake_cuda::launch(all.two, [&] { ran.push_back(4); });
  CHECK(ran.empty());
  CHECK(cudaStreamSynchronize(all.two) == cudaSuccess);
  CHECK(ran == std::vector{3, 1, 4});
  CHECK(cudaStreamSynchronize(all.one) == cudaSuccess);
  CHECK(ran == std::vector{3, 1, 4, 2});
}

TEST_CASE("a wait binds to the record at the time of its call",
          "[fake_cuda][promise:race-free-12]") {
  fake_cuda::reset({.policy = policy::late});
  bool later = false;  // must outlive the streams, which run work until their destruction
  const handles all;
  // An event without a record, so the stream does not wait.
  CHECK(cudaStreamWaitEvent(all.two, all.event, 0) == cudaSuccess);
  fake_cuda::launch(all.one, [] {});
  CHECK(cudaEventRecord(all.event, all.one) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(all.two, all.event, 0) == cudaSuccess);
  fake_cuda::launch(all.one, [&] { later = true; });
  CHECK(cudaEventRecord(all.event, all.one) == cudaSuccess);
  CHECK(cudaStreamSynchronize(all.two) == cudaSuccess);
  CHECK_FALSE(later);
}

TEST_CASE("a query returns not ready, which stays in the last-error slot until it is read",
          "[fake_cuda]") {
  fake_cuda::reset({.policy = policy::late});
  const handles all;
  CHECK(cudaEventQuery(all.event) == cudaSuccess);  // an event without a record is complete
  fake_cuda::launch(all.one, [] {});
  CHECK(cudaEventRecord(all.event, all.one) == cudaSuccess);
  CHECK(cudaEventQuery(all.event) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(all.one) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(all.two) == cudaSuccess);
  CHECK(cudaPeekAtLastError() == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaSuccess);
  int queries = 0;
  while (cudaEventQuery(all.event) != cudaSuccess && queries < 10'000'000) ++queries;
  CHECK(queries < 10'000'000);  // polling must end
  ignore(cudaGetLastError());
}

TEST_CASE("random: different seeds give different orders, and equal seeds equal orders",
          "[fake_cuda]") {
  const auto poisoned_at = [](std::uint64_t seed) {
    fake_cuda::reset({.policy = policy::random, .seed = seed});
    const handles all;
    std::memset(all.pinned, 1, handles::bytes);
    std::string seen;
    for (int i = 0; i < 30; ++i) {
      ignore(all.copy_in(i % 2 == 0 ? all.one : all.two));
      seen += all.seen()[0] == 1 ? 'y' : 'n';
    }
    return seen;
  };
  CHECK(poisoned_at(1) == poisoned_at(1));
  CHECK(poisoned_at(1) != poisoned_at(2));
}

TEST_CASE("work that blocks holds neither the caller nor another stream", "[fake_cuda]") {
  const auto when = GENERATE(policy::late, policy::early, policy::random);
  fake_cuda::reset({.policy = when, .seed = 5});
  const handles all;
  std::atomic<bool> open{false};
  std::atomic<bool> ran{false};
  fake_cuda::launch(all.one, [&] {
    while (!open.load()) std::this_thread::yield();
  });
  CHECK(all.copy_in(all.one) == cudaSuccess);
  fake_cuda::launch(all.two, [&] { ran = true; });
  CHECK(cudaStreamSynchronize(all.two) == cudaSuccess);
  CHECK(ran.load());
  open = true;
  CHECK(cudaStreamSynchronize(all.one) == cudaSuccess);
}

TEST_CASE("copies from memory that is not pinned are counted", "[fake_cuda]") {
  fake_cuda::reset({.policy = policy::late, .pageable_copies = fake_cuda::pageable::staged});
  const handles all;
  std::array<unsigned char, 10> ordinary{};
  ordinary.fill(4);
  CHECK(cudaMemcpyAsync(all.device, ordinary.data(), 10, cudaMemcpyDefault, all.one) ==
        cudaSuccess);
  ordinary.fill(5);
  CHECK(fake_cuda::statistics().synchronous_copies == 1);
  CHECK(cudaMemcpyAsync(ordinary.data(), all.device, 10, cudaMemcpyDefault, all.one) ==
        cudaSuccess);
  CHECK(ordinary[9] == 4);  // a copy into pageable memory waits for the stream
  CHECK(fake_cuda::statistics().synchronous_copies == 2);
}

TEST_CASE("a copy from memory that is not pinned reads it at the call, or later, or waits first",
          "[fake_cuda]") {
  using fake_cuda::pageable;
  std::array<unsigned char, 10> ordinary{};
  /// Returns the values that arrive if the source changes from 4 to 5 after the call. Also returns
  /// whether earlier work has run when the call returns.
  const auto copied = [&](const fake_cuda::config& how) {
    fake_cuda::reset(how);
    const handles all;
    std::atomic<bool> ran{false};
    fake_cuda::launch(all.one, [&] { ran = true; });
    ordinary.fill(4);
    CHECK(cudaMemcpyAsync(all.device, ordinary.data(), 10, cudaMemcpyDefault, all.one) ==
          cudaSuccess);
    const bool has_waited = ran;
    ordinary.fill(5);
    CHECK(cudaStreamSynchronize(all.one) == cudaSuccess);
    return std::pair{int{all.seen()[9]}, has_waited};
  };
  CHECK(copied({.pageable_copies = pageable::staged}) == std::pair{4, false});
  CHECK(copied({.pageable_copies = pageable::late}) == std::pair{5, false});
  CHECK(copied({.pageable_copies = pageable::blocking}) == std::pair{4, true});
  std::set<std::pair<int, bool>> seen;
  for (std::uint64_t seed = 0; seed < 20; ++seed) seen.insert(copied({.seed = seed}));
  CHECK(seen.size() == 3);
}

TEST_CASE("a graph reads memory that is not pinned when it runs", "[fake_cuda]") {
  fake_cuda::reset({.pageable_copies = fake_cuda::pageable::staged});
  const handles all;
  std::array<unsigned char, 10> ordinary{};
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CHECK(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  CHECK(cudaMemcpyAsync(all.device, ordinary.data(), 10, cudaMemcpyDefault, all.one) ==
        cudaSuccess);
  CHECK(cudaStreamEndCapture(all.one, &graph) == cudaSuccess);
  CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
  ordinary.fill(6);
  CHECK(cudaGraphLaunch(exec, all.one) == cudaSuccess);
  CHECK(cudaStreamSynchronize(all.one) == cudaSuccess);
  CHECK(all.seen()[3] == 6);
  ignore(cudaGraphExecDestroy(exec));
  ignore(cudaGraphDestroy(graph));
}

namespace {

/// Page-aligned memory.
struct pages {
  static constexpr std::size_t page = std::size_t{64} << 10;
  unsigned char* data;

  explicit pages(std::size_t count)
      : data(static_cast<unsigned char*>(std::aligned_alloc(page, count * page))) {}
  pages(pages&&) = delete;
  ~pages() { std::free(data); }
};

}  // namespace

TEST_CASE("registered memory is pinned, and overlapping or exceeding ranges are rejected",
          "[fake_cuda]") {
  fake_cuda::reset();
  {
    const handles all;
    const pages mine{2};
    unsigned char* const next = mine.data + pages::page;
    CHECK(cudaHostRegister(mine.data, pages::page, cudaHostRegisterPortable) == cudaSuccess);
    CHECK(cudaHostRegister(next - 1, 100, 0) == cudaErrorHostMemoryAlreadyRegistered);
    CHECK(cudaHostRegister(next, 100, 0) == cudaSuccess);
    cudaPointerAttributes known{};
    CHECK(cudaPointerGetAttributes(&known, mine.data) == cudaSuccess);
    CHECK(known.devicePointer == nullptr);  // kernels use the registered address
    CHECK(cudaPointerGetAttributes(&known, next) == cudaSuccess);
    CHECK(known.devicePointer == next);
    CHECK(cudaMemcpyAsync(all.device, next - 100, 100, cudaMemcpyDefault, all.one) == cudaSuccess);
    CHECK(cudaMemcpyAsync(all.device, next - 100, 101, cudaMemcpyDefault, all.one) ==
          cudaErrorInvalidValue);
    CHECK(fake_cuda::statistics().synchronous_copies == 0);
    CHECK(cudaStreamSynchronize(all.one) == cudaSuccess);
    CHECK(cudaHostUnregister(mine.data) == cudaSuccess);
    CHECK(cudaHostUnregister(next) == cudaSuccess);
    CHECK(fake_cuda::live().registrations == 0);
    CHECK(cudaHostUnregister(mine.data + 7) == cudaErrorHostMemoryNotRegistered);
  }
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("a page is registered only once, even by different parts", "[fake_cuda]") {
  fake_cuda::reset();
  const pages mine{1};
  CHECK(cudaHostRegister(mine.data + 100, 100, 0) == cudaSuccess);
  CHECK(cudaHostRegister(mine.data + 300, 100, 0) == cudaErrorHostMemoryAlreadyRegistered);
  CHECK(cudaHostUnregister(mine.data + 100) == cudaSuccess);
  CHECK(cudaHostRegister(mine.data + 300, 100, 0) == cudaSuccess);
  CHECK(cudaHostUnregister(mine.data + 300) == cudaSuccess);
  ignore(cudaGetLastError());
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("memory that is not portable is pinned for its own device alone", "[fake_cuda]") {
  fake_cuda::reset({.devices = 2});
  const pages mine{1};
  void* allocated = nullptr;
  SECTION("by cudaHostAlloc") { ignore(cudaHostAlloc(&allocated, 100, cudaHostAllocDefault)); }
  SECTION("by cudaHostRegister") {
    ignore(cudaHostRegister(mine.data, 100, cudaHostRegisterMapped));
  }
  const void* const from = allocated == nullptr ? mine.data : allocated;
  std::uint64_t synchronous = 0;
  for (const int device : {0, 1}) {
    ignore(cudaSetDevice(device));
    cudaStream_t stream = nullptr;
    void* to = nullptr;
    ignore(cudaStreamCreate(&stream));
    ignore(cudaMalloc(&to, 100));
    CHECK(cudaMemcpyAsync(to, from, 100, cudaMemcpyDefault, stream) == cudaSuccess);
    CHECK(fake_cuda::statistics().synchronous_copies == synchronous++);
    ignore(cudaStreamSynchronize(stream));
  }
}

TEST_CASE("work uses registered memory only if it was mapped", "[fake_cuda]") {
  const bool is_mapped = GENERATE(true, false);
  fake_cuda::reset();
  const handles all;
  const pages mine{1};
  const unsigned flags = is_mapped ? cudaHostRegisterMapped : cudaHostRegisterPortable;
  CHECK(cudaHostRegister(mine.data, 100, flags) == cudaSuccess);
  fake_cuda::launch(all.one, [] {}, {mine.data});
  CHECK(has_finding("not mapped") == !is_mapped);
  CHECK(cudaStreamSynchronize(all.one) == cudaSuccess);
  CHECK(cudaHostUnregister(mine.data) == cudaSuccess);
}

TEST_CASE("a driver may find an absurd size invalid", "[fake_cuda]") {
  void* data = nullptr;
  fake_cuda::reset();
  CHECK(cudaMalloc(&data, ~std::size_t{0}) == cudaErrorMemoryAllocation);
  fake_cuda::reset({.absurd_sizes_are_invalid = true});
  CHECK(cudaMalloc(&data, ~std::size_t{0}) == cudaErrorInvalidValue);
  CHECK(cudaMalloc(&data, std::size_t{1} << 47) == cudaErrorMemoryAllocation);
  ignore(cudaGetLastError());
}

TEST_CASE("blocking streams and the legacy default stream wait for each other", "[fake_cuda]") {
  fake_cuda::reset({.policy = policy::late});
  std::vector<int> ran;
  cudaStream_t blocking = nullptr;
  ignore(cudaStreamCreate(&blocking));
  const handles all;
  fake_cuda::launch(all.one, [&] { ran.push_back(0); });
  fake_cuda::launch(blocking, [&] { ran.push_back(1); });
  fake_cuda::launch(nullptr, [&] { ran.push_back(2); });
  fake_cuda::launch(blocking, [&] { ran.push_back(3); });
  CHECK(cudaStreamSynchronize(blocking) == cudaSuccess);
  CHECK(ran == std::vector{1, 2, 3});  // does not include the work of the non-blocking stream
  fake_cuda::launch(blocking, [&] { ran.push_back(4); });
  CHECK(cudaEventRecord(all.event, nullptr) == cudaSuccess);
  CHECK(cudaEventSynchronize(all.event) == cudaSuccess);
  CHECK(ran == std::vector{1, 2, 3, 4});
  ignore(cudaStreamDestroy(blocking));
}

TEST_CASE(
    "the capture status of the legacy stream cannot be queried while a blocking stream is "
    "captured",
    "[fake_cuda]") {
  fake_cuda::reset();
  cudaStream_t blocking = nullptr;
  ignore(cudaStreamCreate(&blocking));
  auto status = cudaStreamCaptureStatusActive;
  CHECK(cudaStreamIsCapturing(nullptr, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusNone);
  ignore(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  CHECK(cudaStreamIsCapturing(nullptr, &status) == cudaErrorStreamCaptureImplicit);
  CHECK(cudaStreamIsCapturing(blocking, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusActive);  // the query has invalidated nothing
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(blocking, &graph) == cudaSuccess);
  CHECK(cudaStreamIsCapturing(nullptr, &status) == cudaSuccess);
  ignore(cudaGraphDestroy(graph));
  ignore(cudaStreamDestroy(blocking));
  ignore(cudaGetLastError());
}

TEST_CASE("the ledger detects double frees, uses after the end, and leaks",
          "[fake_cuda][promise:race-free-12]") {
  fake_cuda::reset();
  SECTION("device memory that is freed twice") {
    void* data = nullptr;
    ignore(cudaMalloc(&data, 100));
    CHECK(fake_cuda::live().device_blocks == 1);
    ignore(cudaFree(data));
    CHECK(fake_cuda::findings().empty());
    CHECK(cudaFree(data) == cudaErrorInvalidValue);
    CHECK(has_finding("double free"));
  }
  SECTION("device memory that is freed as host memory") {
    void* data = nullptr;
    ignore(cudaMalloc(&data, 100));
    CHECK(cudaFreeHost(data) == cudaErrorInvalidValue);
    CHECK(has_finding("free of unknown memory"));
  }
  SECTION("a stream that is destroyed twice") {
    cudaStream_t stream = nullptr;
    ignore(cudaStreamCreate(&stream));
    ignore(cudaStreamDestroy(stream));
    CHECK(fake_cuda::findings().empty());
    CHECK(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
    CHECK(has_finding("use after destroy"));
  }
  SECTION("an event that is never destroyed") {
    cudaEvent_t event = nullptr;
    ignore(cudaEventCreate(&event));
    CHECK_FALSE(fake_cuda::expect_clean());
    ignore(cudaEventDestroy(event));
    CHECK(fake_cuda::expect_clean());
  }
  SECTION("a copy beyond its allocation") {
    const handles all;
    CHECK(cudaMemcpyAsync(all.device + 1, all.pinned, handles::bytes, cudaMemcpyDefault, all.one) ==
          cudaErrorInvalidValue);
    CHECK(has_finding("out of bounds"));
  }
  SECTION("memory that is freed during a copy") {
    const handles all;
    void* data = nullptr;
    ignore(cudaMalloc(&data, 100));
    ignore(cudaMemcpyAsync(data, all.pinned, 100, cudaMemcpyDefault, all.one));
    ignore(cudaFree(data));
    CHECK(has_finding("freed under work"));
  }
  SECTION("memory that is freed during work declared to use it") {
    const handles all;
    void* data = nullptr;
    ignore(cudaMalloc(&data, 100));
    fake_cuda::launch(all.one, [] {}, {data});
    ignore(cudaFree(data));
    CHECK(has_finding("freed under work"));
  }
  SECTION("a call inside a host function") {
    const handles all;
    ignore(cudaLaunchHostFunc(all.one, [](void*) { ignore(cudaSetDevice(0)); }, nullptr));
    ignore(cudaStreamSynchronize(all.one));
    CHECK(has_finding("call inside of work"));
  }
}

TEST_CASE("work in a stream that is destroyed still runs", "[fake_cuda]") {
  fake_cuda::reset({.policy = policy::late});
  const handles all;
  cudaStream_t gone = nullptr;
  bool ran = false;
  ignore(cudaStreamCreate(&gone));
  fake_cuda::launch(gone, [&] { ran = true; });
  ignore(cudaEventRecord(all.event, gone));
  ignore(cudaStreamDestroy(gone));
  CHECK_FALSE(ran);
  CHECK(cudaEventSynchronize(all.event) == cudaSuccess);
  CHECK(ran);
}

TEST_CASE("the k-th call fails, of all or of one function, and does nothing", "[fake_cuda]") {
  fake_cuda::reset();
  cudaEvent_t event = nullptr;
  fake_cuda::fail_call(1, cudaErrorUnknown);
  CHECK(cudaEventCreate(&event) == cudaSuccess);
  CHECK(cudaEventRecord(event, nullptr) == cudaErrorUnknown);
  CHECK(cudaGetLastError() == cudaErrorUnknown);
  CHECK(cudaEventRecord(event, nullptr) == cudaSuccess);
  fake_cuda::fail_call_of("cudaEventDestroy", 0, cudaErrorUnknown);
  CHECK(cudaEventQuery(event) == cudaSuccess);
  CHECK(cudaEventDestroy(event) == cudaErrorUnknown);
  // a handle can be destroyed only once, even if the call fails.
  CHECK(fake_cuda::live().events == 0);
  CHECK(fake_cuda::calls() == 5);
  CHECK(fake_cuda::calls_of("cudaEventRecord") == 2);
  CHECK(fake_cuda::thread_calls().at("cudaEventRecord") == 2);
  std::thread{[] { ignore(cudaSetDevice(0)); }}.join();
  CHECK(fake_cuda::calls() == 6);
  CHECK(fake_cuda::thread_calls().count("cudaSetDevice") == 0);
}

TEST_CASE("from some call on every call fails, and pending work is dropped", "[fake_cuda]") {
  fake_cuda::reset({.policy = policy::late});
  const handles all;
  bool ran = false;
  fake_cuda::launch(all.one, [&] { ran = true; });
  fake_cuda::fail_from(0, cudaErrorUnknown);
  CHECK(cudaStreamSynchronize(all.one) == cudaErrorUnknown);
  CHECK(cudaSetDevice(0) == cudaErrorUnknown);
  CHECK_FALSE(ran);
}

TEST_CASE("a kernel fault is sticky: every call of the device's threads reports it",
          "[fake_cuda]") {
  fake_cuda::reset({.policy = policy::late, .devices = 2});
  const handles all;
  fake_cuda::kernel_fault(all.one, cudaErrorIllegalAddress);
  CHECK(all.copy_in(all.two) == cudaSuccess);  // no work has run yet
  CHECK(cudaStreamSynchronize(all.one) == cudaErrorIllegalAddress);
  CHECK(all.copy_in(all.two) == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  std::thread{[] {
    CHECK(cudaSetDevice(1) == cudaErrorIllegalAddress);  // the lost device was current
  }}.join();
}

TEST_CASE("no driver, no device, too few of them, unloaded", "[fake_cuda]") {
  int count = -1;
  fake_cuda::reset({.no_driver = true});
  CHECK(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
  CHECK(cudaPeekAtLastError() == cudaErrorInsufficientDriver);
  fake_cuda::reset({.devices = 0});
  CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  CHECK(count == 0);
  fake_cuda::reset({.devices = 2});
  CHECK(cudaSetDevice(1) == cudaSuccess);
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  fake_cuda::unload();
  CHECK(cudaSetDevice(0) == cudaErrorCudartUnloading);
  fake_cuda::reset();
}

TEST_CASE("memory runs out at the configured size", "[fake_cuda]") {
  fake_cuda::reset({.device_memory = 1000, .pinned_memory = 500});
  void* data = nullptr;
  CHECK(cudaMalloc(&data, 1001) == cudaErrorMemoryAllocation);
  CHECK(cudaMalloc(&data, 600) == cudaSuccess);
  void* more = nullptr;
  CHECK(cudaMalloc(&more, 600) == cudaErrorMemoryAllocation);
  CHECK(cudaFree(data) == cudaSuccess);
  CHECK(cudaMalloc(&data, 600) == cudaSuccess);
  CHECK(cudaHostAlloc(&more, 501, 0) == cudaErrorMemoryAllocation);
  ignore(cudaGetLastError());
}

TEST_CASE("an event is recorded on streams of its own device only", "[fake_cuda]") {
  fake_cuda::reset({.devices = 2, .driver_version = 13000});  // also with headers of CUDA 12.4
  const handles all;
  ignore(cudaSetDevice(1));
  cudaStream_t other = nullptr;
  ignore(cudaStreamCreate(&other));
  CHECK(cudaEventRecord(all.event, other) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamWaitEvent(other, all.event, 0) == cudaSuccess);  // a wait may cross devices
  int device = -1;
  CHECK(cudaStreamGetDevice(other, &device) == cudaSuccess);
  CHECK(device == 1);
  ignore(cudaGetLastError());
}

TEST_CASE("a device has a context from the first call on that needs one", "[fake_cuda]") {
  fake_cuda::reset({.devices = 3});
  const auto contexts = [] {
    return std::vector<std::size_t>{fake_cuda::contexts(0), fake_cuda::contexts(1),
                                    fake_cuda::contexts(2)};
  };
  using counts = std::vector<std::size_t>;
  int device = -1;
  cudaEvent_t event = nullptr;
  SECTION("device queries create no context") {
    CHECK(cudaGetDeviceCount(&device) == cudaSuccess);
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    CHECK(device == 0);
    CHECK(cudaDeviceGetAttribute(&device, cudaDevAttrHostNumaId, 1) == cudaSuccess);
    CHECK(contexts() == counts{0, 0, 0});
  }
  SECTION("a call on a thread without a selected device creates the context of device 0") {
    CHECK(cudaEventCreate(&event) == cudaSuccess);
    CHECK(contexts() == counts{1, 0, 0});
    CHECK(cudaEventDestroy(event) == cudaSuccess);
  }
  SECTION("cudaSetDevice creates the context of the selected device") {
    CHECK(cudaSetDevice(2) == cudaSuccess);
    CHECK(contexts() == counts{0, 0, 1});
    CHECK(cudaEventCreate(&event) == cudaSuccess);
    CHECK(contexts() == counts{0, 0, 1});
    CHECK(cudaSetDevice(0) == cudaSuccess);
    CHECK(contexts() == counts{1, 0, 1});
    std::thread{[&] { CHECK(cudaEventDestroy(event) == cudaSuccess); }}.join();
  }
  SECTION("cudaInitDevice creates a context and does not change the current device") {
    CHECK(cudaInitDevice(1, 0, 0) == cudaSuccess);
    CHECK(cudaInitDevice(3, 0, 0) == cudaErrorInvalidDevice);
    ignore(cudaGetLastError());
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    CHECK(device == 0);
    CHECK(contexts() == counts{0, 1, 0});
  }
  CHECK(fake_cuda::expect_clean());
}

namespace {

/// Returns a driver function by name, or null if the name is unknown.
template <class Function>
Function* driver(const char* name, unsigned version = 12000) {
  void* found = nullptr;
  CHECK(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, nullptr) ==
        cudaSuccess);
  return reinterpret_cast<Function*>(found);
}

}  // namespace

TEST_CASE("the runtime uses the driver's context stack", "[fake_cuda]") {
  fake_cuda::reset({.devices = 2});
  auto* const retain = driver<int(void**, int)>("cuDevicePrimaryCtxRetain");
  auto* const release = driver<int(int)>("cuDevicePrimaryCtxRelease");
  auto* const push = driver<int(void*)>("cuCtxPushCurrent");
  auto* const pop = driver<int(void**)>("cuCtxPopCurrent");
  auto* const current = driver<int(int*)>("cuCtxGetDevice");
  CHECK(driver<void()>("cuMemAlloc") == nullptr);
  CHECK(driver<void()>("cuDevicePrimaryCtxRelease", 10000) == nullptr);
  void* context = nullptr;
  int device = -1;
  CHECK(current(&device) == 201);
  REQUIRE(retain(&context, 1) == 0);
  CHECK(fake_cuda::contexts(1) == 1);
  REQUIRE(push(context) == 0);
  CHECK(current(&device) == 0);
  CHECK(device == 1);
  device = -1;
  CHECK(cudaGetDevice(&device) == cudaSuccess);
  CHECK(device == 1);
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream) == cudaSuccess);
  CHECK(fake_cuda::contexts(0) == 0);
  SECTION("a popped context is no longer current") {
    CHECK(pop(&context) == 0);
    CHECK(pop(&context) == 201);
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    CHECK(device == 0);
    CHECK(fake_cuda::contexts(0) == 0);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);  // needs a context and therefore creates one
    CHECK(fake_cuda::contexts(0) == 1);
    CHECK(release(1) == 0);
    CHECK(release(1) == 201);
    CHECK(fake_cuda::expect_clean());
  }
  SECTION("the last release destroys the context and its streams") {
    CHECK(release(1) == 0);
    CHECK(fake_cuda::contexts(1) == 0);
    REQUIRE(fake_cuda::findings().size() == 1);
    CHECK(fake_cuda::findings()[0].kind == "context destroyed");
    CHECK(cudaStreamDestroy(stream) == cudaErrorContextIsDestroyed);
    CHECK(fake_cuda::findings().size() == 2);
  }
  SECTION("a context that the runtime also uses survives the release") {
    CHECK(cudaInitDevice(1, 0, 0) == cudaSuccess);
    CHECK(release(1) == 0);
    CHECK(fake_cuda::contexts(1) == 1);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(fake_cuda::expect_clean());
  }
}

TEST_CASE("a capture notes work and runs none, its graph runs it each time", "[fake_cuda]") {
  fake_cuda::reset();
  int ran = 0;
  {
    const handles all;
    CHECK(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    fake_cuda::launch(all.one, [&] { ++ran; });
    CHECK(cudaEventRecord(all.event, all.one) == cudaSuccess);
    // The stream joins the capture.
    CHECK(cudaStreamWaitEvent(all.two, all.event, 0) == cudaSuccess);
    fake_cuda::launch(all.two, [&] { ran += 10; });
    CHECK(cudaEventRecord(all.event, all.two) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(all.one, all.event, 0) == cudaSuccess);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(all.one, &graph) == cudaSuccess);
    cudaGraphExec_t exec = nullptr;
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(ran == 0);
    CHECK(cudaGraphLaunch(exec, all.two) == cudaSuccess);
    CHECK(cudaGraphLaunch(exec, all.two) == cudaSuccess);
    CHECK(cudaStreamSynchronize(all.two) == cudaSuccess);
    CHECK(ran == 22);
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
  }
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("an operation that can't be captured invalidates the capture", "[fake_cuda]") {
  fake_cuda::reset({.driver_version = 13000});  // also with headers of CUDA 12.4
  const handles all;
  cudaGraph_t graph = nullptr;
  void* data = nullptr;
  SECTION("a call that may wait, on the capturing thread") {
    CHECK(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(cudaMalloc(&data, 10) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(all.one, &graph) == cudaErrorStreamCaptureInvalidated);
  }
  SECTION("a call that may wait, on another thread in global mode") {
    CHECK(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeGlobal) == cudaSuccess);
    std::thread{[&] {
      CHECK(cudaEventQuery(all.event) == cudaErrorStreamCaptureUnsupported);
    }}.join();
    CHECK(cudaStreamEndCapture(all.one, &graph) == cudaErrorStreamCaptureInvalidated);
  }
  SECTION("a call that may allocate, on another thread in global mode") {
    std::vector<std::byte> mine(16);
    const std::vector<std::function<cudaError_t()>> calls{
        [&] { return cudaEventDestroy(all.event); },
        [&] { return cudaStreamDestroy(all.two); },
        [&] { return cudaMemGetInfo(nullptr, nullptr); },
        [&] { return cudaMemcpyAsync(&data, mine.data(), 8, cudaMemcpyDefault, all.two); },
    };
    for (const auto& call : calls) {
      CHECK(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeGlobal) == cudaSuccess);
      std::thread{[&] { CHECK(call() == cudaErrorStreamCaptureUnsupported); }}.join();
      CHECK(cudaStreamEndCapture(all.one, &graph) == cudaErrorStreamCaptureInvalidated);
    }
  }
  SECTION("a query of the device of a stream") {
    int device = -1;
    CHECK(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeRelaxed) == cudaSuccess);
    CHECK(cudaStreamGetDevice(all.one, &device) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(all.one, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeGlobal) == cudaSuccess);
    std::thread{[&] {
      CHECK(cudaStreamGetDevice(all.two, &device) == cudaErrorStreamCaptureUnsupported);
    }}.join();
    CHECK(cudaStreamEndCapture(all.one, &graph) == cudaErrorStreamCaptureInvalidated);
  }
  SECTION("a graph launch, even in relaxed mode") {
    cudaGraphExec_t exec = nullptr;
    CHECK(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeRelaxed) == cudaSuccess);
    CHECK(cudaStreamEndCapture(all.one, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeRelaxed) == cudaSuccess);
    CHECK(cudaGraphLaunch(exec, all.one) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(all.one, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
  }
  SECTION("but the capturing thread may create and destroy events") {
    cudaEvent_t event = nullptr;
    CHECK(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeGlobal) == cudaSuccess);
    CHECK(cudaEventCreate(&event) == cudaSuccess);
    CHECK(cudaEventDestroy(event) == cudaSuccess);
    CHECK(cudaStreamEndCapture(all.one, &graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  }
  SECTION("but not on a thread in relaxed mode") {
    CHECK(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeGlobal) == cudaSuccess);
    std::thread{[&] {
      auto mode = cudaStreamCaptureModeRelaxed;
      CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
      CHECK(mode == cudaStreamCaptureModeGlobal);
      CHECK(cudaEventQuery(all.event) == cudaSuccess);
    }}.join();
    CHECK(cudaStreamEndCapture(all.one, &graph) == cudaSuccess);
  }
  SECTION("a wait for an event outside the capture") {
    fake_cuda::launch(all.two, [] {});
    CHECK(cudaEventRecord(all.event, all.two) == cudaSuccess);
    CHECK(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeRelaxed) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(all.one, all.event, 0) == cudaErrorStreamCaptureIsolation);
    CHECK(cudaStreamEndCapture(all.one, &graph) == cudaErrorStreamCaptureInvalidated);
  }
  SECTION("a second stream that is not joined before the end") {
    CHECK(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeRelaxed) == cudaSuccess);
    CHECK(cudaEventRecord(all.event, all.one) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(all.two, all.event, 0) == cudaSuccess);
    CHECK(cudaStreamEndCapture(all.one, &graph) == cudaErrorStreamCaptureUnjoined);
  }
  ignore(cudaGetLastError());
}

TEST_CASE("freed memory may not be used", "[fake_cuda]") {
  fake_cuda::reset();
  const handles all;
  void* data = nullptr;
  ignore(cudaMalloc(&data, 100));
  SECTION("in a copy") {
    ignore(cudaFree(data));
    CHECK(cudaMemcpyAsync(static_cast<unsigned char*>(data) + 50, all.pinned, 10, cudaMemcpyDefault,
                          all.one) == cudaErrorInvalidValue);
  }
  SECTION("in work declared to use it") {
    ignore(cudaFree(data));
    fake_cuda::launch(all.one, [] {}, {data});
  }
  SECTION("in a graph that was captured before the free") {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    ignore(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeRelaxed));
    ignore(cudaMemsetAsync(data, 1, 100, all.one));
    ignore(cudaStreamEndCapture(all.one, &graph));
    ignore(cudaGraphInstantiate(&exec, graph, 0));
    ignore(cudaGraphLaunch(exec, all.one));
    CHECK(cudaStreamSynchronize(all.one) == cudaSuccess);
    CHECK(static_cast<unsigned char*>(fake_cuda::inspect(data))[99] == 1);
    ignore(cudaFree(data));
    CHECK_FALSE(has_finding("use after free"));
    ignore(cudaGraphLaunch(exec, all.one));
    ignore(cudaGraphExecDestroy(exec));
    ignore(cudaGraphDestroy(graph));
  }
  CHECK(has_finding("use after free"));
  ignore(cudaGetLastError());
}

TEST_CASE("a copy that begins before an allocation and runs into it is out of bounds",
          "[fake_cuda]") {
  fake_cuda::reset();
  const handles all;
  CHECK(cudaMemcpyAsync(all.device - 1, all.pinned, 10, cudaMemcpyDefault, all.one) ==
        cudaErrorInvalidValue);
  CHECK(has_finding("out of bounds"));
  ignore(cudaGetLastError());
}

TEST_CASE("a handle gets one attempt to be freed, also where every call fails", "[fake_cuda]") {
  fake_cuda::reset({.device_memory = 100});
  void* data = nullptr;
  ignore(cudaMalloc(&data, 100));
  fake_cuda::fail_call(0, cudaErrorUnknown);
  CHECK(cudaFree(data) == cudaErrorUnknown);
  CHECK(fake_cuda::live().device_blocks == 0);
  CHECK(fake_cuda::findings().empty());
  CHECK(cudaMalloc(&data, 100) == cudaSuccess);  // freed memory no longer counts towards the limit
  fake_cuda::fail_from(0, cudaErrorUnknown);
  ignore(cudaFree(data));
  CHECK(fake_cuda::findings().empty());
  ignore(cudaFree(data));
  CHECK(has_finding("double free"));
  fake_cuda::reset();
}

TEST_CASE("waiting for a device leaves the others alone", "[fake_cuda]") {
  fake_cuda::reset({.policy = policy::late, .devices = 2});
  bool here = false;
  bool there = false;
  const handles all;
  fake_cuda::launch(all.one, [&] { here = true; });
  ignore(cudaSetDevice(1));
  cudaStream_t other = nullptr;
  void* data = nullptr;
  ignore(cudaStreamCreate(&other));
  ignore(cudaMalloc(&data, 10));
  fake_cuda::launch(other, [&] { there = true; });
  SECTION("in cudaDeviceSynchronize") { CHECK(cudaDeviceSynchronize() == cudaSuccess); }
  SECTION("in cudaFree, which also waits") { CHECK(cudaFree(data) == cudaSuccess); }
  CHECK(there);
  CHECK_FALSE(here);
}

TEST_CASE("a wait for the whole device ends a capture in any mode", "[fake_cuda]") {
  fake_cuda::reset();
  const handles all;
  cudaGraph_t graph = nullptr;
  ignore(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeRelaxed));
  std::thread{[] {
    auto mode = cudaStreamCaptureModeRelaxed;
    ignore(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK(cudaDeviceSynchronize() == cudaErrorStreamCaptureUnsupported);
  }}.join();
  CHECK(cudaStreamEndCapture(all.one, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(graph == nullptr);
}

TEST_CASE("a kernel is launched on streams of the thread's device only", "[fake_cuda]") {
  fake_cuda::reset({.devices = 2});
  const handles all;
  ignore(cudaSetDevice(1));
  fake_cuda::launch(all.one, [] { FAIL("must not run"); });
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  CHECK(has_finding("wrong device"));
}

TEST_CASE("a kernel uses memory of its own device only", "[fake_cuda]") {
  fake_cuda::reset({.devices = 2});
  const handles all;
  ignore(cudaSetDevice(1));
  cudaStream_t other = nullptr;
  ignore(cudaStreamCreate(&other));
  fake_cuda::launch(other, [] {}, {all.pinned});
  CHECK(fake_cuda::findings().empty());
  fake_cuda::launch(other, [] {}, {all.device});
  CHECK(has_finding("wrong device"));
}

TEST_CASE("work that throws is a finding, and its stream continues", "[fake_cuda]") {
  const auto when = GENERATE(policy::late, policy::early, policy::random);
  fake_cuda::reset({.policy = when, .seed = 3});
  const handles all;
  bool after = false;
  fake_cuda::launch(all.one, [] { throw 1; });
  fake_cuda::launch(all.one, [&] { after = true; });
  CHECK(cudaStreamSynchronize(all.one) == cudaSuccess);
  CHECK(after);
  CHECK(has_finding("work threw"));
}

TEST_CASE("an event recorded in a capture orders nothing after it", "[fake_cuda]") {
  fake_cuda::reset();
  const handles all;
  cudaGraph_t graph = nullptr;
  ignore(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeRelaxed));
  ignore(cudaEventRecord(all.event, all.one));
  ignore(cudaStreamEndCapture(all.one, &graph));
  CHECK(cudaStreamWaitEvent(all.two, all.event, 0) == cudaErrorCapturedEvent);
  auto status = cudaStreamCaptureStatusActive;
  CHECK(cudaStreamIsCapturing(all.two, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusNone);
  CHECK(cudaEventQuery(all.event) == cudaErrorCapturedEvent);
  CHECK(cudaEventRecord(all.event, all.one) == cudaSuccess);
  CHECK(cudaEventQuery(all.event) == cudaSuccess);
  ignore(cudaGraphDestroy(graph));
  ignore(cudaGetLastError());
}

TEST_CASE("two captures do not merge, and an invalid capture accepts no work", "[fake_cuda]") {
  fake_cuda::reset();
  const handles all;
  cudaGraph_t graph = nullptr;
  ignore(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeRelaxed));
  ignore(cudaStreamBeginCapture(all.two, cudaStreamCaptureModeRelaxed));
  ignore(cudaEventRecord(all.event, all.one));
  CHECK(cudaStreamWaitEvent(all.two, all.event, 0) == cudaErrorStreamCaptureMerge);
  CHECK(all.copy_in(all.two) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamEndCapture(all.two, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamQuery(all.one) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(all.one, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(all.copy_in(all.one) == cudaSuccess);
  ignore(cudaGetLastError());
}

TEST_CASE("a capture ends on the stream where it began", "[fake_cuda]") {
  fake_cuda::reset();
  const handles all;
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(all.one, &graph) == cudaErrorIllegalState);
  ignore(cudaStreamBeginCapture(all.one, cudaStreamCaptureModeThreadLocal));
  std::thread{[&] {
    CHECK(cudaStreamEndCapture(all.one, &graph) == cudaErrorStreamCaptureWrongThread);
  }}.join();
  ignore(cudaEventRecord(all.event, all.one));
  ignore(cudaStreamWaitEvent(all.two, all.event, 0));
  CHECK(cudaStreamEndCapture(all.two, &graph) == cudaErrorStreamCaptureUnmatched);
  ignore(cudaEventRecord(all.event, all.two));
  ignore(cudaStreamWaitEvent(all.one, all.event, 0));
  CHECK(cudaStreamEndCapture(all.one, &graph) == cudaSuccess);
  ignore(cudaGraphDestroy(graph));
  ignore(cudaGetLastError());
}

TEST_CASE("the trace shows the last calls and what ran", "[fake_cuda]") {
  fake_cuda::reset({.policy = policy::late});
  const handles all;
  ignore(all.copy_in(all.one));
  ignore(cudaStreamQuery(all.one));
  ignore(cudaStreamSynchronize(all.one));
  ignore(cudaGetLastError());
  const std::string trace = fake_cuda::trace();
  const auto called = trace.find("thread 0: cudaMemcpyAsync");
  const auto not_ready = trace.find("thread 0: cudaStreamQuery gave cudaErrorNotReady");
  const auto waited = trace.find("thread 0: cudaStreamSynchronize");
  const auto ran = trace.find("stream 0: copy of 1000 bytes");
  REQUIRE(ran != std::string::npos);
  CHECK(called < not_ready);
  CHECK(not_ready < waited);
  CHECK(waited < ran);
}

namespace {

bool is_reported(const std::string& said, const std::string& where) {
  CAPTURE(said, where);
  return said.find("device memory touched by the host outside of an operation") !=
             std::string::npos &&
         said.find(where) != std::string::npos;
}

}  // namespace

TEST_CASE("device memory that the host touches outside of an operation ends the process",
          "[fake_cuda]") {
  fake_cuda::reset({.policy = policy::late});
  const handles all;
  volatile unsigned char* const data = all.device;
  const std::string where = "byte 7 of the 1000 bytes";
  CHECK(is_reported(last_words([&] { static_cast<void>(data[7]); }), where));
  CHECK(is_reported(last_words([&] { data[7] = 1; }), where));
  // Work that represents a kernel may touch device memory. Afterwards, no code may touch it.
  fake_cuda::launch(all.one, [&] { data[7] = 3; });
  CHECK(cudaStreamSynchronize(all.one) == cudaSuccess);
  CHECK(all.seen()[7] == 3);
  CHECK(is_reported(last_words([&] { static_cast<void>(data[7]); }), where));
  // A host function does not represent a kernel.
  const auto touch = [](void* address) { *static_cast<volatile unsigned char*>(address) = 1; };
  CHECK(cudaLaunchHostFunc(all.one, touch, all.device + 7) == cudaSuccess);
  CHECK(is_reported(last_words([&] { ignore(cudaStreamSynchronize(all.one)); }), "0x"));
  CHECK(cudaMemsetAsync(all.device, 1, 8, all.two) == cudaSuccess);
  fake_cuda::fail_from(0, cudaErrorUnknown);  // drops the pending host function
  ignore(cudaDeviceSynchronize());
}

TEST_CASE("device memory is closed while work is held that does not touch it", "[fake_cuda]") {
  fake_cuda::reset({.policy = policy::early});
  const handles all;
  std::atomic<bool> is_held{false};
  std::atomic<bool> open{false};
  fake_cuda::launch(all.one, [&] {
    is_held = true;
    while (!open.load()) std::this_thread::yield();
  });
  while (!is_held.load()) std::this_thread::yield();
  CHECK(is_reported(last_words([&] { *static_cast<volatile unsigned char*>(all.device) = 1; }),
                    "0x"));
  open = true;
  CHECK(cudaStreamSynchronize(all.one) == cudaSuccess);
}
