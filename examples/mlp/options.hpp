#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "results.hpp"

namespace mlp {

/// What the command line says.
struct options {
  std::optional<std::filesystem::path> data;  // absent: find_data() chooses
  std::size_t epochs = 5;
  std::size_t batch = 64;
  std::size_t workers = 1;
  std::size_t prefetch = 8;
  std::size_t depth = 3;
  std::size_t repeat = 1;
  std::uint64_t seed = 1;
  bool augment = false;
  std::vector<technique> modes;
  std::optional<std::filesystem::path> json;
};

/// Either options to run with, or the status to exit with at once: after --help, which prints the
/// list of options, or after a complaint about the command line on standard error.
struct command_line {
  options chosen;
  std::optional<int> exit_status;
};

[[nodiscard]] command_line parse_command_line(int argc, const char* const* argv);

}  // namespace mlp
