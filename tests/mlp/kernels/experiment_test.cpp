// SPDX-License-Identifier: BSL-1.0
// Tests the unchanged CUDA code of bench/mlp by running the whole experiment on the CUDA device
// with the fake CUDA runtime.
#include <cmath>
#include <cstddef>
#include <vector>

#include "mlp/kernels/fused_on_cuda.hpp"
#include "support/catch.hpp"
// Included after the host backend, because the stand-ins extend the namespace of Thrust.
#include "cuda_experiment.cu"

namespace {

const mlp::row_done ignored = [](const mlp::results&, const mlp::mode_result&) {};

}  // namespace

TEST_CASE(
    "fused kernels have the results of the CPU device in the experiment, with and without graphs",
    "[mlp]") {
  const mlp::digit_data data = mlp::random_data(100, 40);
  mlp::options chosen = fused_on_cuda::chosen_for(1);
  chosen.device = mlp::device_choice::cuda;
  chosen.costs = false;
  chosen.modes.assign(mlp::all_techniques.begin(), mlp::all_techniques.end());
  const auto host = fused_on_cuda::on_host(data.train.first(0), data.test.first(0), chosen);
  const auto expected = mlp::first_losses_of(host.trace, chosen);
  for (const bool graph : {false, true}) {
    CAPTURE(graph);
    fake_cuda::reset(
        {.policy = fake_cuda::policy::random, .seed = 6, .kernels = fake_cuda::order::backwards});
    chosen.graph = graph;
    // Throws if a bit differs between modes.
    const auto found = mlp::run_cuda_experiment(chosen, data, ignored);
    CHECK(found.device.name == "fake_cuda");
    REQUIRE(found.modes.size() == 4);
    for (const mlp::mode_result& mode : found.modes) {
      REQUIRE(mode.first_losses.size() == 5);
      for (std::size_t i = 0; i < 5; ++i) {
        CHECK(std::abs(mode.first_losses[i] - expected[i]) < 1e-5);
      }
      CHECK(std::abs(mode.accuracy - host.accuracy) <= 1.0 / 40);  // one sample
    }
    CHECK(fake_cuda::expect_clean());
  }
}
