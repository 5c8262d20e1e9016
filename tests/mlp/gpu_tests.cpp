// SPDX-License-Identifier: BSL-1.0
// Compares the network on a GPU with the CPU device. The losses must be equal for all kinds of
// kernels, and the bits must be equal in the four modes (run_experiment throws otherwise). Without
// a GPU, prints the reason and exits with 77.
//
//   penstock_mlp_gpu_tests [SAMPLES [KERNELS]]
//
// SAMPLES is the number of samples for training and testing. KERNELS selects one kind (cublas or
// fused). Both are intended for runs under compute-sanitizer.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

#include "cublas.hpp"
#include "cuda_experiment.hpp"
#include "data.hpp"
#include "experiment.hpp"
#include "options.hpp"

namespace {

int failures = 0;
int comparisons = 0;
std::string only;  // kind of kernels, or empty for all kinds

void check(bool is_right, const std::string& what) {
  if (is_right) return;
  std::cout << "  FAILED: " << what << std::endl;
  ++failures;
}

/// Compares the results of the GPU and the CPU device.
void compare(const mlp::results& gpu, const mlp::results& host) {
  // Both accumulate in float, but in different orders. The difference grows over a few hundred
  // steps.
  constexpr double of_first_steps = 1e-4;
  constexpr double of_first_epoch = 1e-3;
  const auto& found = gpu.modes.front();
  const auto& expected = host.modes.front();
  check(found.first_losses.size() == expected.first_losses.size(), "the number of first losses");
  for (std::size_t i = 0; i < expected.first_losses.size(); ++i) {
    const double distance = std::abs(found.first_losses[i] - expected.first_losses[i]);
    check(distance < of_first_steps, "step " + std::to_string(i + 1) + ": the losses are " +
                                         std::to_string(distance) + " apart");
  }
  const double distance = std::abs(found.epoch_losses[0] - expected.epoch_losses[0]);
  check(distance < of_first_epoch,
        "first epoch: the mean losses are " + std::to_string(distance) + " apart");
  check(std::abs(found.accuracy - expected.accuracy) < 0.02, "the accuracies differ");
}

void compare_all_kernels(mlp::options chosen, const mlp::digit_data& data) {
  chosen.device = mlp::device_choice::host;
  chosen.costs = false;
  const auto host = mlp::run_experiment(chosen, data);
  chosen.device = mlp::device_choice::cuda;
  chosen.modes.assign(mlp::all_techniques.begin(), mlp::all_techniques.end());
  for (const auto kernels : {mlp::kernel_choice::cublas, mlp::kernel_choice::fused}) {
    if (!only.empty() && only != name_of(kernels)) continue;
    if (kernels != mlp::kernel_choice::fused) {
      if (const auto reason = mlp::why_no_cublas()) {
        std::cout << "  left out: " << name_of(kernels) << ": " << *reason << std::endl;
        continue;
      }
    }
    for (const bool graph : {false, true}) {
      std::cout << "  " << name_of(kernels) << (graph ? ", graphs" : "") << std::endl;
      chosen.kernels = kernels;
      chosen.graph = graph;
      try {
        compare(mlp::run_experiment(chosen, data), host);
        ++comparisons;
      } catch (const std::exception& error) {
        check(false, error.what());
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto reason = mlp::why_no_cuda()) {
    std::cout << "skipped: " << *reason << std::endl;
    return 77;
  }
  try {
    mlp::options chosen;
    chosen.samples = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
    chosen.test_samples = chosen.samples;
    if (argc > 2) only = argv[2];
    const auto directory = mlp::find_data({});
    const auto data = directory ? mlp::read_data(*directory) : mlp::random_data();
    chosen.epochs = 1;
    chosen.workers = 2;
    chosen.modes = {mlp::technique::resident};

    std::cout << "images as bytes" << std::endl;
    compare_all_kernels(chosen, data);
    std::cout << "augmented" << std::endl;
    chosen.augment = true;
    compare_all_kernels(chosen, data);
    std::cout << "images as floats, a short last batch of 1 sample" << std::endl;
    chosen.augment = false;
    chosen.fed = mlp::workload::wide;
    chosen.batch = chosen.samples == 0 ? 300 : std::clamp<std::size_t>(chosen.samples - 1, 1, 300);
    chosen.samples = (argc > 1 ? 1 : 7) * chosen.batch + 1;
    compare_all_kernels(chosen, data);
    std::cout << comparisons << " comparisons, " << failures << " failures" << std::endl;
    return failures == 0 && comparisons > 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::cout << "FAILED: " << error.what() << std::endl;
    return 1;
  }
}
