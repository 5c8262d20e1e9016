// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "reduction.hpp"

namespace mlp {

/// Where in a step a rank is to die, and how, for tests.
enum class death_moment {
  reading,       ///< it has its batch, and has not differentiated it
  reduced,       ///< it has the sum of all gradients, and has not learnt
  learnt,        ///< the step is done, and not in the log
  half_written,  ///< and the three of a checkpoint's
  written,
  moved,
  throwing,  ///< as reading, by an exception and not by SIGKILL
};

/// A death by SIGKILL or by an exception, as "RANK:STEP:MOMENT" says it; steps count from 0 over
/// all epochs.
struct death {
  int rank = 0;
  std::uint64_t step = 0;
  death_moment moment = death_moment::reading;
};

/// What the ranks compute on.
enum class rank_device { cpu, cuda };

/// What the command line of `penstock_mlp_mpi` and `penstock_mlp_tcp` says.
struct rank_options {
  rank_device device = rank_device::cpu;
  std::chrono::seconds patience{600};         // for a sum by NCCL, a call over TCP
  std::optional<std::filesystem::path> data;  // absent: digits are drawn
  std::uint64_t samples = 60'000;
  std::uint64_t epochs = 1;
  std::size_t global_batch = 64;
  std::size_t workers = 1;
  std::uint64_t seed = 1;
  reduction how = reduction::fast;
  std::optional<std::filesystem::path> checkpoint;
  std::uint64_t every = 100;                 // steps from one checkpoint to the next
  std::optional<std::filesystem::path> log;  // a line a step, by rank 0
  std::optional<death> dies;
};

/// Either options to run with, or the status to exit with at once.
struct rank_command_line {
  rank_options chosen;
  std::optional<int> exit_status;
};

[[nodiscard]] rank_command_line parse_rank_options(int argc, const char* const* argv);

}  // namespace mlp
