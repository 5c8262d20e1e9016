// SPDX-License-Identifier: BSL-1.0
// Tests other paths of data to kernels: ragged fields, requests of a batcher, and page-locked
// memory that kernels access. Also tests feed times measured with the device's clock.
#if __has_include(<cuda/memory_resource>)
#include <penstock/cuda/pinned_resource_ref.hpp>
#define GPU_TESTS_HAVE_CCCL
#endif

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock/memory/pinned_resource.hpp>
#include <penstock/memory/registered_memory.hpp>
#include <penstock_ext/serve/batcher.hpp>

#include "ext/serve/requests.hpp"
#include "gpu/checked_feed.hpp"
#include "gpu/kernels.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using slab = ps::detail::slab<ps::cuda_device>;

// In nanoseconds; as long as several copies of a small batch.
constexpr std::uint64_t long_enough = 50'000;

using ragged_pair =
    ps::record<ps::field<"tokens", std::uint16_t, ps::ragged>, ps::field<"label", std::uint32_t>,
               ps::field<"weights", float, ps::ragged>>;

/// A dataset in which sample i has i * 7 % 11 tokens and i % 4 weights. The values depend on the
/// sample and the position.
struct ragged_pairs {
  using record_type = ragged_pair;
  static constexpr std::uint64_t count = 611;
  [[nodiscard]] static std::uint64_t size() { return count; }
  [[nodiscard]] static ps::record_extents<record_type> extents() {
    return {{.longest = 10}, {}, {.longest = 3}};
  }
  [[nodiscard]] static ps::sample_lengths<record_type> lengths(std::uint64_t index) {
    return {index * 7 % 11, index % 4};
  }
  static void read(std::uint64_t index, ps::sample<record_type> out) {
    const auto tokens = ps::get<"tokens">(out).flat();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::uint16_t>(index * 100 + i);
    }
    ps::get<"label">(out) = static_cast<std::uint32_t>(index);
    for (float& weight : ps::get<"weights">(out).flat()) weight = static_cast<float>(index);
  }
};

/// Returns the ragged views of a batch, for use by a kernel or the host.
template <class Batch>
gpu::ragged_batch seen(const Batch& batch) {
  return {ps::get<"tokens">(batch), ps::get<"label">(batch), ps::get<"weights">(batch)};
}

std::vector<std::uint64_t> digests_of(std::span<const std::uint64_t> samples) {
  ps::loader loader{ragged_pairs{}, ps::sequential{}, {.batch_size = ragged_pairs::count}};
  std::vector<std::uint64_t> made;
  for (const auto& all : loader.epoch(0)) {
    for (const std::uint64_t index : samples) made.push_back(seen(all).digest(index));
  }
  return made;
}

std::vector<std::uint64_t> downloaded(const ps::cuda_device& device, ps::cuda_stream_ref stream,
                                      const slab& from, std::size_t count) {
  std::vector<std::uint64_t> here(count);
  device.copy_async(here.data(), from.data(), count * sizeof(std::uint64_t), stream);
  device.synchronize(stream);
  return here;
}

}  // namespace

TEST_CASE("ragged samples arrive whole on a GPU, under slow steps", "[gpu]") {
  const std::size_t depth = GENERATE(1U, 3U);
  CAPTURE(depth);
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  const ps::shuffled order{.seed = 4};
  const slab digests{device, 2 * ragged_pairs::count * 8, ps::detail::memory_kind::device};
  auto* next = reinterpret_cast<std::uint64_t*>(digests.data());
  ps::loader loader{ragged_pairs{}, order, device, {.batch_size = 64, .workers = 4}};
  ps::transfer feed{loader, stream, {.depth = depth}};
  for (auto& batch : feed.epochs(0, 2)) {
    gpu::delay(stream.get(), long_enough);
    gpu::digest(stream.get(), seen(std::as_const(batch)), next);
    next += batch.size();
  }
  const auto expected = digests_of(gpu::order_of(order, ragged_pairs::count, 2));
  const bool are_same = downloaded(device, stream, digests, expected.size()) == expected;
  CHECK(are_same);
}

TEST_CASE("a transform on a GPU reads ragged fields", "[gpu]") {
  using digested =
      ps::record<ps::field<"digest", std::uint64_t>, ps::field<"label", std::uint32_t>>;
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  const slab digests{device, ragged_pairs::count * 8, ps::detail::memory_kind::device};
  auto* next = digests.data();
  const auto digest = [&](ps::const_batch_view<ragged_pair> in, ps::batch_view<digested> out,
                          ps::cuda_stream_ref on) {
    gpu::delay(on.get(), long_enough);
    gpu::digest(on.get(), seen(in), ps::get<"digest">(out).data());
    device.copy_async(reinterpret_cast<std::byte*>(ps::get<"label">(out).data()),
                      reinterpret_cast<const std::byte*>(ps::get<"label">(in).data()),
                      in.size() * sizeof(std::uint32_t), on);
  };
  ps::loader loader{ragged_pairs{}, ps::sequential{}, device, {.batch_size = 64, .workers = 4}};
  {
    ps::transfer feed{loader, stream, ps::on_stream<digested>(digest), {.depth = 2}};
    for (auto& batch : feed.epoch(0)) {
      gpu::delay(stream.get(), long_enough);
      const std::size_t bytes = batch.size() * sizeof(std::uint64_t);
      device.copy_async(next, reinterpret_cast<const std::byte*>(ps::get<"digest">(batch).data()),
                        bytes, stream);
      next += bytes;
    }
    device.synchronize(ps::cuda_stream_ref{stream});
  }
  const auto expected = digests_of(gpu::order_of(ps::sequential{}, ragged_pairs::count, 1));
  const bool are_same = downloaded(device, stream, digests, expected.size()) == expected;
  CHECK(are_same);
}

TEST_CASE("requests arrive on a GPU as they were written", "[gpu]") {
  constexpr std::uint64_t count = 500;
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  const slab numbers{device, count * sizeof(std::uint64_t), ps::detail::memory_kind::pinned};
  const slab values{device, count * 3 * sizeof(float), ps::detail::memory_kind::pinned};
  std::vector<std::uint64_t> tags;
  fates known{count};
  ps::batcher<request, ps::cuda_device> requests{
      device, {.max_batch_size = 8, .depth = 2, .on_unserved = known.noting()}};
  ps::transfer feed{requests, stream, {.depth = 2}};
  std::thread submitter{[&] {
    for (std::uint64_t tag = 0; tag < count; ++tag) requests.submit(tag, written(tag));
    requests.close();
  }};
  for (auto& batch : feed.epoch(0)) {
    gpu::delay(stream.get(), long_enough);
    // The copies run in stream order and return before they are complete, because the memory is
    // page-locked.
    device.copy_async(numbers.data() + tags.size() * sizeof(std::uint64_t),
                      reinterpret_cast<const std::byte*>(ps::get<"number">(batch).data()),
                      batch.size() * sizeof(std::uint64_t), stream);
    device.copy_async(values.data() + tags.size() * 3 * sizeof(float),
                      reinterpret_cast<const std::byte*>(ps::get<"values">(batch).data()),
                      batch.size() * 3 * sizeof(float), stream);
    for (const std::uint64_t tag : batch.tags()) {
      ++known.served[tag];
      tags.push_back(tag);
    }
  }
  submitter.join();
  device.synchronize(ps::cuda_stream_ref{stream});
  std::size_t right = 0;
  for (std::size_t i = 0; i < tags.size(); ++i) {
    const auto value = static_cast<float>(tags[i]);
    const float* const found = reinterpret_cast<const float*>(values.data()) + 3 * i;
    right += reinterpret_cast<const std::uint64_t*>(numbers.data())[i] == tags[i] &&
             found[0] == value && found[1] == value && found[2] == value;
  }
  CHECK(right == count);
  CHECK(known.ended_once() == count);
}

namespace {

/// Runs a kernel that adds 1 to every 4,096th byte of host memory in place, and checks the bytes on
/// the host.
void touch(const ps::cuda_device& device, ps::cuda_stream_ref stream, std::byte* data,
           std::size_t bytes) {
  constexpr std::size_t stride = 4096;
  const std::size_t count = (bytes + stride - 1) / stride;
  for (std::size_t i = 0; i < count; ++i) data[i * stride] = static_cast<std::byte>(i * 7);
  gpu::delay(stream.get(), long_enough);
  gpu::add_one(stream.get(), reinterpret_cast<std::uint8_t*>(data), count, stride);
  gpu::add_one(stream.get(), reinterpret_cast<std::uint8_t*>(data), count, stride);
  device.synchronize(stream);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    wrong += data[i * stride] != static_cast<std::byte>(i * 7 + 2);
  }
  CHECK(wrong == 0);
}

// Allocated by cudaHostAlloc.
constexpr std::size_t small_block = 10'000;
// Allocated in registered pages.
constexpr std::size_t large_block = ps::detail::small_pinned_bytes + 12'345;

}  // namespace

#if defined(GPU_TESTS_HAVE_CCCL)
TEST_CASE("kernels reach memory of cuda::mr by the host's address", "[gpu]") {
  const std::size_t bytes = GENERATE(small_block, large_block);
  CAPTURE(bytes);
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  ps::pinned_resource<ps::cuda_device> pinned{device};
  const ps::pinned_resource_ref memory{pinned};
  void* const data = memory.allocate_sync(bytes, 64);
  touch(device, stream, static_cast<std::byte*>(data), bytes);
  memory.deallocate_sync(data, bytes, 64);
  CHECK(pinned.bytes() == 0);
}
#endif

TEST_CASE("kernels can access the memory of slots and registered memory", "[gpu]") {
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  const auto same_address = [](const void* data) {
    cudaPointerAttributes known{};
    REQUIRE(cudaPointerGetAttributes(&known, data) == cudaSuccess);
    CHECK(known.type == cudaMemoryTypeHost);
    return known.devicePointer == data;
  };
  for (const std::size_t bytes : {small_block, large_block}) {
    CAPTURE(bytes);
    const slab slots{device, bytes, ps::detail::memory_kind::pinned};
    if (same_address(slots.data())) touch(device, stream, slots.data(), bytes);
  }
  std::vector<std::byte> own(small_block);
  const ps::registered_memory<ps::cuda_device> registered{device, std::span{own}};
  if (same_address(own.data())) touch(device, stream, own.data(), own.size());
}

TEST_CASE("the GPU's clock measures copies, transforms and steps", "[gpu]") {
  using digits = gpu::digits::record_type;
  constexpr std::uint64_t step_time = 200'000;
  constexpr std::uint64_t transform_time = 100'000;
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  const auto copy = [&](ps::const_batch_view<digits> in, ps::batch_view<digits> out,
                        ps::cuda_stream_ref on) {
    gpu::delay(on.get(), transform_time);
    const auto bytes_of = [](const auto& field) { return field.size() * sizeof(std::uint8_t); };
    device.copy_async(reinterpret_cast<std::byte*>(ps::get<"image">(out).data()),
                      reinterpret_cast<const std::byte*>(ps::get<"image">(in).data()),
                      bytes_of(ps::get<"image">(in)), on);
    device.copy_async(reinterpret_cast<std::byte*>(ps::get<"label">(out).data()),
                      reinterpret_cast<const std::byte*>(ps::get<"label">(in).data()),
                      bytes_of(ps::get<"label">(in)), on);
  };
  ps::loader loader{gpu::digits{1280}, ps::sequential{}, device, {.batch_size = 64, .workers = 2}};
  const gpu::checker checker{device, stream, gpu::order_of(ps::sequential{}, 1280, 6)};
  ps::transfer feed{loader,
                    stream,
                    ps::on_stream<digits>(copy),
                    {.depth = 2, .instrumentation = {.time_device = true}}};
  for (auto& batch : feed.epochs(0, 6)) {
    gpu::delay(stream.get(), step_time);
    checker.check(batch, stream);
  }
  CHECK(checker.found().position == 6 * 1280);
  CHECK(checker.found().wrong == 0);
  const ps::device_stats said = feed.stats().device;
  CHECK(said.batches > 0);
  CHECK(said.batches <= 120);
  if (!gpu::delay_takes_time()) return;
  // A kernel that spins on the GPU's clock takes at least the requested time. The clock may tick
  // only once per microsecond.
  const auto at_least = [&](std::uint64_t each) {
    return std::chrono::nanoseconds{(each - 2'000) * said.batches};
  };
  CHECK(said.step >= at_least(step_time));
  CHECK(said.transform >= at_least(transform_time));
  CHECK(said.copy.count() > 0);
  CHECK(said.busy() > 0.0);
  CHECK(said.busy() <= 1.0);
}
