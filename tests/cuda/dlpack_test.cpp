// SPDX-License-Identifier: BSL-1.0
// Tests that batches in device memory can be used as tensors by a library with its own stream.
#include <penstock_ext/interop.hpp>

#include <cstdint>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock_ext/interop/shared_batch.hpp>

#include "cuda/clean_fake.hpp"
#include "cuda/digits_flow.hpp"
#include "cuda/seeds.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
namespace dl = penstock::dlpack;

namespace {

/// Simulates a library that supports only DLPack: checks two tensors in stream order and then
/// releases them, the second on another thread.
void consume(cudaStream_t stream, dl::managed_ptr images, dl::managed_ptr labels,
             std::vector<std::uint64_t> samples, digits_flow::outcome& found) {
  const std::size_t size = samples.size();
  const auto* const pixels = static_cast<const std::uint8_t*>(images->array.data);
  const auto* const numbers = static_cast<const std::uint8_t*>(labels->array.data);
  const digits_flow::seen_batch seen{{pixels, {size}}, {numbers, {size}}};
  const auto look = [seen, samples = std::move(samples), &found] {
    ++(seen.holds(samples) ? found.right : found.wrong);
  };
  fake_cuda::launch(stream, look, {pixels, numbers});
  images.reset();
  std::thread{[last = std::move(labels)] {}}.join();
}

/// Converts all batches of two epochs to tensors and holds `kept` batches at a time.
void run_by_tensors(std::size_t kept, digits_flow::outcome& found) {
  const ps::cuda_device device{0};
  const auto own = device.make_stream();
  const auto consumer = device.make_stream();
  const ps::shuffled order{.seed = 9};
  ps::loader loader{digits_flow::digits{96}, order, device, {.batch_size = 16, .workers = 2}};
  ps::transfer feed{loader, own, {.depth = 3}};
  std::deque<std::pair<dl::managed_ptr, dl::managed_ptr>> held;
  std::deque<std::vector<std::uint64_t>> expected;
  const auto consume_first = [&] {
    consume(consumer.get(), std::move(held.front().first), std::move(held.front().second),
            std::move(expected.front()), found);
    held.pop_front();
    expected.pop_front();
  };
  for (auto& lease : feed.epochs(0, 2)) {
    std::vector<std::uint64_t> samples(lease.size());
    order.order(96, lease.epoch()).fill(lease.number() * 16, samples);
    const auto batch = ps::share(std::move(lease));
    held.emplace_back(ps::to_dlpack<"image">(batch, consumer.get()),
                      ps::to_dlpack<"label">(batch, consumer));
    expected.push_back(std::move(samples));
    if (held.size() > kept) consume_first();
  }
  while (!held.empty()) consume_first();
  consumer.synchronize();
}

}  // namespace

TEST_CASE("tensors on a library's stream keep their batch until its work is done",
          "[cuda][promise:race-free-3]") {
  const std::size_t kept = GENERATE(0U, 1U, 2U);
  CAPTURE(kept);
  for (const auto policy : {fake_cuda::policy::late, fake_cuda::policy::early}) {
    const clean_fake until_the_end{{.policy = policy}};
    digits_flow::outcome found;
    run_by_tensors(kept, found);
    CHECK(found.right == 12);
    CHECK(found.wrong == 0);
  }
  for (std::uint64_t seed = 0; seed < seed_count(); ++seed) {
    INFO("seed " << seed);
    const clean_fake until_the_end{{.policy = fake_cuda::policy::random, .seed = seed}};
    digits_flow::outcome found;
    run_by_tensors(kept, found);
    CHECK(found.right == 12);
    CHECK(found.wrong == 0);
  }
}

TEST_CASE("a tensor reports its device: a GPU, or page-locked memory for a GPU", "[cuda]") {
  const clean_fake until_the_end{{.devices = 2}};
  const ps::cuda_device device{1};
  const auto current = device.enter_scope();
  const auto stream = device.make_stream();
  ps::loader loader{
      digits_flow::digits{16}, ps::sequential{}, device, {.batch_size = 16, .workers = 0}};
  for (auto& lease : loader.epoch(0)) {
    const auto batch = ps::share(std::move(lease));
    CHECK(ps::to_dlpack<"image">(batch)->array.where == dl::place{dl::device_kind::cuda_host, 0});
    CHECK(ps::to_dlpack_unversioned<"image">(batch, true)->array.where ==
          dl::place{dl::device_kind::cpu, 0});
    CHECK(ps::to_dlpack<"image">(batch, {.pinned_as_cpu = true})->array.where ==
          dl::place{dl::device_kind::cpu, 0});
    CHECK(ps::from_dlpack<std::uint8_t, 28, 28>(ps::to_dlpack<"image">(batch)).size() == 16);
  }
  ps::transfer feed{loader, stream};
  for (auto& lease : feed.epoch(0)) {
    const auto batch = ps::share(std::move(lease));
    CHECK(ps::to_dlpack<"image">(batch)->array.where == dl::place{dl::device_kind::cuda, 1});
    CHECK_THROWS_AS((ps::from_dlpack<std::uint8_t, 28, 28>(ps::to_dlpack<"image">(batch))),
                    ps::dlpack_error);
    const ps::cuda_stream_ref shared_by_threads = cudaStreamPerThread;
    CHECK_THROWS_AS(ps::to_dlpack<"image">(batch, shared_by_threads), ps::unusable_stream);
  }
}
