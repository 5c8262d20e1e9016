// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mlp {

/// The ways to feed the training loop.
enum class technique {
  serial,      ///< one thread reads a batch, copies it, computes, and waits
  workers,     ///< workers read into pageable memory; a blocking copy precedes the computation
  overlapped,  ///< workers read into pinned slots; copies overlap the computation
  resident,    ///< the floor: all data is on the device before the clock starts
};

inline constexpr std::array all_techniques{technique::serial, technique::workers,
                                           technique::overlapped, technique::resident};

[[nodiscard]] constexpr std::string_view name_of(technique t) noexcept {
  constexpr std::array<std::string_view, 4> names{"serial", "workers", "overlapped", "resident"};
  return names[static_cast<std::size_t>(t)];
}

/// Returns the median. For an even count, this is the mean of the two middle values. There must be
/// at least one value.
[[nodiscard]] inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2.0;
}

/// The results of a technique.
struct mode_result {
  technique fed_by{};
  std::vector<double> seconds{};       ///< one value per run, for the loop over all epochs only
  std::vector<double> epoch_losses{};  ///< mean over the batches of each epoch
  double accuracy = 0.0;               ///< on the test set, 0 to 1
  std::vector<double> first_losses{};  ///< mean losses of the first steps
  std::string limit{};                 ///< bottleneck of the first run; empty if unknown
};

/// The cost of a batch in each stage in microseconds, measured alone on one thread.
struct stage_costs {
  double load = 0.0;
  double copy = 0.0;
  double compute = 0.0;
};

/// The device of the training.
struct device_info {
  std::string kind = "host";        ///< "host" or "cuda"
  std::string name = "CPU device";  ///< name of the GPU
  std::string driver{};             ///< CUDA version of the driver; empty on the CPU device
  std::string runtime{};            ///< version of the CUDA runtime
  std::string capability{};         ///< compute capability of the GPU
  std::size_t multiprocessors = 0;
  std::string kernels{};  ///< kernels of a step; empty for the CPU device
  bool graph = false;     ///< true if steps are replayed as CUDA graphs
  std::string why{};      ///< reason for the choice of this device
};

/// The minimum time per batch in microseconds that the stages permit, and the stage that determines
/// it. The steps and copies of the CPU device occupy cores, and those of a GPU do not.
struct bound {
  double microseconds = 0.0;
  std::string_view limit;
};

[[nodiscard]] inline bound bound_of(const stage_costs& cost, std::size_t workers, std::size_t cores,
                                    bool is_on_host = true) {
  const auto readers = static_cast<double>(std::clamp<std::size_t>(workers, 1, cores));
  bound max{cost.load / readers, "load"};
  const auto consider = [&](double microseconds, std::string_view limit) {
    if (microseconds > max.microseconds) max = {microseconds, limit};
  };
  consider(cost.copy, "copy");
  consider(cost.compute, "compute");
  if (is_on_host) {
    consider((cost.load + cost.copy + cost.compute) / static_cast<double>(cores), "cores");
  }
  return max;
}

/// A mode or an additional measurement that failed, and the reason.
struct failure {
  std::string what;
  std::string why;
};

/// Thrown if the context of the GPU is lost. No later work of this process on the GPU can succeed.
struct context_lost : std::runtime_error {
  /// Constructs the exception. `at` describes the activity during which the context was lost, as in
  /// a `failure`.
  context_lost(std::string at, const char* why) : runtime_error(why), where(std::move(at)) {}
  std::string where;
};

/// All results of a run of the program.
struct results {
  std::string data_name;
  std::string data_directory;  ///< empty if not specified
  std::size_t train_samples = 0;
  std::size_t test_samples = 0;
  device_info device;
  std::string build;
  std::size_t cores = 0;  ///< number of cores that this process may use
  std::size_t batches_per_epoch = 0;
  std::vector<mode_result> modes;
  std::vector<failure> failed;  ///< measurements that failed, or ran less often than requested
  /// Activity during which the context was lost; empty if it was not lost.
  std::string lost;
  /// Duration of each run of `repeat_one_batch` in seconds. Empty if it did not run.
  std::vector<double> one_batch;
  std::optional<stage_costs> costs;  ///< empty if not measured yet
};

/// Called after every run of a mode, with the results so far and the results of that mode.
using row_done = std::function<void(const results& so_far, const mode_result& ran)>;

}  // namespace mlp
