// SPDX-License-Identifier: BSL-1.0
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>

#include <penstock/cuda.hpp>
#include <penstock/cuda/step_graphs.hpp>
#include <penstock_ext/interop.hpp>
#include <penstock_ext/interop/shared_batch.hpp>
#include <penstock_ext/results/results.hpp>

#include "gpu/checked_feed.hpp"
#include "gpu/kernels.hpp"
#include "gpu/tensors.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

// In nanoseconds; as long as several copies of a batch of 64.
constexpr std::uint64_t long_enough = 50'000;

}  // namespace

TEST_CASE("every byte of every batch arrives on a GPU, under slow steps", "[gpu]") {
  const std::size_t workers = GENERATE(0U, 1U, 4U);
  const std::size_t depth = GENERATE(1U, 3U);
  const bool pinned = GENERATE(true, false);
  CAPTURE(workers, depth, pinned);
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  const ps::shuffled order{.seed = 5};
  constexpr std::uint64_t samples = 1000;
  const gpu::checker checker{device, stream, gpu::order_of(order, samples, 3)};
  ps::loader loader{gpu::digits{samples},
                    order,
                    device,
                    {.batch_size = 64, .workers = workers, .pinned = pinned}};
  ps::transfer feed{loader, stream, {.depth = depth}};
  for (auto& batch : feed.epochs(0, 3)) {
    gpu::delay(stream.get(), long_enough);
    checker.check(batch, stream);
  }
  const auto found = checker.found();
  CHECK(found.position == 3 * samples);
  CHECK(found.wrong == 0);
}

TEST_CASE("batches that stay in their host slots are right under a GPU's kernels", "[gpu]") {
  const ps::cuda_device device;
  if (!device.reads_host().pinned) return;  // kernels on this device cannot use host addresses
  const std::size_t prefetch = GENERATE(1U, 4U);
  CAPTURE(prefetch);
  const auto stream = device.make_stream();
  const auto second = device.make_stream();
  const ps::shuffled order{.seed = 5};
  constexpr std::uint64_t samples = 2000;
  const auto in_order = gpu::order_of(order, samples, 3);
  const gpu::checker checker{device, stream, in_order};
  const gpu::checker other{device, second, in_order};
  ps::loader loader{
      gpu::digits{samples}, order, device, {.batch_size = 64, .workers = 4, .prefetch = prefetch}};
  ps::transfer feed{loader, stream, {.tuning = {.zero_copy = ps::zero_copy_use::always}}};
  CHECK(feed.device_bytes() == 0);
  for (auto& batch : feed.epochs(0, 3)) {
    batch.also_used_on(second);
    gpu::delay(stream.get(), long_enough);
    checker.check(batch, stream);
    gpu::delay(second.get(), 2 * long_enough);
    other.check(batch, second);
  }
  for (const auto& found : {checker.found(), other.found()}) {
    CHECK(found.position == 3 * samples);
    CHECK(found.wrong == 0);
  }
}

TEST_CASE("results are complete after slow steps on a GPU", "[gpu]") {
  using next_label = ps::record<ps::field<"next", std::uint8_t>>;
  const std::size_t depth = GENERATE(1U, 3U);
  const std::size_t workers = GENERATE(1U, 2U);
  CAPTURE(depth, workers);
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  constexpr std::uint64_t samples = 2000;
  ps::loader loader{gpu::digits{samples},
                    ps::shuffled{.seed = 5},
                    device,
                    {.batch_size = 64, .workers = 2, .instrumentation = {.indices = true}}};
  ps::transfer feed{loader, stream};
  std::atomic<std::uint64_t> right{0};
  const auto consume = [&](const auto& done) {
    const auto next = ps::get<"next">(done).flat();
    for (std::size_t i = 0; i < done.size(); ++i) {
      right += next[i] == static_cast<std::uint8_t>(done.indices()[i] + 1);
    }
  };
  ps::results<next_label, ps::cuda_device> out{
      device, stream, 64, consume, {.depth = depth, .workers = workers}};
  for (auto& [batch, slot] : ps::zip_results(feed.epochs(0, 3), out)) {
    auto* const next = ps::get<"next">(slot).data();
    gpu::delay(stream.get(), long_enough);
    device.copy_async(next, ps::get<"label">(batch).data(), batch.size(), stream);
    gpu::add_one(stream.get(), next, batch.size(), 1);
  }
  out.finish();
  CHECK(out.stats().consumed == 3 * loader.batches_per_epoch());
  CHECK(right == 3 * samples);
}

TEST_CASE("large batches arrive complete from registered memory", "[gpu]") {
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  constexpr std::uint64_t samples = 100'000;
  const gpu::checker checker{device, stream, gpu::order_of(ps::sequential{}, samples, 1)};
  ps::loader loader{
      gpu::digits{samples}, ps::sequential{}, device, {.batch_size = 30'000, .workers = 4}};
  ps::transfer feed{loader, stream};
  for (auto& batch : feed.epoch(0)) checker.check(batch, stream);
  CHECK(checker.found().position == samples);
  CHECK(checker.found().wrong == 0);
}

TEST_CASE("a lease that is kept, and one used on a second stream, keep their bytes", "[gpu]") {
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  const auto second = device.make_stream();
  constexpr std::uint64_t samples = 640;
  const auto all = gpu::order_of(ps::sequential{}, samples, 1);
  const gpu::checker on_second{device, second, all};
  const gpu::checker of_kept{device, stream, all};
  ps::loader loader{
      gpu::digits{samples}, ps::sequential{}, device, {.batch_size = 64, .workers = 2}};
  {
    using lease = ps::device_batch<gpu::digits::record_type, ps::cuda_device>;
    std::optional<lease> kept;
    ps::transfer feed{loader, stream, {.depth = 2}};
    for (auto& batch : feed.epoch(0)) {
      batch.also_used_on(second);
      gpu::delay(second.get(), long_enough);
      on_second.check(batch, second);
      if (batch.number() == 0) kept.emplace(std::move(batch));
    }
    of_kept.check(*kept, stream);
  }
  CHECK(on_second.found().position == samples);
  CHECK(on_second.found().wrong == 0);
  CHECK(of_kept.found().position == 64);
  CHECK(of_kept.found().wrong == 0);
}

TEST_CASE("tensors on a library's own stream keep their bytes, as an mdspan and by Thrust",
          "[gpu]") {
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  const auto consumer = device.make_stream();
  constexpr std::uint64_t samples = 640;
  unsigned long long last_rows = 0;
  unsigned long long all = 0;
  for (std::uint64_t n = 0; n < samples; ++n) {
    for (std::size_t i = 0; i < 784; ++i) {
      all += gpu::pixel(n, i);
      if (i >= 27 * 28) last_rows += gpu::pixel(n, i);
    }
  }
  auto* const sums = static_cast<unsigned long long*>(device.allocate(16));
  REQUIRE(cudaMemsetAsync(sums, 0, 16, consumer.get()) == cudaSuccess);
  ps::loader loader{
      gpu::digits{samples}, ps::sequential{}, device, {.batch_size = 64, .workers = 2}};
  {
    ps::transfer feed{loader, stream, {.depth = 2}};
    for (auto& lease : feed.epoch(0)) {
      const auto batch = ps::share(std::move(lease));
      const auto tensor = ps::to_dlpack<"image">(batch, consumer);
      CHECK(tensor->array.where.kind == ps::dlpack::device_kind::cuda);
      const gpu::images_view images{static_cast<const std::uint8_t*>(tensor->array.data),
                                    {batch.size()}};
      gpu::delay(consumer.get(), long_enough);
      gpu::add_last_rows(consumer.get(), images, sums);
      gpu::add_all(consumer.get(), images, sums + 1);
    }
  }
  unsigned long long found[2] = {};
  device.copy_async(found, sums, 16, consumer);
  consumer.synchronize();
  CHECK(found[0] == last_rows);
  CHECK(found[1] == all);
  device.deallocate(sums, 16);
}

TEST_CASE("a step is replayed as a graph per slot and size, with a live loader", "[gpu]") {
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  const ps::shuffled order{.seed = 6};
  constexpr std::uint64_t samples = 1000;
  const gpu::checker checker{device, stream, gpu::order_of(order, samples, 4)};
  ps::loader loader{gpu::digits{samples}, order, device, {.batch_size = 64, .workers = 4}};
  ps::transfer feed{loader, stream, {.depth = 3}};
  ps::step_graphs graphs{device};
  std::size_t captures = 0;
  for (auto& batch : feed.epochs(0, 4)) {
    graphs.launch(batch, stream, [&](ps::cuda_stream_ref on) {
      ++captures;
      gpu::delay(on.get(), long_enough);
      checker.check(batch, on);
    });
  }
  CHECK(checker.found().position == 4 * samples);
  CHECK(checker.found().wrong == 0);
  CHECK(captures == graphs.size());
  CHECK(captures <= 6);
}

TEST_CASE("a step that can't be captured is reported, and the next one works", "[gpu]") {
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  const auto another = device.make_stream();
  ps::step_graphs graphs{device};
  const auto allocates = [](ps::cuda_stream_ref on) {
    gpu::delay(on.get(), 1);
    void* data = nullptr;
    static_cast<void>(cudaMalloc(&data, 256));
  };
  const auto waits = [&](ps::cuda_stream_ref on) {
    gpu::delay(on.get(), 1);
    device.synchronize(on);
  };
  const auto throws = [](ps::cuda_stream_ref on) {
    gpu::delay(on.get(), 1);
    throw std::domain_error("a step's own");
  };
  const auto elsewhere = [&](ps::cuda_stream_ref) { gpu::delay(another.get(), 1); };
  const auto right = [](ps::cuda_stream_ref on) { gpu::delay(on.get(), 1); };
  CHECK_THROWS_AS(graphs.launch(0, 1, stream, allocates), ps::capture_in_progress);
  CHECK_THROWS_AS(graphs.launch(0, 1, stream, waits), ps::capture_in_progress);
  CHECK_THROWS_AS(graphs.launch(0, 1, stream, throws), std::domain_error);
  CHECK_THROWS_AS(graphs.launch(0, 1, stream, elsewhere), std::logic_error);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(graphs.size() == 0);
  graphs.launch(0, 1, stream, right);
  device.synchronize(ps::cuda_stream_ref{stream});
  CHECK(graphs.size() == 1);
}

TEST_CASE("a program's own capture survives a live loader on a GPU", "[gpu]") {
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  const auto captured = device.make_stream();
  ps::loader loader{
      gpu::digits{2000}, ps::sequential{}, device, {.batch_size = 10, .workers = 2, .prefetch = 2}};
  ps::transfer feed{loader, stream, {.depth = 1}};
  auto range = feed.epoch(0);
  auto it = range.begin();
  REQUIRE(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
  gpu::delay(captured.get(), 1);
  while (it->number() < 100) ++it;  // workers wait for copies, and slots are returned
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(captured.get(), &graph) == cudaSuccess);
  const auto owned = ps::detail::cuda_graph::from_native_handle(graph);
  ps::detail::cuda_graph_exec{owned}.launch(captured);
  device.synchronize(ps::cuda_stream_ref{captured});
}
