// SPDX-License-Identifier: BSL-1.0
// penstock_mlp_bench: a perceptron that is trained on MNIST and fed in four ways. README.md lists
// the options.
#include <exception>
#include <iostream>
#include <vector>

#include "cuda_experiment.hpp"
#include "data.hpp"
#include "experiment.hpp"
#include "options.hpp"
#include "report.hpp"

#if defined(PENSTOCK_BENCH_ON_FAKE)
#include "failing_call.hpp"
#endif

namespace {

mlp::digit_data data_for(const mlp::options& chosen) {
  if (const auto directory = mlp::find_data(chosen.data)) return mlp::read_data(*directory);
  std::cout << "no MNIST given (--data, $MNIST_DIR, data/mnist): random digits" << std::endl;
  return mlp::random_data();
}

void complain(const std::exception& error) {
  std::cerr << "penstock_mlp_bench: " << error.what() << std::endl;
}

/// Prints a line for a finished run, whose row has been written to the file.
void say(const mlp::mode_result& ran) {
  std::cout << "ran " << name_of(ran.fed_by) << ": " << ran.seconds.back() << " s" << std::endl;
}

/// Prints the parts of an experiment that failed. Returns true if there are none.
bool is_whole(const mlp::results& found) {
  for (const mlp::failure& one : found.failed) {
    std::cerr << "penstock_mlp_bench: " << one.what << ": " << one.why << std::endl;
  }
  return found.failed.empty();
}

/// Runs an experiment, which becomes the last row of the file as soon as its first mode has
/// finished. Returns true if the whole experiment ran.
bool measure_row(const mlp::options& chosen, const mlp::digit_data& data,
                 std::vector<mlp::measured_row>& rows) {
  rows.push_back({chosen, {}, false});
  const auto keep = [&](const mlp::results& found) {
    rows.back().found = found;
    if (chosen.json) mlp::write_rows_json(rows);
  };
  try {
    const auto found = mlp::run_experiment(chosen, data, [&](const auto& so_far, const auto& ran) {
      keep(so_far);
      say(ran);
    });
    rows.back().is_complete = true;
    keep(found);
  } catch (const mlp::context_lost& error) {
    rows.back().found.lost = error.where;
    if (!rows.back().found.modes.empty()) keep(mlp::results{rows.back().found});
    throw;
  }
  mlp::print_report(std::cout, chosen, rows.back().found);
  return is_whole(rows.back().found);
}

/// Runs the experiments one after another in this process. A failed experiment affects only its own
/// row. Returns true if no experiment failed.
bool measure_rows(const std::vector<mlp::options>& runs, const mlp::digit_data& data) {
  std::vector<mlp::measured_row> rows;
  bool all_ran = true;
  for (const mlp::options& chosen : runs) {
    try {
      all_ran = measure_row(chosen, data, rows) && all_ran;
    } catch (const mlp::context_lost&) {
      throw;
    } catch (const std::exception& error) {
      complain(error);
      if (rows.back().found.modes.empty()) rows.pop_back();
      all_ran = false;
    }
  }
  return all_ran;
}

/// Runs an experiment. Returns true if all of it ran.
bool measure_modes(const mlp::options& chosen, const mlp::digit_data& data) {
  mlp::results found;
  const auto keep = [&](bool is_complete) {
    if (chosen.json) mlp::write_json(chosen, found, is_complete);
  };
  try {
    found = mlp::run_experiment(chosen, data, [&](const auto& so_far, const auto& ran) {
      found = so_far;
      keep(false);
      say(ran);
    });
  } catch (const mlp::context_lost& error) {
    found.lost = error.where;
    keep(false);
    throw;
  }
  mlp::print_report(std::cout, chosen, found);
  keep(true);
  return is_whole(found);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto [chosen, exit_status] = mlp::parse_command_line(argc, argv);
    if (exit_status) return *exit_status;
#if defined(PENSTOCK_BENCH_ON_FAKE)
    bench::arm_failure();
#endif
    // Reports an error before digits are generated or read.
    if (chosen.device == mlp::device_choice::cuda) mlp::require_cuda();
    const auto data = data_for(chosen);
    const auto rows = mlp::rows_of(chosen);
    const bool all_ran = rows.empty() ? measure_modes(chosen, data) : measure_rows(rows, data);
#if defined(PENSTOCK_BENCH_ON_FAKE)
    bench::list_calls();
#endif
    return all_ran ? 0 : 1;
  } catch (const mlp::context_lost& error) {
    std::cerr << "penstock_mlp_bench: the GPU's context was lost: " << error.what() << std::endl;
    return 3;
  } catch (const std::exception& error) {
    complain(error);
    return 1;
  }
}
