// SPDX-License-Identifier: BSL-1.0
#include <exception>
#include <iostream>
#include <vector>

#include "cuda_experiment.hpp"
#include "data.hpp"
#include "experiment.hpp"
#include "options.hpp"
#include "picture.hpp"
#include "report.hpp"
#include "search.hpp"
#include "variants.hpp"

namespace {

mlp::digit_data data_for(const mlp::options& chosen) {
  if (const auto directory = mlp::find_data(chosen.data)) return mlp::read_data(*directory);
  std::cout << "no MNIST given (--data, $MNIST_DIR, data/mnist): drawing synthetic digits"
            << std::endl;
  return mlp::synthetic_data();
}

/// Measures the step in each way that there is on CUDA, from the plainest on.
void measure_steps(mlp::options chosen, const mlp::digit_data& data) {
  chosen.device = mlp::device_choice::cuda;
  chosen.modes = {mlp::technique::overlapped, mlp::technique::resident};
  std::vector<mlp::measured_step> rows;
  for (const auto kernels :
       {mlp::kernel_choice::thrust, mlp::kernel_choice::cublas, mlp::kernel_choice::fused}) {
    for (const bool graph : {false, true}) {
      chosen.kernels = kernels;
      chosen.graph = graph;
      rows.push_back({chosen, mlp::run_experiment(chosen, data)});
    }
  }
  mlp::print_steps_table(std::cout, rows);
  if (chosen.json) mlp::write_steps_json(rows);
}

std::vector<mlp::measured_step> run_variants(const mlp::options& chosen,
                                             const mlp::digit_data& data, bool is_on_cuda) {
  std::vector<mlp::measured_step> rows;
  for (const mlp::options& variant : mlp::variants_of(chosen, is_on_cuda)) {
    rows.push_back({variant, mlp::run_experiment(variant, data)});
  }
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto [chosen, exit_status] = mlp::parse_command_line(argc, argv);
    if (exit_status) return *exit_status;
    // Better said before digits are drawn or read.
    if (chosen.steps_table || chosen.device == mlp::device_choice::cuda) mlp::require_cuda();
    const auto data = data_for(chosen);
    if (chosen.steps_table) {
      measure_steps(chosen, data);
      return 0;
    }
    if (chosen.search > 0) {
      mlp::search_options_for(chosen, data, std::cout);
      return 0;
    }
    const auto found = mlp::run_experiment(chosen, data);
    std::vector<mlp::measured_step> variants;
    if (chosen.variants) variants = run_variants(chosen, data, found.device.kind == "cuda");
    mlp::print_report(std::cout, chosen, found, variants);
    if (chosen.json) mlp::write_json(chosen, found, variants);
    if (chosen.stats) mlp::write_stats(chosen, found);
    if (chosen.svg) mlp::write_picture(chosen, found);
    if (chosen.utilisation) mlp::write_utilisation(chosen, found);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "penstock_mlp: " << error.what() << '\n';
    return 1;
  }
}
