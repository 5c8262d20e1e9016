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

/// A few digits, and the options for training on CUDA.
struct small_experiment {
  explicit small_experiment(mlp::kernel_choice kernels) {
    chosen.device = mlp::device_choice::cuda;
    chosen.kernels = kernels;
    chosen.costs = false;
  }

  mlp::digit_data data = mlp::random_data(100, 40);
  mlp::options chosen = fused_on_cuda::chosen_for(1);
};

const mlp::row_done ignored = [](const mlp::results&, const mlp::mode_result&) {};

}  // namespace

TEST_CASE(
    "fused kernels have the results of the CPU device in the experiment, with and without graphs",
    "[mlp]") {
  small_experiment small{mlp::kernel_choice::fused};
  const mlp::digit_data& data = small.data;
  mlp::options& chosen = small.chosen;
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

TEST_CASE("images copied as half, bfloat16 or int8 are widened to floats on the CUDA device",
          "[mlp]") {
  small_experiment small{mlp::kernel_choice::cublas};
  mlp::options& chosen = small.chosen;
  chosen.fed = mlp::workload::wide;
  chosen.modes = {mlp::technique::overlapped};
  std::vector<double> as_they_are;
  for (const auto travel : {mlp::travel_choice::as_they_are, mlp::travel_choice::half,
                            mlp::travel_choice::bfloat16, mlp::travel_choice::int8}) {
    CAPTURE(name_of(travel));
    fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = 7});
    chosen.travel = travel;
    const auto losses =
        mlp::run_cuda_experiment(chosen, small.data, ignored).modes.front().first_losses;
    if (as_they_are.empty()) as_they_are = losses;
    REQUIRE(losses.size() == 5);
    for (std::size_t i = 0; i < 5; ++i) CHECK(std::abs(losses[i] - as_they_are[i]) < 1e-2);
    CHECK((losses == as_they_are) == (travel == mlp::travel_choice::as_they_are));
    CHECK(fake_cuda::expect_clean());
  }
}
