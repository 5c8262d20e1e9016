// SPDX-License-Identifier: BSL-1.0
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include <penstock/memory/registered_memory.hpp>

#include "cuda/clean_fake.hpp"
#include "cuda/digits_flow.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("a transfer for each device, each on its own thread, delivers its own batches",
          "[cuda]") {
  const auto policy =
      GENERATE(fake_cuda::policy::late, fake_cuda::policy::early, fake_cuda::policy::random);
  fake_cuda::reset({.policy = policy, .seed = 11, .devices = 3});
  std::vector<digits_flow::outcome> found(3);
  {
    std::vector<std::jthread> threads;
    for (int ordinal = 0; ordinal < 3; ++ordinal) {
      threads.emplace_back([ordinal, &one = found[static_cast<std::size_t>(ordinal)]] {
        digits_flow::run(ps::cuda_device{ordinal}, {.epochs = 2}, one);
      });
    }
  }
  for (const auto& one : found) {
    CHECK(one.right == 12);
    CHECK(one.wrong == 0);
  }
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("a thread may feed a device that is not current, and its current one stays", "[cuda]") {
  fake_cuda::reset({.devices = 2});
  digits_flow::outcome found;
  digits_flow::run(ps::cuda_device{1}, {.epochs = 1}, found);
  CHECK(found.right == 6);
  int current = -1;
  CHECK(cudaGetDevice(&current) == cudaSuccess);
  CHECK(current == 0);
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("a wait for a device covers all its work, for any current device", "[cuda]") {
  const clean_fake until_the_end{{.policy = fake_cuda::policy::late, .devices = 2}};
  const ps::cuda_device device{1};
  const auto stream = device.make_stream();
  bool ran = false;
  {
    const auto current = device.enter_scope();
    fake_cuda::launch(stream.get(), [&ran] { ran = true; });
  }
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  device.synchronize();
  CHECK(ran);
  int current = -1;
  CHECK(cudaGetDevice(&current) == cudaSuccess);
  CHECK(current == 0);
}

TEST_CASE("a stream of another device than the loader's is rejected", "[cuda][fault:devices-8]") {
  const clean_fake until_the_end{{.devices = 2}};
  const ps::cuda_stream stream = ps::cuda_device{0}.make_stream();
  ps::loader loader{
      digits_flow::digits{}, ps::sequential{}, ps::cuda_device{1}, {.batch_size = 16}};
  CHECK_THROWS_AS((ps::transfer{loader, stream}), ps::stream_of_another_device);
}

TEST_CASE("memory is pinned for every device, however it was allocated", "[cuda]") {
  const clean_fake until_the_end{{.devices = 2}};
  const ps::cuda_device first{0};
  const ps::cuda_device second{1};
  const auto stream = second.make_stream();
  constexpr std::size_t bytes = 100;
  void* const to = second.allocate(bytes);
  const auto copy = [&](const void* from) {
    second.copy_async(to, from, bytes, stream);
    second.synchronize(ps::cuda_stream_ref{stream});
    CHECK(fake_cuda::statistics().synchronous_copies == 0);
  };
  SECTION("a small block that the driver allocates") {
    const auto block = first.allocate_pinned(bytes);
    std::memset(block.data, 1, bytes);
    copy(block.data);
    first.deallocate_pinned(block.data, bytes);
  }
  SECTION("a large block in pages that the library allocates") {
    constexpr std::size_t much = ps::detail::small_pinned_bytes + 1;
    const auto block = first.allocate_pinned(much);
    copy(block.data);
    first.deallocate_pinned(block.data, much);
  }
  SECTION("registered memory of the program") {
    std::vector<std::byte> owner(10'000);
    const ps::registered_memory registered{first, std::span{owner}};
    copy(owner.data());
  }
  second.deallocate(to, bytes);
}
