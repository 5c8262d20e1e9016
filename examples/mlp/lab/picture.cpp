// SPDX-License-Identifier: BSL-1.0
#include "picture.hpp"

#include <algorithm>
#include <cstdio>
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
const std::vector<lane>& middle_run(const results& found, technique fed_by) {
  std::vector<const std::vector<lane>*> runs;
  for (const recorded_loop& loop : found.recorded) {
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

std::string title_of(const options& chosen, const results& found, std::size_t batches) {
  std::string title = found.data_name;
  if (chosen.augment) title += ", augmented";
  if (chosen.fed == workload::wide) title += ", as floats";
  return title + ": the first " + counted(batches, "batch", "es") + " of " +
         std::to_string(chosen.batch);
}

}  // namespace

timeline picture_of(const options& chosen, const results& found) {
  const auto& serial = middle_run(found, technique::serial);
  const auto& overlapped = middle_run(found, technique::overlapped);
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
                 found.device.name + ", " + counted(found.cores, "core") + ", " +
                     counted(chosen.workers, "worker") + "; threads start before 0"};
  if (chosen.repeat > 1) {
    shown.notes.back() += "; the run of median time out of " + std::to_string(chosen.repeat);
  }
  shown.notes.back() += ".";
  shown.description = "The first batches of two loops over time. " + shown.title +
                      ". Serial: " + shown.panels[0].figures +
                      ". Overlapped: " + shown.panels[1].figures + ". " + shown.bound_note +
                      ". Drawn by: " + chosen.command + ". Build: " + found.build + ".";
  return shown;
}

void write_picture(const options& chosen, const results& found) {
  std::ofstream file{*chosen.svg};
  file << svg_of(picture_of(chosen, found));
  file.close();
  if (!file) throw std::runtime_error(chosen.svg->string() + ": can't be written");
}

}  // namespace mlp
