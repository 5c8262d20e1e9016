// SPDX-License-Identifier: BSL-1.0
// Runs five steps of the network in bench/mlp on the fake CUDA runtime, as graphs with fused
// kernels, and on the CPU device. The losses must be equal. Small enough for sanitizers.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock/penstock.hpp>

#include "data.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "host_backend.hpp"
#include "train.hpp"
// Included after the host backend, because the stand-ins extend the namespace of Thrust.
#include "cuda_backend.cuh"

namespace {

namespace ps = penstock;

constexpr std::size_t batch = 16;
constexpr std::size_t steps = 5;

mlp::options chosen() {
  mlp::options all;
  all.epochs = 1;
  all.batch = batch;
  all.workers = 1;
  all.seed = 5;
  return all;
}

/// Returns the loss of each sample, in step order.
template <class Backend, class Loop>
std::vector<float> losses_of(const typename Backend::device_type& device, const Backend& backend,
                             Loop loop) {
  device.make_current();
  const auto stream = Backend::make_stream(device);
  mlp::trainer<Backend> trained{device, backend, stream, batch, 1, steps * batch, chosen().seed};
  loop(device, trained);
  return trained.trace().losses;
}

double mean_of(const std::vector<float>& losses, std::size_t step) {
  double sum = 0.0;
  for (std::size_t i = step * batch; i < (step + 1) * batch; ++i) sum += losses.at(i);
  return sum / batch;
}

}  // namespace

int main() {
  const mlp::digit_set digits = mlp::random_digits(steps * batch);
  const auto data = digits.first(0);

  const auto expected =
      losses_of(ps::cpu_device{}, mlp::host_backend{}, [&](const auto& device, auto& trained) {
        mlp::train_serially(data, device, trained, chosen());
      });
  fake_cuda::reset(
      {.policy = fake_cuda::policy::random, .seed = 1, .kernels = fake_cuda::order::seeded});
  const ps::cuda_device gpu{0};
  const auto found = losses_of(gpu, mlp::cuda_backend{gpu, mlp::kernel_choice::fused, true},
                               [&](const auto& device, auto& trained) {
                                 mlp::train_overlapped(data, device, trained, chosen());
                               });
  bool is_near = true;
  for (std::size_t step = 0; step < steps; ++step) {
    const double apart = std::abs(mean_of(found, step) - mean_of(expected, step));
    std::printf("step %zu: loss %g, %g apart\n", step, mean_of(expected, step), apart);
    is_near = is_near && apart < 1e-5;
  }
  const bool is_clean = fake_cuda::expect_clean();
  return is_near && is_clean && fake_cuda::calls_of("cudaGraphLaunch") >= steps ? 0 : 1;
}
