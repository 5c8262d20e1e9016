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
  mlp::measured_row& row = rows.emplace_back(mlp::measured_row{chosen, {}, false});
  const auto keep = [&] {
    if (chosen.json) mlp::write_json(rows);
  };
  try {
    row.found = mlp::run_experiment(chosen, data, [&](const auto& so_far, const auto& ran) {
      row.found = so_far;
      keep();
      say(ran);
    });
  } catch (const mlp::context_lost& error) {
    row.found.lost = error.where;
    if (chosen.seeds.empty() || !row.found.modes.empty()) keep();
    throw;
  }
  row.is_complete = true;
  keep();
  mlp::print_report(std::cout, chosen, row.found);
  return is_whole(row.found);
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
    const bool all_ran = measure_rows(mlp::rows_of(chosen), data_for(chosen));
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
