// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "results.hpp"

namespace mlp {

/// The device to train on.
enum class device_choice { automatic, host, cuda };

/// The kernels of a step on CUDA.
enum class kernel_choice {
  cublas,  ///< cuBLAS for the two products of the first layer, and fused kernels for the rest
  fused,   ///< three fused kernels
};

[[nodiscard]] constexpr std::string_view name_of(kernel_choice kernels) noexcept {
  constexpr std::string_view names[] = {"cublas", "fused"};
  return names[static_cast<std::size_t>(kernels)];
}

/// The training data.
enum class workload {
  mnist,  ///< images as bytes, which the network normalizes
  wide,   ///< images as floats, four times as large, in batches of 4096
};

/// The command line options.
struct options {
  std::optional<std::filesystem::path> data;  // if absent, find_data() chooses the folder
  std::size_t epochs = 5;
  std::size_t batch = 64;
  std::size_t samples = 0;       // of the training set; 0 means all
  std::size_t test_samples = 0;  // of the test set; 0 means all
  std::size_t workers = 1;
  std::size_t depth = 3;
  std::size_t repeat = 1;
  std::uint64_t seed = 1;
  bool augment = false;
  workload fed = workload::mnist;
  device_choice device = device_choice::automatic;
  kernel_choice kernels = kernel_choice::fused;
  bool graph = true;
  std::vector<std::uint64_t> seeds;  // if not empty, the experiment is run with each of these
  bool costs = true;                 // true to measure the cost of a batch in each stage
  std::vector<technique> modes;
  std::optional<std::filesystem::path> json;
};

/// Either the options to run with, or an exit status. There is an exit status after --help, which
/// prints the options, and after an invalid command line, for which stderr has an error message.
struct command_line {
  options chosen;
  std::optional<int> exit_status;
};

[[nodiscard]] command_line parse_command_line(int argc, const char* const* argv);

/// Returns a copy of `chosen` for each of its `seeds`, or a single one if `seeds` is empty.
[[nodiscard]] std::vector<options> rows_of(const options& chosen);

}  // namespace mlp
