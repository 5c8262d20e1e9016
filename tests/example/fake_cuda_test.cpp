// SPDX-License-Identifier: BSL-1.0
// Tests the unchanged CUDA code of the main example on the fake CUDA runtime.
#define main example_main_cuda
#include "main.cu"
#undef main

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <fake_cuda/fake_cuda.hpp>

#include "support/catch.hpp"

namespace {

/// Returns the losses of a loop on a backend.
template <class Backend, class Loop>
std::vector<float> losses_of(const Backend& backend, const example::loop_options& how,
                             std::size_t samples, const Loop& loop) {
  example::training<Backend> trained{backend, how, samples};
  loop(trained);
  return trained.losses();
}

}  // namespace

TEST_CASE("the three loops have equal losses on a GPU and nearly the same losses on the CPU device",
          "[example]") {
  const auto policy =
      GENERATE(fake_cuda::policy::late, fake_cuda::policy::early, fake_cuda::policy::random);
  const auto digits = example::random_digits(150, 0);
  const auto data = digits.samples() | penstock::map<penstock::digit_record>(example::augment{});
  const example::loop_options how{.epochs = 2, .batch = 32, .workers = 2, .seed = 3};
  std::string diagnosis;

  example::stage_clock stages;
  const auto expected = losses_of(example::cpu_backend{}, how, data.size(), [&](auto& trained) {
    (void)example::train_serially(data, trained, how, stages);
  });

  fake_cuda::reset({.policy = policy, .seed = 4});
  {
    const example::cuda_backend gpu;
    const auto serial = losses_of(gpu, how, data.size(), [&](auto& trained) {
      (void)example::train_serially(data, trained, how, stages);
    });
    const auto overlapped = losses_of(gpu, how, data.size(), [&](auto& trained) {
      (void)example::train_overlapped(data, trained, how, nullptr, diagnosis);
    });
    const auto resident = losses_of(gpu, how, data.size(), [&](auto& trained) {
      (void)example::train_resident(data, trained, how);
    });
    REQUIRE(serial.size() == 10);
    CHECK(overlapped == serial);
    CHECK(resident == serial);
    for (std::size_t i = 0; i < 10; ++i) CHECK(std::abs(serial[i] - expected[i]) < 1e-4F);
  }
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("a step on a GPU does not wait or allocate", "[example]") {
  fake_cuda::reset({.policy = fake_cuda::policy::late});
  {
    const example::cuda_backend gpu;
    const auto digits = example::random_digits(32, 0);
    const example::test_digits<example::cuda_backend> on_gpu{gpu, digits, 32};
    example::network<example::cuda_backend> net{gpu, 32, 1};
    on_gpu.warm_up(net, 32);
    const auto calls = fake_cuda::calls();
    on_gpu.warm_up(net, 32);
    // A step only launches kernels. In the fake CUDA runtime, a launch does not count as a call.
    CHECK(fake_cuda::calls() == calls);
    CHECK_FALSE(gpu.stream().is_complete());
    gpu.device().synchronize(gpu.stream());
  }
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("a replayed step on a GPU is one launch and trains the bits of separate launches",
          "[example]") {
  fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = 5});
  {
    const example::cuda_backend gpu;
    const auto digits = example::random_digits(80, 0);  // the last batch has 16 digits
    const auto data = digits.samples();
    const example::loop_options how{.epochs = 3, .batch = 32, .workers = 1, .seed = 6};

    example::training<example::cuda_backend> replayed{gpu, how, data.size()};
    std::string diagnosis;
    (void)example::train_overlapped(data, replayed, how, nullptr, diagnosis);
    CHECK(fake_cuda::calls_of("cudaGraphLaunch") == 9);
    const auto captures = fake_cuda::calls_of("cudaStreamBeginCapture");
    CHECK(captures < 9);

    // A loop with one buffer captures a step for each of the two sizes.
    example::stage_clock stages;
    const auto losses = replayed.losses();
    const auto parameters = replayed.net().parameters();
    (void)example::train_serially(data, replayed, how, stages);
    CHECK(fake_cuda::calls_of("cudaGraphLaunch") == 18);
    CHECK(fake_cuda::calls_of("cudaStreamBeginCapture") == captures + 2);
    CHECK(replayed.losses() == losses);
    CHECK(replayed.net().parameters() == parameters);

    const example::network<example::cuda_backend> plain{gpu, how.batch, how.seed};
    example::device_array<float, penstock::cuda_device> plain_losses{gpu.device(), 9};
    penstock::loader loader{data,
                            penstock::shuffled{.seed = how.seed},
                            gpu.device(),
                            {.batch_size = how.batch, .workers = 1, .seed = how.seed}};
    penstock::transfer feed{loader, gpu.stream()};
    for (auto& batch : feed.epochs(0, how.epochs)) {
      plain.step(penstock::get<"image">(batch).data(), penstock::get<"label">(batch).data(),
                 batch.size(), plain_losses.data());
    }
    std::vector<float> found(9);
    plain_losses.download(found, gpu.stream());
    CHECK(found == losses);
    CHECK(plain.parameters() == parameters);
    CHECK(fake_cuda::calls_of("cudaGraphLaunch") == 18);
  }
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("the program trains on the GPU if there is one, and otherwise on the CPU device",
          "[example]") {
  const bool has_gpu = GENERATE(true, false);
  fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = 9, .devices = has_gpu ? 1 : 0});
  std::string words[] = {"program", "--samples", "96", "--epochs", "1"};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                       words[4].data()};
  CHECK(example_main_cuda(5, arguments) == 0);
  CHECK((fake_cuda::calls_of("cudaMemcpyAsync") > 0) == has_gpu);
  CHECK(fake_cuda::expect_clean());
}
