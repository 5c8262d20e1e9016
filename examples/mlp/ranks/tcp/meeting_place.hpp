// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>

#include <penstock/ranks/detail/launcher_variables.hpp>
#include <penstock/ranks/world.hpp>
#include <penstock/ranks/world_error.hpp>

#include "tcp_socket.hpp"

namespace mlp {

/// Where the ranks of a world find each other, as the launcher says it to all of them.
struct meeting_place {
  endpoint store;                   ///< MASTER_ADDR, which is rank 0's machine, and MASTER_PORT
  bool is_hosted_by_agent = false;  ///< else rank 0 has to host the store
  std::string prefix;               ///< of this start's keys: an agent's store outlives restarts

  /// Throws `penstock::world_error` where a variable is missing, or the port is no number from 1 to
  /// 65535. `read` looks a variable up.
  template <penstock::environment Environment = penstock::detail::process_environment>
  [[nodiscard]] static meeting_place from_environment(const Environment& read = {}) {
    const std::optional<std::string> host = read("MASTER_ADDR");
    const std::optional<std::string> port = read("MASTER_PORT");
    if (!host || host->empty() || !port) {
      throw penstock::world_error(
          std::string{"meeting_place: no "} +
          (host && !host->empty() ? "MASTER_PORT" : "MASTER_ADDR") +
          ": start the program by torchrun, or set MASTER_ADDR to rank 0's machine and "
          "MASTER_PORT to a port that is free there, the same on all ranks");
    }
    std::uint16_t number = 0;
    const char* const end = port->data() + port->size();
    const auto [last, problem] = std::from_chars(port->data(), end, number);
    if (problem != std::errc{} || last != end || number == 0) {
      throw penstock::world_error("meeting_place: MASTER_PORT='" + port->substr(0, 40) +
                                  "' is no number from 1 to 65535");
    }
    return {.store = {*host, number},
            .is_hosted_by_agent = read("TORCHELASTIC_USE_AGENT_STORE") == "True",
            .prefix = "penstock/" + read("TORCHELASTIC_RUN_ID").value_or("").substr(0, 1000) + "/" +
                      read("TORCHELASTIC_RESTART_COUNT").value_or("0").substr(0, 20) + "/"};
  }
};

}  // namespace mlp
