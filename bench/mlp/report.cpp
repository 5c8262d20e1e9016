// SPDX-License-Identifier: BSL-1.0
#include "report.hpp"

#include <filesystem>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace mlp {

namespace {

std::optional<double> seconds_of(const results& found, technique t) {
  for (const mode_result& mode : found.modes) {
    if (mode.fed_by == t) return median(mode.seconds);
  }
  return std::nullopt;
}

std::optional<double> ratio(std::optional<double> above, std::optional<double> below) {
  if (!above || !below) return std::nullopt;
  return *above / *below;
}

/// Returns the time per step of a mode in microseconds, or an empty optional if the mode was not
/// run.
std::optional<double> step_of(const options& chosen, const results& found, technique t) {
  const auto seconds = seconds_of(found, t);
  if (!seconds) return std::nullopt;
  return *seconds * 1e6 / static_cast<double>(chosen.epochs * found.batches_per_epoch);
}

/// Returns how much longer the overlapped loop takes than the bound, as a fraction: 0.02 means 2 %
/// longer.
std::optional<double> above_bound(const options& chosen, const results& found,
                                  const std::optional<bound>& min) {
  const auto batch = step_of(chosen, found, technique::overlapped);
  if (!batch || !min) return std::nullopt;
  return *batch / min->microseconds - 1.0;
}

std::optional<bound> least_of(const options& chosen, const results& found) {
  if (!found.costs) return std::nullopt;
  return bound_of(*found.costs, chosen.workers, found.cores, found.device.kind == "host");
}

std::string described(const device_info& device) {
  if (device.kind != "cuda") return device.name;
  return device.name + " (compute capability " + device.capability + ", " +
         std::to_string(device.multiprocessors) + " multiprocessors, driver for CUDA " +
         device.driver + ", runtime " + device.runtime + "), " + device.kernels + " kernels" +
         (device.graph ? ", as graphs" : "");
}

std::string fixed(std::optional<double> value, int digits, const char* unit = "") {
  if (!value) return "-";
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << *value << unit;
  return text.str();
}

}  // namespace

void print_report(std::ostream& out, const options& chosen, const results& found) {
  out << "data    " << found.data_name;
  if (!found.data_directory.empty()) out << " in " << found.data_directory;
  out << ", " << found.train_samples << " + " << found.test_samples
      << (chosen.augment ? ", augmented" : "")
      << (chosen.fed == workload::wide ? ", as floats" : "") << '\n'
      << "device  " << described(found.device) << ", " << found.cores << " cores, "
      << chosen.workers << (chosen.workers == 1 ? " worker" : " workers") << ", depth "
      << chosen.depth << '\n'
      << "because " << found.device.why << '\n'
      << "build   " << found.build << '\n'
      << "run     " << chosen.epochs << " epochs of " << found.batches_per_epoch << " steps, batch "
      << chosen.batch << ", seed " << chosen.seed;
  if (chosen.repeat > 1) out << "; medians of " << chosen.repeat << " runs";
  out << "\n\n";

  const auto row = [&](const auto&... cells) {
    constexpr int widths[] = {12, 10, 12, 12, 14, 12, 14};
    const int* width = widths;
    ((out << (width == widths ? std::left : std::right) << std::setw(*width) << cells, ++width),
     ...);
    out << '\n';
  };
  row("technique", "total s", "s / epoch", "vs serial", "fed/resident", "final loss",
      "test accuracy");
  for (const mode_result& mode : found.modes) {
    const double seconds = median(mode.seconds);
    row(name_of(mode.fed_by), fixed(seconds, 3),
        fixed(seconds / static_cast<double>(chosen.epochs), 3),
        fixed(ratio(seconds_of(found, technique::serial), seconds), 2, "x"),
        fixed(ratio(seconds, seconds_of(found, technique::resident)), 3),
        fixed(mode.epoch_losses.back(), 5), fixed(100.0 * mode.accuracy, 2, " %"));
  }

  if (!found.one_batch.empty()) {
    const double seconds = median(found.one_batch);
    row("one batch", fixed(seconds, 3), fixed(seconds / static_cast<double>(chosen.epochs), 3), "",
        fixed(ratio(seconds, seconds_of(found, technique::resident)), 3), "", "");
  }

  out << '\n';
  if (const auto min = least_of(chosen, found)) {
    out << "per batch, each alone: load " << fixed(found.costs->load, 1, " us") << ", copy "
        << fixed(found.costs->copy, 1, " us") << ", compute "
        << fixed(found.costs->compute, 1, " us") << "\nno loop is faster than "
        << fixed(min->microseconds, 1, " us") << " a batch, for " << min->limit;
    if (const auto above = above_bound(chosen, found, min)) {
      out << "; overlapped takes " << fixed(step_of(chosen, found, technique::overlapped), 1, " us")
          << ", " << fixed(100.0 * *above, 1, " %") << " above";
    }
    out << '\n';
  }
  for (const mode_result& mode : found.modes) {
    if (!mode.limit.empty()) out << name_of(mode.fed_by) << " is " << mode.limit << '\n';
  }
}

namespace {

nlohmann::ordered_json json_of(const options& chosen, const results& found, bool is_complete) {
  using json = nlohmann::ordered_json;
  const auto or_null = [](std::optional<double> value) { return value ? json(*value) : json{}; };

  const auto or_null_text = [](const std::string& text) {
    return text.empty() ? json{} : json(text);
  };

  const auto min = least_of(chosen, found);
  std::optional<double> one_batch;
  if (!found.one_batch.empty()) one_batch = median(found.one_batch);
  const json floor{{"seconds", or_null(one_batch)}, {"seconds_of_runs", found.one_batch}};
  json modes = json::array();
  for (const mode_result& mode : found.modes) {
    const double seconds = median(mode.seconds);
    modes.push_back(
        {{"technique", name_of(mode.fed_by)},
         {"seconds", seconds},
         {"seconds_of_runs", mode.seconds},
         {"seconds_per_epoch", seconds / static_cast<double>(chosen.epochs)},
         {"speedup_over_serial", or_null(ratio(seconds_of(found, technique::serial), seconds))},
         {"fed_over_resident", or_null(ratio(seconds, seconds_of(found, technique::resident)))},
         {"fed_over_one_batch", or_null(ratio(seconds, one_batch))},
         {"first_losses", mode.first_losses},
         {"epoch_losses", mode.epoch_losses},
         {"final_loss", mode.epoch_losses.back()},
         {"test_accuracy", mode.accuracy}});
  }
  json stages;
  if (min) {
    stages = {{"load", found.costs->load},
              {"copy", found.costs->copy},
              {"compute", found.costs->compute},
              {"bound", min->microseconds},
              {"bound_by", min->limit}};
  }
  json failed = json::array();
  for (const failure& one : found.failed) failed.push_back({{"what", one.what}, {"why", one.why}});
  return json{{"complete", is_complete},
              {"lost", or_null_text(found.lost)},
              {"failed", failed},
              {"data",
               {{"name", found.data_name},
                {"directory", found.data_directory},
                {"train_samples", found.train_samples},
                {"test_samples", found.test_samples}}},
              {"device",
               {{"kind", found.device.kind},
                {"name", found.device.name},
                {"driver", or_null_text(found.device.driver)},
                {"runtime", or_null_text(found.device.runtime)},
                {"compute_capability", or_null_text(found.device.capability)},
                {"multiprocessors", found.device.multiprocessors},
                {"kernels", or_null_text(found.device.kernels)},
                {"graph", found.device.graph},
                {"why", found.device.why}}},
              {"build", found.build},
              {"cores", found.cores},
              {"options",
               {{"epochs", chosen.epochs},
                {"batch", chosen.batch},
                {"workers", chosen.workers},
                {"depth", chosen.depth},
                {"augment", chosen.augment},
                {"workload", chosen.fed == workload::wide ? "wide" : "mnist"},
                {"seed", chosen.seed},
                {"repeat", chosen.repeat}}},
              {"batches_per_epoch", found.batches_per_epoch},
              {"modes", modes},
              {"one_batch", floor},
              {"batch_microseconds", stages},
              {"overlapped_above_bound", or_null(above_bound(chosen, found, min))}};
}

/// Writes a new file and renames it, so that the previous contents remain if the process is killed.
void write(const std::filesystem::path& path, const nlohmann::ordered_json& what) {
  const std::filesystem::path beside{path.string() + ".new"};
  std::ofstream file{beside};
  file << what.dump(2) << '\n';
  file.close();
  if (!file) throw std::runtime_error(beside.string() + ": can't be written");
  std::filesystem::rename(beside, path);
}

}  // namespace

void write_json(const std::vector<measured_row>& rows) {
  auto all = nlohmann::ordered_json::array();
  for (const measured_row& one : rows) {
    all.push_back(json_of(one.chosen, one.found, one.is_complete));
  }
  const options& chosen = rows.front().chosen;
  write(*chosen.json, chosen.seeds.empty() ? all[0] : all);
}

}  // namespace mlp
