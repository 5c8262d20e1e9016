// SPDX-License-Identifier: BSL-1.0
// penstock_mlp_mpi: ranks that mpirun has started, which MPI connects.
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>

#include <penstock/ranks/world.hpp>

#include "host_ranks.hpp"
#include "mpi_collective.hpp"
#include "program.hpp"
#include "rank_options.hpp"

namespace ps = penstock;

namespace {

/// The environment and MPI must say the same: an mpirun of another MPI starts worlds of one.
void require_same_world(const ps::world& w, const mlp::mpi_collective& ranks) {
  if (w.rank == ranks.rank() && w.size == ranks.size()) return;
  throw std::runtime_error("the environment says " + w.str() + ", and MPI rank " +
                           std::to_string(ranks.rank()) + " of " + std::to_string(ranks.size()) +
                           ": start the program by the mpirun of the MPI that it is linked with");
}

}  // namespace

int main(int argc, char** argv) {
  const auto [chosen, exit_status] = mlp::parse_rank_options(argc, argv);
  if (exit_status) return *exit_status;
  std::string who = "penstock_mlp_mpi";
  if (!mlp::can_run(chosen, who)) return 1;
  try {
    const auto w = ps::world::from_environment();
    who += ": " + w.str();
    const mlp::mpi_session session;
    mlp::mpi_collective ranks;
    // Inside of the ranks' scope: to free them is a call for all of them, and the others are
    // waiting for something else.
    try {
      require_same_world(w, ranks);
      mlp::host_ranks_of host{ranks};
      mlp::run(chosen, w, host);
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
