// SPDX-License-Identifier: BSL-1.0
// penstock_mlp_bench: a perceptron trained on MNIST, fed in four ways. README.md has the options.
#include <exception>
#include <iostream>
#include <vector>

#include "cuda_experiment.hpp"
#include "data.hpp"
#include "experiment.hpp"
#include "options.hpp"
#include "report.hpp"

namespace {

mlp::digit_data data_for(const mlp::options& chosen) {
  if (const auto directory = mlp::find_data(chosen.data)) return mlp::read_data(*directory);
  std::cout << "no MNIST given (--data, $MNIST_DIR, data/mnist): random digits" << std::endl;
  return mlp::random_data();
}

void complain(const std::exception& error) {
  std::cerr << "penstock_mlp_bench: " << error.what() << std::endl;
}

/// A line for a run that has ended, whose row is in the file.
void say(const mlp::mode_result& ran) {
  std::cout << "ran " << name_of(ran.fed_by) << ": " << ran.seconds.back() << " s" << std::endl;
}

/// Runs an experiment, which is the last row of the file from its first mode on.
void measure_row(const mlp::options& chosen, const mlp::digit_data& data,
                 std::vector<mlp::measured_step>& rows) {
  rows.push_back({chosen, {}, false});
  const auto keep = [&](const mlp::results& found) {
    rows.back().found = found;
    if (chosen.json) mlp::write_steps_json(rows);
  };
  const auto found = mlp::run_experiment(chosen, data, [&](const auto& so_far, const auto& ran) {
    keep(so_far);
    say(ran);
  });
  rows.back().is_complete = true;
  keep(found);
  if (chosen.steps_table) {
    mlp::print_last_step(std::cout, rows);
  } else {
    mlp::print_report(std::cout, chosen, found);
  }
}

/// Runs one experiment after the other in this process. One that fails ends its row alone. Returns
/// whether none has.
bool measure_rows(const std::vector<mlp::options>& runs, const mlp::digit_data& data) {
  std::vector<mlp::measured_step> rows;
  bool all_ran = true;
  for (const mlp::options& chosen : runs) {
    try {
      measure_row(chosen, data, rows);
    } catch (const std::exception& error) {
      complain(error);
      if (rows.back().found.modes.empty()) rows.pop_back();
      all_ran = false;
    }
  }
  return all_ran;
}

void measure_modes(const mlp::options& chosen, const mlp::digit_data& data) {
  const auto found = mlp::run_experiment(chosen, data, [&](const auto& so_far, const auto& ran) {
    if (chosen.json) mlp::write_json(chosen, so_far, false);
    say(ran);
  });
  std::vector<mlp::measured_step> variants;
  if (chosen.variants) {
    for (const mlp::options& variant : mlp::variants_of(chosen, found.device.kind == "cuda")) {
      variants.push_back({variant, mlp::run_experiment(variant, data)});
      if (chosen.json) mlp::write_json(chosen, found, false, variants);
    }
  }
  mlp::print_report(std::cout, chosen, found, variants);
  if (chosen.json) mlp::write_json(chosen, found, true, variants);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto [chosen, exit_status] = mlp::parse_command_line(argc, argv);
    if (exit_status) return *exit_status;
    // Better said before digits are made or read.
    if (chosen.steps_table || chosen.device == mlp::device_choice::cuda) mlp::require_cuda();
    const auto data = data_for(chosen);
    if (const auto rows = mlp::rows_of(chosen); !rows.empty()) {
      return measure_rows(rows, data) ? 0 : 1;
    }
    measure_modes(chosen, data);
    return 0;
  } catch (const std::exception& error) {
    complain(error);
    return 1;
  }
}
