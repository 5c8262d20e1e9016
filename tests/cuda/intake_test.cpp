// SPDX-License-Identifier: BSL-1.0
// Tests that frames pushed into an intake are copied to a GPU. The frames are written by host
// threads or by work on streams, and the device runs its work in any permitted order.
#include <penstock_ext/intake/intake.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>

#include <penstock/cuda.hpp>
#include <penstock_ext/results/results.hpp>

#include "cuda/clean_fake.hpp"
#include "cuda/seeds.hpp"
#include "ext/intake/clouds.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using cuda_clouds = ps::intake<cloud_record, ps::cuda_device>;
using cuda_frames = ps::intake<frame_record, ps::cuda_device>;

/// Acquires a slot and makes `stream` write cloud `number` into it.
template <class Intake>
auto slot_of_cloud(Intake& in, std::uint64_t number, std::uint64_t points,
                   ps::cuda_stream_ref stream) {
  auto slot = in.acquire();
  const auto write = [buffer = slot.buffer(), number, points] {
    ps::get<"number">(buffer)[0] = number;
    for (std::uint64_t i = 0; i < points; ++i) ps::get<"points">(buffer)(i) = number;
  };
  fake_cuda::launch(stream.get(), write, {slot.bytes().data()});
  return slot;
}

/// Returns a fake kernel that checks a batch.
template <class Batch>
auto checks(const Batch& batch, std::atomic<std::uint64_t>& right) {
  return [points = ps::get<"points">(batch), number = batch.tag(), &right] {
    bool all = points.size() == 1 && points.length(0) == number % 30;
    for (const auto point : points[0].flat()) all = all && point == number;
    right += all ? 1 : 0;
  };
}

}  // namespace

TEST_CASE("clouds arrive on the GPU as a thread or a stream wrote them, whenever the device works",
          "[cuda][intake][promise:exact-27][promise:race-free-16]") {
  for (std::uint64_t seed = 0; seed < seed_count() + 2; ++seed) {
    INFO("seed " << seed);
    const auto policy = seed == 0   ? fake_cuda::policy::late
                        : seed == 1 ? fake_cuda::policy::early
                                    : fake_cuda::policy::random;
    const clean_fake fresh{{.policy = policy, .seed = seed}};
    const ps::cuda_device device{0};
    const auto stream = device.make_stream();
    const auto second = device.make_stream();
    const auto writer = device.make_stream();
    cuda_clouds in{device, {{}, {.longest = 30}}, {.slot_count = 3}};
    std::thread producer{[&] {
      for (std::uint64_t number = 0; number < 60; ++number) {
        if (number % 2 == 0) {
          push_cloud(in, number, number % 30);
        } else {
          const auto current = device.enter_scope();
          auto slot = slot_of_cloud(in, number, number % 30, writer);
          slot.commit_after(writer, {.lengths = {number % 30}, .tag = number});
        }
      }
      in.close();
    }};
    std::atomic<std::uint64_t> right{0};
    std::uint64_t expected = 0;
    const auto zero_copy = seed % 2 == 0 ? ps::zero_copy_use::never : ps::zero_copy_use::always;
    ps::transfer feed{in, stream, {.depth = 2, .tuning = {.zero_copy = zero_copy}}};
    for (auto& batch : feed.epoch(0)) {
      CHECK(batch.tag() == expected++);
      const auto current = device.enter_scope();
      batch.also_used_on(second);
      fake_cuda::launch(stream.get(), checks(std::as_const(batch), right), {batch.data()});
      fake_cuda::launch(second.get(), checks(std::as_const(batch), right), {batch.data()});
    }
    producer.join();
    device.synchronize(ps::cuda_stream_ref{stream});
    device.synchronize(ps::cuda_stream_ref{second});
    CHECK(expected == 60);
    CHECK(right == 120);
  }
}

TEST_CASE("a step over pushed frames is replayed as a graph and returns results in order",
          "[cuda][intake]") {
  using sum_record = ps::record<ps::field<"sum", std::uint64_t>>;
  const auto policy =
      GENERATE(fake_cuda::policy::late, fake_cuda::policy::early, fake_cuda::policy::random);
  const clean_fake fresh{{.policy = policy, .seed = 5}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  constexpr std::uint64_t count = 40;
  cuda_frames in{device, {.slot_count = 3}};
  std::thread producer{[&] {
    for (std::uint64_t number = 0; number < count; ++number) {
      auto slot = in.acquire();
      write_frame(slot, number);
      slot.commit({.tag = number});
    }
    in.close();
  }};
  std::uint64_t expected = 0;
  bool are_right = true;
  ps::results<sum_record, ps::cuda_device> out{device, stream, 1, [&](const auto& done) {
                                                 are_right =
                                                     are_right && done.number() == expected &&
                                                     ps::get<"sum">(done)(0) == 16 * expected;
                                                 ++expected;
                                               }};
  ps::transfer feed{in, stream, {.depth = 2}};
  ps::step_graphs graphs{device};
  std::uint64_t calls = 0;
  for (auto& [batch, slot] : ps::zip_results(feed.epoch(0), out)) {
    // Before clang 16, a lambda cannot capture a structured binding.
    const auto& frame = batch;
    auto& result = slot;
    graphs.launch(batch, stream, [&](ps::cuda_stream_ref on) {
      ++calls;
      const auto step = [pixels = ps::get<"pixels">(frame).flat(), sum = ps::get<"sum">(result)] {
        sum(0) = 0;
        for (const auto pixel : pixels) sum(0) += pixel;
      };
      fake_cuda::launch(on.get(), step, {frame.data(), result.data()});
    });
  }
  out.finish();
  producer.join();
  CHECK(expected == count);
  CHECK(are_right);
  CHECK(calls == graphs.size());
  CHECK(calls < count);  // most frames only replay a graph
}

TEST_CASE("the copy waits for a stream of another GPU that writes the batch",
          "[cuda][intake][promise:race-free-16]") {
  const clean_fake fresh{{.policy = fake_cuda::policy::late, .devices = 2}};
  const ps::cuda_device device{0};
  const ps::cuda_device other{1};
  const auto stream = device.make_stream();
  const auto writer = other.make_stream();
  cuda_clouds in{device, {{}, {.longest = 30}}, {.slot_count = 2}};
  std::atomic<std::uint64_t> right{0};
  {
    ps::transfer feed{in, stream};
    for (std::uint64_t number = 1; number < 6; ++number) {
      {
        const auto current = other.enter_scope();
        auto slot = slot_of_cloud(in, number, number % 30, writer);
        CHECK_THROWS_AS(slot.commit_after(writer, {.lengths = {number % 30}}),
                        ps::stream_of_another_device);
        CHECK(slot.commit_after(writer, {.lengths = {number % 30}, .tag = number}, other));
      }
      const auto& batch = std::as_const(feed.next());
      CHECK(batch.tag() == number);
      const auto current = device.enter_scope();
      fake_cuda::launch(stream.get(), checks(batch, right), {batch.data()});
    }
  }
  device.synchronize(ps::cuda_stream_ref{stream});
  CHECK(right == 5);
}

TEST_CASE("a slot can't be committed after a stream that is being captured",
          "[cuda][intake][fault:producers-5]") {
  const clean_fake fresh{{.policy = fake_cuda::policy::late}};
  const ps::cuda_device device{0};
  const auto writer = device.make_stream();
  cuda_frames in{device, {.slot_count = 1}};
  auto slot = in.acquire();
  REQUIRE(cudaStreamBeginCapture(writer.get(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK_THROWS_AS(slot.commit_after(writer), ps::capture_in_progress);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(writer.get(), &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(slot);
  write_frame(slot, 4);
  CHECK(slot.commit());
  CHECK(has_frames(in.next(), 4));
}

TEST_CASE("memory of the caller is registered as long as batches use it", "[cuda][intake]") {
  const clean_fake fresh{{.policy = fake_cuda::policy::late}};
  const ps::cuda_device device{0};
  constexpr std::size_t bytes = 4 * 4096;
  void* const memory = ps::cpu_device{}.allocate_pageable(bytes);
  {
    const auto stream = device.make_stream();
    std::optional<cuda_frames> in{
        std::in_place, device,
        ps::intake_options{.slot_count = 4, .memory = {static_cast<std::byte*>(memory), bytes}}};
    CHECK(fake_cuda::calls_of("cudaHostRegister") == 1);
    push_frame(*in, 7);
    auto batch = in->next();
    in.reset();
    CHECK(fake_cuda::calls_of("cudaHostUnregister") == 0);
    CHECK(has_frames(batch, 7));
    batch = {};
    CHECK(fake_cuda::calls_of("cudaHostUnregister") == 1);
  }
  ps::cpu_device{}.deallocate(memory, bytes);
}

TEST_CASE("memory that a stream still writes is freed after that", "[cuda][intake]") {
  const clean_fake fresh{{.policy = fake_cuda::policy::late}};
  const ps::cuda_device device{0};
  const auto writer = device.make_stream();
  {
    const auto current = device.enter_scope();
    cuda_clouds in{device, {{}, {.longest = 30}}, {.slot_count = 2}};
    auto slot = slot_of_cloud(in, 1, 5, writer);
    CHECK(slot.commit_after(writer, {.lengths = {5}}));
  }
}
