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

/// The ways in which the training loop is fed.
enum class technique {
  serial,      ///< one thread reads a batch, copies it, computes, waits
  workers,     ///< workers read into ordinary memory; blocking copy, then compute
  overlapped,  ///< workers read into pinned slots; the copy runs under the computation
  resident,    ///< all data on the device before the clock starts: the floor
};

inline constexpr std::array all_techniques{technique::serial, technique::workers,
                                           technique::overlapped, technique::resident};

[[nodiscard]] constexpr std::string_view name_of(technique t) noexcept {
  constexpr std::array<std::string_view, 4> names{"serial", "workers", "overlapped", "resident"};
  return names[static_cast<std::size_t>(t)];
}

/// The middle one of some values, the mean of the middle two. There must be one.
[[nodiscard]] inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2.0;
}

/// What one technique did.
struct mode_result {
  technique fed_by{};
  std::vector<double> seconds{};       ///< one a run, the loop over all epochs alone
  std::vector<double> epoch_losses{};  ///< mean over the batches of each epoch
  double accuracy = 0.0;               ///< on the test set, 0 to 1
  std::vector<double> first_losses{};  ///< the mean losses of the first steps
  std::string limit{};                 ///< what the first run was limited by; empty: not known
};

/// What one batch costs, each stage alone on one thread, in microseconds.
struct stage_costs {
  double load = 0.0;
  double copy = 0.0;
  double compute = 0.0;
};

/// What runs on the cores of the machine.
enum class core_use { reads, reads_and_steps, everything };

/// What a program has trained on.
struct device_info {
  std::string kind = "host";        ///< or "cuda"
  std::string name = "CPU device";  ///< of the GPU
  std::string driver{};             ///< its CUDA version; empty on the CPU device
  std::string runtime{};            ///< the CUDA runtime's
  std::string capability{};         ///< the GPU's compute capability
  std::size_t multiprocessors = 0;
  std::string kernels{};    ///< which ones a step is made of; empty on the CPU device
  bool graph = false;       ///< whether it is replayed as a CUDA graph
  bool models_bus = false;  ///< a copy on the CPU device takes time and no core
  std::string why{};        ///< why this device and no other

  [[nodiscard]] core_use on_cores() const {
    if (kind != "host") return core_use::reads;
    return models_bus ? core_use::reads_and_steps : core_use::everything;
  }
};

/// The least time for which the stages let a batch pass, in microseconds, and what sets it.
struct bound {
  double microseconds = 0.0;
  std::string_view limit;
};

[[nodiscard]] inline bound bound_of(const stage_costs& cost, std::size_t workers, std::size_t cores,
                                    core_use on_cores = core_use::everything) {
  const auto readers = static_cast<double>(std::clamp<std::size_t>(workers, 1, cores));
  bound most{cost.load / readers, "load"};
  const auto consider = [&](double microseconds, std::string_view limit) {
    if (microseconds > most.microseconds) most = {microseconds, limit};
  };
  consider(cost.copy, "copy");
  consider(cost.compute, "compute");
  if (on_cores != core_use::reads) {
    const double copy = on_cores == core_use::everything ? cost.copy : 0;
    consider((cost.load + copy + cost.compute) / static_cast<double>(cores), "cores");
  }
  return most;
}

/// What failed, a way of feeding or what is measured beside them, and why.
struct refusal {
  std::string what;
  std::string why;
};

/// The GPU's context is lost: nothing that this process does on it can succeed any more.
struct context_lost : std::runtime_error {
  /// `at` is what was being done, as in a `refusal`.
  context_lost(std::string at, const char* why) : runtime_error(why), where(std::move(at)) {}
  std::string where;
};

/// All that one call of the program found out.
struct results {
  std::string data_name;
  std::string data_directory;  ///< empty: not told
  std::size_t train_samples = 0;
  std::size_t test_samples = 0;
  device_info device;
  std::string build;
  std::size_t cores = 0;  ///< that this process may run on
  std::size_t batches_per_epoch = 0;
  std::vector<mode_result> modes;
  std::vector<refusal> refused;      ///< what was not measured, or not as often as it was to be
  std::string lost;                  ///< where the context was lost; empty: it was not
  std::vector<double> one_batch;     ///< seconds of each run of `repeat_one_batch`; none: not run
  std::optional<stage_costs> costs;  ///< none: not measured, or not yet
};

/// Is told what has been found so far, after every run of a mode, and of that mode.
using row_done = std::function<void(const results& so_far, const mode_result& ran)>;

}  // namespace mlp
