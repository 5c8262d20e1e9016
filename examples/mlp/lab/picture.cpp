// SPDX-License-Identifier: BSL-1.0
#include "picture.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace mlp {

namespace {

std::string fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string counted(std::size_t count, const std::string& what, const std::string& plural = "s") {
  return std::to_string(count) + " " + what + (count == 1 ? "" : plural);
}

/// How many steps were recorded: the last lane is theirs.
std::size_t batches_of(const std::vector<lane>& lanes) { return lanes.back().spans.size(); }

/// Of the runs of a loop the one in the middle by duration, of two the slower one.
const std::vector<lane>& middle_run(const std::vector<recorded_loop>& recorded, technique fed_by) {
  std::vector<const std::vector<lane>*> runs;
  for (const recorded_loop& loop : recorded) {
    if (loop.fed_by == fed_by) runs.push_back(&loop.lanes);
  }
  if (runs.empty()) throw std::logic_error("nothing was recorded");
  const auto middle = runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2);
  std::nth_element(runs.begin(), middle, runs.end(),
                   [](const auto* a, const auto* b) { return end_of(*a) < end_of(*b); });
  return **middle;
}

std::string figures_of(const std::vector<lane>& lanes) {
  const double end = end_of(lanes);
  const std::size_t batches = batches_of(lanes);
  return counted(batches, "batch", "es") + " in " + fixed(end / 1e3, 2) +
         " ms: " + fixed(end / static_cast<double>(batches), 0) + " µs each";
}

/// Why no loop is faster than the bound.
std::string reason_of(const bound& least, std::size_t cores) {
  if (least.limit == "load") return "to read it";
  if (least.limit == "copy") return "to copy it";
  if (least.limit == "compute") return "to compute it";
  return "the work over " + counted(cores, "core");
}

std::string data_of(const options& chosen, const results& found) {
  std::string data = found.data_name;
  if (chosen.augment) data += ", augmented";
  if (chosen.fed == workload::wide) data += ", as floats";
  return data;
}

std::string title_of(const options& chosen, const results& found, std::size_t batches) {
  return data_of(chosen, found) + ": the first " + counted(batches, "batch", "es") + " of " +
         std::to_string(chosen.batch);
}

/// What it ran on, for the last line of small print.
std::string machine_of(const options& chosen, const results& found) {
  std::string machine = found.device.name + ", " + counted(found.cores, "core") + ", " +
                        counted(chosen.workers, "worker") + "; threads start before 0";
  if (chosen.repeat > 1) {
    machine += "; the run of median time out of " + std::to_string(chosen.repeat);
  }
  return machine + ".";
}

/// The lanes of a loop with all readers in one, each named with its share of the loop's time.
std::vector<lane> shares_of(const std::vector<lane>& lanes) {
  std::vector<lane> all;
  for (const lane& each : lanes) {
    if (all.empty() || each.kind != all.back().kind) {
      all.push_back({each.kind == stage::read ? "read" : each.name, each.kind, each.spans});
    } else {
      ++all.back().threads;
      all.back().spans.insert(all.back().spans.end(), each.spans.begin(), each.spans.end());
    }
  }
  for (lane& each : all) each.name += " " + fixed(100 * busy_share(each, end_of(lanes)), 0) + " %";
  return all;
}

void write_document(const std::filesystem::path& path, const timeline& shown) {
  std::ofstream file{path};
  file << svg_of(shown);
  file.close();
  if (!file) throw std::runtime_error(path.string() + ": can't be written");
}

}  // namespace

timeline picture_of(const options& chosen, const results& found) {
  const auto& serial = middle_run(found.recorded, technique::serial);
  const auto& overlapped = middle_run(found.recorded, technique::overlapped);
  const std::size_t batches = batches_of(serial);
  const bound least = bound_of(found.costs, chosen.workers, found.cores, found.device.on_cores());
  timeline shown;
  shown.title = title_of(chosen, found, batches);
  shown.panels = {
      {"serial", "each batch is read, copied and computed in turn", figures_of(serial), serial},
      {"overlapped", "later batches are read and copied under the step",
       figures_of(overlapped) + ", " + fixed(end_of(serial) / end_of(overlapped), 2) + "× as fast",
       overlapped}};
  shown.bound = static_cast<double>(batches) * least.microseconds;
  shown.bound_note = "no loop is faster: " + std::to_string(batches) + " × " +
                     fixed(least.microseconds, 0) + " µs, " + reason_of(least, found.cores);
  shown.notes = {"A batch in each stage alone: read " + fixed(found.costs.load, 1) + " µs, copy " +
                     fixed(found.costs.copy, 1) + " µs, compute " + fixed(found.costs.compute, 1) +
                     " µs. Bars are to scale, at least 1 px wide; numbers are batches.",
                 machine_of(chosen, found)};
  shown.description = "The first batches of two loops over time. " + shown.title +
                      ". Serial: " + shown.panels[0].figures +
                      ". Overlapped: " + shown.panels[1].figures + ". " + shown.bound_note +
                      ". Drawn by: " + chosen.command + ". Build: " + found.build + ".";
  return shown;
}

void write_picture(const options& chosen, const results& found) {
  write_document(*chosen.svg, picture_of(chosen, found));
}

timeline utilisation_of(const options& chosen, const results& found) {
  const auto& serial = middle_run(found.epochs, technique::serial);
  const auto& overlapped = middle_run(found.epochs, technique::overlapped);
  timeline shown;
  shown.title = data_of(chosen, found) + ": how busy each part is over an epoch of " +
                counted(batches_of(serial), "batch", "es") + " of " + std::to_string(chosen.batch);
  shown.panels = {
      {"serial", "one part at a time", figures_of(serial), shares_of(serial)},
      {"overlapped", "all parts at once",
       figures_of(overlapped) + ", " + fixed(end_of(serial) / end_of(overlapped), 2) + "× as fast",
       shares_of(overlapped)}};
  shown.shows_shares = true;
  shown.notes = {
      "A lane is full where its part is busy all the time, of readers all of them; the "
      "figure is its share of the loop's time.",
      machine_of(chosen, found)};
  shown.description = shown.title + ". Serial: " + shown.panels[0].figures +
                      ". Overlapped: " + shown.panels[1].figures + ". Drawn by: " + chosen.command +
                      ". Build: " + found.build + ".";
  return shown;
}

void write_utilisation(const options& chosen, const results& found) {
  write_document(*chosen.utilisation, utilisation_of(chosen, found));
}

}  // namespace mlp
