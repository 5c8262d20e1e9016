#include <exception>
#include <iostream>

#include "data.hpp"
#include "experiment.hpp"
#include "options.hpp"
#include "report.hpp"

namespace {

mlp::digit_data data_for(const mlp::options& chosen) {
  if (const auto directory = mlp::find_data(chosen.data)) return mlp::read_data(*directory);
  std::cout << "no MNIST given (--data, $MNIST_DIR, data/mnist): drawing synthetic digits"
            << std::endl;
  return mlp::synthetic_data();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto [chosen, exit_status] = mlp::parse_command_line(argc, argv);
    if (exit_status) return *exit_status;
    const auto data = data_for(chosen);
    const auto found = mlp::run_experiment(chosen, data);
    mlp::print_report(std::cout, chosen, found);
    if (chosen.json) mlp::write_json(chosen, found);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "penstock_mlp: " << error.what() << '\n';
    return 1;
  }
}
