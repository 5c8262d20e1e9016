// SPDX-License-Identifier: BSL-1.0
// Tests the stream order of libtorch tensors on a GPU, using the fake CUDA runtime. libtorch
// creates the tensors, but the test defines its current stream, so that libtorch's CUDA libraries
// are not needed.
#include <penstock_ext/interop/torch/torch_cuda.hpp>

#include <cstdint>
#include <deque>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock/penstock.hpp>

#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

// libtorch defines a macro of this name that terminates the program. The next lines restore the
// macro of the tests.
#undef CHECK
#define CHECK(...) \
  INTERNAL_CATCH_TEST("CHECK", Catch::ResultDisposition::ContinueOnFailure, __VA_ARGS__)

#include "cuda/clean_fake.hpp"
#include "cuda/digits_flow.hpp"

namespace ps = penstock;

namespace {

cudaStream_t current_stream = nullptr;  // libtorch's current stream for every device

}  // namespace

// Replaces the library libc10_cuda.
namespace c10::cuda {

cudaStream_t CUDAStream::stream() const { return current_stream; }

CUDAStream getCurrentCUDAStream(DeviceIndex index) {
  return CUDAStream{CUDAStream::UNCHECKED,
                    c10::Stream{c10::Stream::DEFAULT, c10::Device{c10::kCUDA, index}}};
}

}  // namespace c10::cuda

namespace {

using tensors = std::tuple<at::Tensor, at::Tensor>;

/// Checks two tensors in the order of the current stream and then releases them, the second on
/// another thread.
void look_and_drop(tensors held, std::vector<std::uint64_t> samples, digits_flow::outcome& found) {
  auto& [image, label] = held;
  const std::size_t size = samples.size();
  const auto* const pixels = static_cast<const std::uint8_t*>(image.data_ptr());
  const auto* const numbers = static_cast<const std::uint8_t*>(label.data_ptr());
  const digits_flow::seen_batch seen{{pixels, {size}}, {numbers, {size}}};
  const auto look = [seen, samples = std::move(samples), &found] {
    ++(seen.holds(samples) ? found.right : found.wrong);
  };
  fake_cuda::launch(current_stream, look, {pixels, numbers});
  image.reset();
  std::thread{[last = std::move(label)]() mutable { last.reset(); }}.join();
}

/// Converts all batches of two epochs to tensors and holds `kept` batches at a time.
void run_by_torch(std::size_t kept, digits_flow::outcome& found) {
  const ps::cuda_device device{0};
  const auto own = device.make_stream();
  const auto consumer = device.make_stream();
  current_stream = consumer.get();
  const ps::shuffled order{.seed = 9};
  ps::loader loader{digits_flow::digits{96}, order, device, {.batch_size = 16, .workers = 2}};
  ps::transfer feed{loader, own, {.depth = 3}};
  std::deque<std::pair<tensors, std::vector<std::uint64_t>>> held;
  const auto use_first = [&] {
    look_and_drop(std::move(held.front().first), std::move(held.front().second), found);
    held.pop_front();
  };
  for (auto& batch : feed.epochs(0, 2)) {
    std::vector<std::uint64_t> samples(batch.size());
    order.order(96, batch.epoch()).fill(batch.number() * 16, samples);
    held.emplace_back(ps::torch_tensors<"image", "label">(std::move(batch)), std::move(samples));
    if (held.size() > kept) use_first();
  }
  while (!held.empty()) use_first();
  consumer.synchronize();
}

}  // namespace

TEST_CASE("libtorch's current stream waits for the copy, and the slot for that stream",
          "[torch][promise:race-free-3]") {
  const std::size_t kept = GENERATE(0U, 2U);
  CAPTURE(kept);
  for (const auto policy : {fake_cuda::policy::late, fake_cuda::policy::early}) {
    const clean_fake until_the_end{{.policy = policy}};
    digits_flow::outcome found;
    run_by_torch(kept, found);
    CHECK(found.right == 12);
    CHECK(found.wrong == 0);
  }
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    INFO("seed " << seed);
    const clean_fake until_the_end{{.policy = fake_cuda::policy::random, .seed = seed}};
    digits_flow::outcome found;
    run_by_torch(kept, found);
    CHECK(found.right == 12);
    CHECK(found.wrong == 0);
  }
}

TEST_CASE("tensors report their GPU, and tensors of a loader are on the host", "[torch]") {
  const clean_fake until_the_end{{.devices = 2}};
  const ps::cuda_device device{1};
  const auto current = device.enter_scope();
  const auto stream = device.make_stream();
  current_stream = stream.get();
  ps::loader loader{
      digits_flow::digits{16}, ps::sequential{}, device, {.batch_size = 16, .workers = 0}};
  for (auto& batch : loader.epoch(0)) {
    CHECK(ps::torch_tensor<"image">(std::move(batch)).device() == at::Device{at::kCPU});
  }
  ps::transfer feed{loader, stream};
  for (auto& batch : feed.epoch(0)) {
    const auto image = ps::torch_tensor<"image">(std::move(batch));
    CHECK(image.device() == (at::Device{at::kCUDA, 1}));
    CHECK(image.sizes() == (at::IntArrayRef{16, 28, 28}));
  }
}
