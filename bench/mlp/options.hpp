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
#include "shape.hpp"

namespace mlp {

/// The device to train on.
enum class device_choice { automatic, host, cuda };

/// The kernels of a step on CUDA.
enum class kernel_choice {
  thrust,  ///< Thrust, CUB and cuBLAS, one operation per launch
  cublas,  ///< cuBLAS for the two products of the first layer, and fused kernels for the rest
  fused,   ///< three fused kernels
};

[[nodiscard]] constexpr std::string_view name_of(kernel_choice kernels) noexcept {
  constexpr std::string_view names[] = {"thrust", "cublas", "fused"};
  return names[static_cast<std::size_t>(kernels)];
}

/// The training data.
enum class workload {
  mnist,  ///< images as bytes, which the network normalizes
  wide,   ///< images as floats, four times as large, in batches of 4096
};

/// The element type in which the floats of `workload::wide` are copied to the device.
enum class travel_choice {
  as_they_are,
  half,      ///< half the bytes
  bfloat16,  ///< half the bytes
  int8,      ///< a quarter of the bytes, with a scale per image
};

[[nodiscard]] constexpr std::string_view name_of(travel_choice travel) noexcept {
  constexpr std::string_view names[] = {"float", "half", "bfloat16", "int8"};
  return names[static_cast<std::size_t>(travel)];
}

/// The command line options.
struct options {
  std::optional<std::filesystem::path> data;  // if absent, find_data() chooses the folder
  std::size_t epochs = 5;
  std::size_t batch = 64;
  std::size_t samples = 0;       // of the training set; 0 means all
  std::size_t test_samples = 0;  // of the test set; 0 means all
  std::size_t workers = 1;
  std::size_t prefetch = 8;
  std::size_t chunk = 0;  // samples that a worker claims at a time; 0 lets the library choose
  std::size_t depth = 3;
  std::size_t repeat = 1;
  std::uint64_t seed = 1;
  bool augment = false;
  double bus = 0;  // bandwidth of the CPU device's simulated bus in GB/s; 0 means memcpy
  workload fed = workload::mnist;
  travel_choice travel = travel_choice::as_they_are;  // used in the overlapped loop
  device_choice device = device_choice::automatic;
  kernel_choice kernels = kernel_choice::fused;
  step_options step;
  bool graph = true;
  bool steps_table = false;
  bool variants = false;  // runs variants of the overlapped loop, one row each
  // If not empty, the table has one row per value. The next two options behave in the same way.
  std::vector<std::uint64_t> seeds;
  std::vector<std::size_t> worker_counts;
  std::vector<precision_choice> precisions;
  bool costs = true;  // true to measure the cost of a batch in each stage
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

/// Returns the experiments that `steps_table`, `seeds`, `worker_counts` or `precisions` request, in
/// running order. Each experiment is `chosen` with one of these values. Returns an empty list if
/// `chosen` requests a single experiment.
[[nodiscard]] std::vector<options> rows_of(const options& chosen);

/// Returns the experiments that `--variants` runs after `chosen`: only the overlapped loop, once
/// for each other kind of step and once for each element type in which images can be copied. The
/// variants have no files and no stage costs.
///
/// On CUDA, the first variant is the float step with the kernels of the other variants, which
/// launch one operation at a time. If `chosen` uses byte images, the first variant with float
/// images copies them unchanged.
[[nodiscard]] std::vector<options> variants_of(const options& chosen, bool is_on_cuda);

}  // namespace mlp
