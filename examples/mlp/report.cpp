#include "report.hpp"

#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>

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

std::size_t steps(const options& chosen, const results& found) {
  return chosen.epochs * found.batches_per_epoch;
}

/// How far above the bound the overlapped loop runs: 0.02 is 2 %.
std::optional<double> above_bound(const options& chosen, const results& found, const bound& least) {
  const auto seconds = seconds_of(found, technique::overlapped);
  if (!seconds) return std::nullopt;
  const double batch = *seconds * 1e6 / static_cast<double>(steps(chosen, found));
  return batch / least.microseconds - 1.0;
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
      << (chosen.augment ? ", augmented" : "") << '\n'
      << "device  " << found.device << ", " << found.cores << " cores, " << chosen.workers
      << (chosen.workers == 1 ? " worker" : " workers") << ", prefetch " << chosen.prefetch
      << ", depth " << chosen.depth << '\n'
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

  const bound least = bound_of(found.costs, chosen.workers, found.cores);
  out << "\nper batch, each alone: load " << fixed(found.costs.load, 1, " us") << ", copy "
      << fixed(found.costs.copy, 1, " us") << ", compute " << fixed(found.costs.compute, 1, " us")
      << "\nno loop is faster than " << fixed(least.microseconds, 1, " us") << " a batch, for "
      << least.limit;
  if (const auto above = above_bound(chosen, found, least)) {
    out << "; overlapped takes "
        << fixed(*seconds_of(found, technique::overlapped) * 1e6 /
                     static_cast<double>(steps(chosen, found)),
                 1, " us")
        << ", " << fixed(100.0 * *above, 1, " %") << " above";
  }
  out << '\n';
}

void write_json(const options& chosen, const results& found) {
  using json = nlohmann::ordered_json;
  const auto or_null = [](std::optional<double> value) { return value ? json(*value) : json{}; };

  const bound least = bound_of(found.costs, chosen.workers, found.cores);
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
         {"epoch_losses", mode.epoch_losses},
         {"final_loss", mode.epoch_losses.back()},
         {"test_accuracy", mode.accuracy}});
  }
  const json object{{"data",
                     {{"name", found.data_name},
                      {"directory", found.data_directory},
                      {"train_samples", found.train_samples},
                      {"test_samples", found.test_samples}}},
                    {"device", found.device},
                    {"build", found.build},
                    {"cores", found.cores},
                    {"options",
                     {{"epochs", chosen.epochs},
                      {"batch", chosen.batch},
                      {"workers", chosen.workers},
                      {"prefetch", chosen.prefetch},
                      {"depth", chosen.depth},
                      {"augment", chosen.augment},
                      {"seed", chosen.seed},
                      {"repeat", chosen.repeat}}},
                    {"batches_per_epoch", found.batches_per_epoch},
                    {"modes", modes},
                    {"batch_microseconds",
                     {{"load", found.costs.load},
                      {"copy", found.costs.copy},
                      {"compute", found.costs.compute},
                      {"bound", least.microseconds},
                      {"bound_by", least.limit}}},
                    {"overlapped_above_bound", or_null(above_bound(chosen, found, least))}};

  std::ofstream file{*chosen.json};
  file << object.dump(2) << '\n';
  file.close();
  if (!file) throw std::runtime_error(chosen.json->string() + ": can't be written");
}

}  // namespace mlp
