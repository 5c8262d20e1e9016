// SPDX-License-Identifier: BSL-1.0
// Tests device memory from a resource of the program.
#include <penstock/cuda/device_memory_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory_resource>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock_ext/bulk/bulk_copier.hpp>
#include <penstock_ext/results/results.hpp>

#include "cuda/clean_fake.hpp"
#include "cuda/digits_flow.hpp"
#include "cuda/seeds.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"
#include "support/device_arena.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;

namespace {

/// A resource whose functions call `cudaMalloc` and `cudaFree`, so that the fake finds memory
/// that is returned while work uses it. `how` selects the way in which it
/// fails. Any thread may use it, one at a time.
struct failing_resource {
  enum class way { none, null, bad_alloc, runtime_error, misaligned, other_device, own_error };

  way how = way::none;
  std::size_t live = 0;
  std::size_t rejections = 0;  // calls of `allocate` that have failed
  std::size_t bad_calls = 0;   // CUDA calls that failed for another reason
  int device = -1;             // the current device during the latest call

  void* allocate(std::size_t bytes, std::size_t) {
    require(cudaGetDevice(&device));
    ++rejections;
    if (how == way::null) return nullptr;
    if (how == way::bad_alloc) throw std::bad_alloc{};
    if (how == way::runtime_error) throw std::runtime_error{"the pool is empty"};
    if (how == way::own_error) throw ps::option_error("pool", "is closed");
    if (how == way::other_device) require(cudaSetDevice(1));
    void* data = nullptr;
    const cudaError_t code = cudaMalloc(&data, bytes + 256);  // an error stays pending
    if (how == way::other_device) require(cudaSetDevice(0));
    if (code != cudaSuccess) return nullptr;
    --rejections;
    ++live;
    return static_cast<std::byte*>(data) + offset();
  }
  void deallocate(void* data, std::size_t, std::size_t) noexcept {
    require(cudaGetDevice(&device));
    require(cudaFree(static_cast<std::byte*>(data) - offset()));
    --live;
  }

 private:
  void require(cudaError_t code) noexcept { bad_calls += code == cudaSuccess ? 0U : 1U; }
  [[nodiscard]] std::ptrdiff_t offset() const noexcept { return how == way::misaligned ? 16 : 0; }
};

/// A resource with both pairs of names. Only `allocate_sync` and `deallocate_sync` may be called.
struct two_names {
  std::size_t calls = 0;
  void* allocate(std::size_t, std::size_t) { throw std::logic_error{"not preferred"}; }
  void deallocate(void*, std::size_t, std::size_t) {}
  void* allocate_sync(std::size_t bytes, std::size_t) {
    ++calls;
    void* data = nullptr;
    CHECK(cudaMalloc(&data, bytes) == cudaSuccess);
    return data;
  }
  void deallocate_sync(void* data, std::size_t, std::size_t) noexcept {
    ++calls;
    CHECK(cudaFree(data) == cudaSuccess);
  }
};

/// A pool with the same functions as RMM. The memory may be used only in the order of a stream,
/// because work on the stream still writes to it.
struct stream_ordered_pool {
  std::size_t live = 0;

  void* allocate_async(std::size_t bytes, std::size_t, cudaStream_t stream) {
    void* data = nullptr;
    CHECK(cudaMalloc(&data, bytes) == cudaSuccess);
    ++live;
    fake_cuda::launch(stream, [=] { std::memset(data, fake_cuda::poison, bytes); }, {data});
    return data;
  }
  void deallocate_async(void* data, std::size_t, std::size_t, cudaStream_t) noexcept {
    CHECK(cudaFree(data) == cudaSuccess);
    --live;
  }
};

/// The wrapper that docs/existing_code.md shows.
struct synchronous_pool {
  stream_ordered_pool* pool;
  cudaStream_t stream;

  void* allocate(std::size_t bytes, std::size_t alignment) {
    void* const data = pool->allocate_async(bytes, alignment, stream);
    return cudaStreamSynchronize(stream) == cudaSuccess ? data : nullptr;
  }
  void deallocate(void* data, std::size_t bytes, std::size_t alignment) noexcept {
    pool->deallocate_async(data, bytes, alignment, stream);
  }
};

struct half_a_resource {
  void* allocate(std::size_t, std::size_t);
};

static_assert(std::is_convertible_v<failing_resource&, ps::device_memory_ref>);
static_assert(std::is_convertible_v<std::pmr::memory_resource&, ps::device_memory_ref>);
static_assert(std::is_constructible_v<ps::cuda_device, int, failing_resource&>);
// A temporary resource would be destroyed before its memory.
static_assert(!std::is_constructible_v<ps::device_memory_ref, failing_resource>);
static_assert(!std::is_constructible_v<ps::cuda_device, int, failing_resource>);
static_assert(!std::is_constructible_v<ps::device_memory_ref, half_a_resource&>);
static_assert(!std::is_constructible_v<ps::device_memory_ref, int&>);
static_assert(std::is_trivially_copyable_v<ps::device_memory_ref>);
static_assert(std::is_trivially_copyable_v<ps::cuda_device>);

using sums = ps::record<ps::field<"sum", std::uint64_t>>;

/// Runs an epoch through a transform, results and a bulk transfer. Returns the sums of all images,
/// in order, and then the words of the bulk transfer.
std::vector<std::uint64_t> sums_through_everything(const ps::cuda_device& device) {
  const auto stream = device.make_stream();
  std::vector<std::uint64_t> all;
  {
    ps::loader loader{digits_flow::digits{96}, ps::shuffled{.seed = 4}, device, {.batch_size = 16}};
    const auto copy = [](auto in, auto out, ps::cuda_stream_ref on) {
      fake_cuda::launch(on.get(),
                        [from = ps::get<"image">(in).flat(), to = ps::get<"image">(out).flat()] {
                          for (std::size_t i = 0; i < from.size(); ++i) to[i] = from[i];
                        },
                        {ps::get<"image">(in).data(), ps::get<"image">(out).data()});
    };
    ps::transfer feed{loader, stream, ps::on_stream<digits_flow::record>(copy)};
    ps::results<sums, ps::cuda_device> out{device, stream, 16, [&](const auto& done) {
                                             const auto sum = ps::get<"sum">(done).flat();
                                             all.insert(all.end(), sum.begin(), sum.end());
                                           }};
    for (auto& [batch, slot] : ps::zip_results(feed.epoch(0), out)) {
      const auto work = [images = ps::get<"image">(batch).flat(),
                         sum = ps::get<"sum">(slot).flat()] {
        for (std::size_t n = 0; n < sum.size(); ++n) {
          sum[n] = 0;
          for (std::size_t i = 0; i < 784; ++i) sum[n] = sum[n] * 31 + images[n * 784 + i];
        }
      };
      fake_cuda::launch(stream.get(), work, {batch.data(), slot.data()});
    }
    out.finish();
  }
  constexpr std::size_t words = 3000;
  void* const weights = device.allocate(words * 8);
  const std::span<std::byte> range{static_cast<std::byte*>(weights), words * 8};
  std::vector<std::uint64_t> saved(words);
  {
    std::vector<std::uint64_t> start(words);
    for (std::size_t i = 0; i < words; ++i) start[i] = 77 * i;
    ps::bulk_copier copier{device, {.workers = 1, .piece_bytes = 4096, .snapshot = true}};
    copier.upload(stream, range, ps::memory_source{std::as_bytes(std::span{std::as_const(start)})})
        .wait(stream);
    copier.download(stream, ps::memory_sink{std::as_writable_bytes(std::span{saved})}, range)
        .wait();
  }
  device.deallocate(weights, words * 8);
  all.insert(all.end(), saved.begin(), saved.end());
  return all;
}

}  // namespace

TEST_CASE("with a resource of the program, nothing calls cudaMalloc, and all memory is returned",
          "[cuda][memory]") {
  const clean_fake runtime{{.policy = fake_cuda::policy::random, .seed = 3}};
  const auto expected = sums_through_everything(ps::cuda_device{0});
  test::device_arena arena;
  const auto mallocs = fake_cuda::calls_of("cudaMalloc");
  const auto frees = fake_cuda::calls_of("cudaFree");
  CHECK(sums_through_everything(ps::cuda_device{0, arena}) == expected);
  CHECK(fake_cuda::calls_of("cudaMalloc") == mallocs);
  CHECK(fake_cuda::calls_of("cudaFree") == frees);
  // The resource owns the slots of the feed, two staging buffers, the slots of the results, the
  // weights and their snapshot.
  CHECK(arena.allocations == 6);
  CHECK(arena.alignments == std::map<std::size_t, std::size_t>{{256, 6}});
  CHECK(arena.bytes() == 0);
}

TEST_CASE("a feed reports the bytes that it has allocated from the program's resource",
          "[cuda][memory]") {
  const clean_fake runtime;
  test::device_arena arena;
  {
    const ps::cuda_device device{0, arena};
    const auto stream = device.make_stream();
    ps::loader loader{digits_flow::digits{96}, ps::sequential{}, device, {.batch_size = 16}};
    CHECK(arena.bytes() == 0);
    ps::transfer feed{loader, stream};
    CHECK(feed.device_bytes() == arena.bytes());
    CHECK(arena.bytes() != 0);
    auto& batch = feed.next();
    CHECK(batch.device() == ps::cuda_device{0});  // the same GPU
    CHECK(reinterpret_cast<std::uintptr_t>(batch.data()) % 256 == 0);
  }
  CHECK(arena.bytes() == 0);
}

TEST_CASE("batches in the program's memory are right in any order of the device's work",
          "[cuda][memory][promise:race-free-4]") {
  for (std::uint64_t seed = 0; seed < seed_count() / 4; ++seed) {
    const auto policy = policy_of(seed);
    INFO("seed " << seed);
    fake_cuda::reset({.policy = policy, .seed = seed});
    failing_resource memory;
    digits_flow::outcome found;
    digits_flow::run(ps::cuda_device{0, memory}, {.depth = 1 + seed % 3}, found);
    CHECK(found.right == 6);
    CHECK(found.wrong == 0);
    CHECK(memory.live == 0);
    CHECK(fake_cuda::expect_clean());
  }
}

TEST_CASE("a resource that fails throws out_of_memory, and leaves no error behind",
          "[cuda][memory][fault:memory-4]") {
  const clean_fake runtime{{.device_memory = 10'000}};
  using way = failing_resource::way;
  const auto how = GENERATE(way::none, way::null, way::bad_alloc, way::runtime_error);
  failing_resource memory{.how = how};
  const ps::cuda_device device{0, memory};
  const auto error =
      test::error_of<ps::out_of_memory>([&] { static_cast<void>(device.allocate(1'000'000)); });
  CHECK(error.bytes() == 1'000'000);
  CHECK(test::has(error.what(), "device memory"));
  CHECK(test::has(error.what(), "the program's memory resource"));
  if (how == way::runtime_error) CHECK(test::has(error.what(), "the pool is empty"));
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK_THROWS_AS(device.allocate(0), ps::out_of_memory);
  CHECK(memory.live == 0);
}

TEST_CASE("an exception of the library passes through a resource unchanged", "[cuda][memory]") {
  const clean_fake runtime;
  failing_resource memory{.how = failing_resource::way::own_error};
  const ps::cuda_device device{0, memory};
  CHECK_THROWS_AS(device.allocate(1000), ps::option_error);
}

TEST_CASE("memory that slots cannot use is returned, and the error names the reason",
          "[cuda][memory][fault:memory-9]") {
  const clean_fake runtime{{.devices = 2}};
  const bool is_misaligned = GENERATE(true, false);
  failing_resource memory{.how = is_misaligned ? failing_resource::way::misaligned
                                               : failing_resource::way::other_device};
  const ps::cuda_device device{0, memory};
  const auto error =
      test::error_of<ps::unusable_device_memory>([&] { static_cast<void>(device.allocate(1000)); });
  CHECK(test::has(error.what(), is_misaligned ? "16 bytes past a multiple of 256" : "device 1"));
  CHECK(memory.live == 0);
  const auto stream = device.make_stream();
  ps::loader loader{digits_flow::digits{96}, ps::sequential{}, device, {.batch_size = 16}};
  CHECK_THROWS_AS((ps::transfer{loader, stream}), ps::unusable_device_memory);
  CHECK(memory.live == 0);
}

TEST_CASE("an error of the program is not hidden by its resource", "[cuda][memory]") {
  const clean_fake runtime;
  failing_resource memory;
  const ps::cuda_device device{0, memory};
  fake_cuda::fail_call_of("cudaMemGetInfo", 0, cudaErrorInvalidValue);
  std::size_t free = 0;
  std::size_t total = 0;
  CHECK(cudaMemGetInfo(&free, &total) == cudaErrorInvalidValue);
  CHECK_THROWS_AS(device.allocate(1000), ps::pending_cuda_error);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

TEST_CASE("an automatic depth stays as it is if the program's resource has no more memory",
          "[cuda][memory][fault:memory-4]") {
  const clean_fake runtime;
  failing_resource memory;
  {
    const ps::cuda_device device{0, memory};
    const auto stream = device.make_stream();
    ps::loader loader{
        digits_flow::digits{320}, ps::sequential{}, device, {.batch_size = 16, .prefetch = 8}};
    ps::transfer feed{loader, stream, {.depth = ps::automatic}};
    auto first = std::move(feed.next());
    auto second = std::move(feed.next());
    auto third = std::move(feed.next());
    CHECK(memory.live == 2);  // the two initial slots and one additional slot
    memory.how = failing_resource::way::null;
    CHECK_THROWS_AS(feed.next(), ps::leases_exhausted);
    CHECK(memory.rejections == 1);
    CHECK(memory.live == 2);
    first = {};
    feed.resume(feed.state());
    CHECK(feed.next().number() == 3);
  }
  CHECK(memory.live == 0);
  CHECK(memory.bad_calls == 0);
}

TEST_CASE("the functions of a resource run with their device current, and allow captures",
          "[cuda][memory]") {
  const clean_fake runtime{{.devices = 2}};
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  std::thread{[] {
    failing_resource memory;
    const ps::cuda_device device{1, memory};
    void* const data = device.allocate(1000);
    const bool is_current = memory.device == 1;
    memory.device = 0;
    device.deallocate(data, 1000);
    if (!is_current || memory.device != 1 || memory.live != 0) std::abort();
    device.deallocate(nullptr, 1000);
  }}.join();
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("a resource with the names of CCCL 3.1 is used through them", "[cuda][memory]") {
  const clean_fake runtime;
  two_names memory;
  const ps::cuda_device device{0, memory};
  device.deallocate(device.allocate(1000), 1000);
  CHECK(memory.calls == 2);
}

TEST_CASE("a wrapper that synchronizes makes a stream-ordered pool usable", "[cuda][memory]") {
  const clean_fake runtime;
  stream_ordered_pool own;
  {
    const auto stream = ps::cuda_device{0}.make_stream();
    synchronous_pool pool{&own, stream.get()};
    digits_flow::outcome found;
    digits_flow::run(ps::cuda_device{0, pool}, {}, found);
    CHECK(found.right == 6);
    CHECK(found.wrong == 0);
  }
  CHECK(own.live == 0);
}

TEST_CASE("copies of a device allocate from the same resource", "[cuda][memory]") {
  const clean_fake runtime;
  test::device_arena arena;
  const ps::cuda_device device{0, arena};
  const ps::cuda_device copy = device;
  void* const data = copy.allocate(500);
  CHECK(arena.bytes() == 500);
  device.deallocate(data, 500);
  CHECK(arena.bytes() == 0);
}
