// SPDX-License-Identifier: BSL-1.0
// penstock_mlp_tcp: ranks that torchrun has started, or anything that sets its variables. They find
// each other by a TCP store; no MPI is linked.
#include <exception>
#include <iostream>
#include <string>

#include <penstock/ranks/world.hpp>

#include "host_ranks.hpp"
#include "program.hpp"
#include "rank_options.hpp"
#include "tcp/tcp_collective.hpp"

int main(int argc, char** argv) {
  const auto [chosen, exit_status] = mlp::parse_rank_options(argc, argv);
  if (exit_status) return *exit_status;
  std::string who = "penstock_mlp_tcp";
  if (!mlp::can_run(chosen, who)) return 1;
  try {
    const auto w = penstock::world::from_environment();
    who += ": " + w.str();
    mlp::tcp_collective ranks{w, chosen.patience};
    try {
      mlp::host_ranks_of host{ranks};
      mlp::run(chosen, w, host);
      return 0;
    } catch (const std::exception& error) {
      ranks.abort(error.what());  // the others are waiting for this rank
      throw;
    }
  } catch (const std::exception& error) {
    std::cerr << who << ": " << error.what() << std::endl;
    return 1;
  }
}
