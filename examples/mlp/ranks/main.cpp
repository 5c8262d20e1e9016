// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/ranks/world.hpp>

#include "cuda_ranks.hpp"
#include "data.hpp"
#include "digit_source.hpp"
#include "host_backend.hpp"
#include "mpi_collective.hpp"
#include "rank_options.hpp"
#include "same_parameters.hpp"
#include "train.hpp"

namespace ps = penstock;

namespace {

std::string hex(std::uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

/// The environment and MPI must say the same: an mpirun of another MPI starts worlds of one.
void require_same_world(const ps::world& w, const mlp::mpi_collective& ranks) {
  if (w.rank == ranks.rank() && w.size == ranks.size()) return;
  throw std::runtime_error("the environment says " + w.str() + ", and MPI rank " +
                           std::to_string(ranks.rank()) + " of " + std::to_string(ranks.size()) +
                           ": start the program by the mpirun of the MPI that it is linked with");
}

mlp::parallel_result train(const mlp::rank_options& chosen, const ps::world& w,
                           mlp::mpi_collective& ranks) {
  mlp::digit_source digits{chosen.samples};
  std::optional<mlp::digit_data> files;
  if (chosen.data) {
    files = mlp::read_data(*chosen.data);
    digits = {std::min(digits.count, files->train.size()), &files->train};
  }
  if (chosen.device == mlp::rank_device::cuda) {
    mlp::host_ranks_of host{ranks};
    return mlp::train_on_cuda(digits, w, host, chosen);
  }
  const ps::cpu_device device;
  return mlp::train_in_parallel(digits, w, device, mlp::host_backend{}, device.inline_stream(),
                                ranks, chosen);
}

void report(const mlp::parallel_result& found, const ps::world& w) {
  std::vector<std::uint64_t> bits;
  for (const float p : found.parameters) bits.push_back(std::bit_cast<std::uint32_t>(p));
  if (!found.resumed.empty()) std::cout << found.resumed << '\n';
  char loss[40];
  std::snprintf(loss, sizeof loss, "%a = %.6f", found.last_loss, found.last_loss);
  std::cout << "ranks      " << w.size << '\n'
            << "steps      " << found.steps << '\n'
            << "batches    " << hex(found.batches) << '\n'
            << "last loss  " << loss << '\n'
            << "parameters " << hex(mlp::hash_of(bits)) << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  const auto [chosen, exit_status] = mlp::parse_rank_options(argc, argv);
  if (exit_status) return *exit_status;
  std::string who = "penstock_mlp_mpi";
  if (const auto reason = mlp::why_no_cuda_ranks();
      reason && chosen.device == mlp::rank_device::cuda) {
    std::cerr << who << ": no --device cuda: " << *reason << '\n';
    return 1;
  }
  try {
    const auto w = ps::world::from_environment();
    who += ": " + w.str();
    const mlp::mpi_session session;
    mlp::mpi_collective ranks;
    // Inside of the ranks' scope: to free them is a call for all of them, and the others are
    // waiting for something else.
    try {
      require_same_world(w, ranks);
      const auto found = train(chosen, w, ranks);
      mlp::require_same_parameters(found.parameters, ranks);
      if (w.rank == 0) report(found, w);
      return 0;
    } catch (const std::exception& error) {
      std::cerr << who << ": " << error.what() << std::endl;
      mlp::mpi_session::abort();
    }
  } catch (const std::exception& error) {
    std::cerr << who << ": " << error.what() << '\n';
    return 1;
  }
}
