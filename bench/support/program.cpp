// SPDX-License-Identifier: BSL-1.0
#include "program.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace bench {
namespace {

using nlohmann::ordered_json;

struct spread {
  double median = 0;
  double min = 0;
  double max = 0;
};

spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

ordered_json to_json(const spread& of) {
  return {{"median", of.median}, {"min", of.min}, {"max", of.max}};
}

std::string full_name(const benchmark::BenchmarkName& name) {
  std::string full = name.function_name;
  for (const auto& part : {name.args, name.threads}) {
    if (!part.empty()) full += "/" + part;
  }
  return full;
}

// Stores every repetition of every benchmark, but prints only the medians.
class keeping_reporter : public benchmark::ConsoleReporter {
 public:
  struct row {
    std::string name;
    std::vector<double> items_per_second;
    std::vector<double> nanoseconds;
    std::map<std::string, std::vector<double>> counters;
    std::string label;
    std::string error;
  };

  keeping_reporter() : ConsoleReporter(OO_Tabular) {}

  void ReportRuns(const std::vector<Run>& runs) override {
    std::vector<Run> shown;
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Iteration || run.error_occurred) keep(run);
      if (run.aggregate_name == "median" || run.error_occurred) shown.push_back(run);
    }
    if (!shown.empty()) ConsoleReporter::ReportRuns(shown);
  }

  [[nodiscard]] const std::vector<row>& rows() const noexcept { return rows_; }
  [[nodiscard]] const row* find(const std::string& name) const {
    const auto found = std::find_if(rows_.begin(), rows_.end(),
                                    [&](const row& kept) { return kept.name == name; });
    return found == rows_.end() || found->nanoseconds.empty() ? nullptr : &*found;
  }

 private:
  void keep(const Run& run) {
    const std::string name = full_name(run.run_name);
    auto found = std::find_if(rows_.begin(), rows_.end(),
                              [&](const row& kept) { return kept.name == name; });
    if (found == rows_.end()) found = rows_.insert(rows_.end(), row{name, {}, {}, {}, {}, {}});
    found->label = run.report_label;
    if (run.error_occurred) {
      found->error = run.error_message;
      return;
    }
    found->nanoseconds.push_back(run.real_accumulated_time * 1e9 /
                                 static_cast<double>(run.iterations));
    for (const auto& [key, counter] : run.counters) {
      auto& values = key == "items_per_second" ? found->items_per_second : found->counters[key];
      values.push_back(counter.value);
    }
  }

  std::vector<row> rows_;
};

// The ratio of the medians of a goal and its floor, and whether the floor was unstable.
struct judgement {
  double ratio = 0;
  bool noisy = false;
};

std::optional<judgement> judge(const goal& aim, const keeping_reporter& seen) {
  const bool is_time = aim.what == goal::kind::time_at_most;
  const auto spread_in = [&](const std::string& name) -> std::optional<spread> {
    const auto* row = seen.find(name);
    if (row == nullptr || (!is_time && row->items_per_second.empty())) return std::nullopt;
    return spread_of(is_time ? row->nanoseconds : row->items_per_second);
  };
  const auto ours = spread_in(aim.name);
  const auto floor = spread_in(aim.floor);
  if (!ours || !floor) return std::nullopt;
  return judgement{ours->median / floor->median, floor->max > 1.2 * floor->min};
}

bool is_met(const goal& aim, double ratio) {
  return aim.what == goal::kind::speed_at_least ? ratio >= aim.bound : ratio <= aim.bound;
}

// Prints a line such as "loader_1/float over floor_hand_off/float: 0.97 of its speed; at least
// 0.90: met".
void print(const goal& aim, const std::optional<judgement>& made) {
  if (!made) {
    std::printf("%s over %s: not measured\n", aim.name.c_str(), aim.floor.c_str());
    return;
  }
  const bool speed = aim.what == goal::kind::speed_at_least;
  std::printf("%s over %s: %.3f of its %s", aim.name.c_str(), aim.floor.c_str(), made->ratio,
              speed ? "speed" : "time");
  if (aim.bound > 0) {
    std::printf("; at %s %.2f: %s", speed ? "least" : "most", aim.bound,
                is_met(aim, made->ratio) ? "met" : "missed");
  }
  std::printf("%s\n", made->noisy ? "  NOISY: the floor moved by more than 20 %" : "");
}

ordered_json to_json(const goal& aim, const std::optional<judgement>& made) {
  ordered_json out{{"name", aim.name}, {"floor", aim.floor}};
  out["compares"] = aim.what == goal::kind::speed_at_least ? "speed" : "time";
  if (aim.bound > 0) {
    out[aim.what == goal::kind::speed_at_least ? "at_least" : "at_most"] = aim.bound;
  }
  out["ratio"] = made ? ordered_json(made->ratio) : ordered_json(nullptr);
  if (made) out["noisy"] = made->noisy;
  if (made && aim.bound > 0) out["met"] = is_met(aim, made->ratio);
  return out;
}

ordered_json to_json(const keeping_reporter::row& row) {
  ordered_json out{{"name", row.name}, {"repetitions", row.nanoseconds.size()}};
  if (!row.error.empty()) out["skipped"] = row.error;
  if (!row.label.empty()) out["label"] = row.label;
  if (!row.nanoseconds.empty()) out["nanoseconds"] = to_json(spread_of(row.nanoseconds));
  if (!row.items_per_second.empty()) {
    out["items_per_second"] = to_json(spread_of(row.items_per_second));
  }
  for (const auto& [key, values] : row.counters) {
    out["counters"][key] = to_json(spread_of(values));
  }
  return out;
}

// Removes `--json FILE` from the arguments and returns FILE.
std::optional<std::string> take_json(std::vector<std::string>& arguments) {
  const auto at = std::find(arguments.begin(), arguments.end(), "--json");
  if (arguments.end() - at < 2) return std::nullopt;
  const std::string file = at[1];
  arguments.erase(at, at + 2);
  return file;
}

}  // namespace

std::string named(std::string function, std::initializer_list<axis> axes) {
  for (const axis& one : axes) function += "/" + one.name + ":" + std::to_string(one.value);
  return function;
}

int run(int argc, char** argv, const std::string& program, const std::vector<goal>& goals,
        int repetitions) {
#if !defined(NDEBUG)
  std::fprintf(stderr, "%s: built without NDEBUG: its numbers would mean nothing\n",
               program.c_str());
  return 1;
#endif
  std::vector<std::string> given(argv, argv + argc);
  const auto json_file = take_json(given);
  std::ofstream json;
  if (json_file) {
    json.open(*json_file);
    if (!json) {
      std::fprintf(stderr, "%s: can't write %s\n", program.c_str(), json_file->c_str());
      return 1;
    }
  }

  // The defaults come first, so that the flags of the user override them.
  std::vector<std::string> words{
      given.front(), "--benchmark_repetitions=" + std::to_string(repetitions),
      "--benchmark_min_time=0.1", "--benchmark_enable_random_interleaving=true"};
  words.insert(words.end(), given.begin() + 1, given.end());
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;

  keeping_reporter seen;
  benchmark::RunSpecifiedBenchmarks(&seen);

  ordered_json out{{"program", program}};
  for (const auto& row : seen.rows()) out["rows"].push_back(to_json(row));
  std::printf("\n");
  for (const goal& aim : goals) {
    const auto made = judge(aim, seen);
    print(aim, made);
    out["goals"].push_back(to_json(aim, made));
  }
  if (json_file && !(json << out.dump(1) << std::endl)) {
    std::fprintf(stderr, "%s: can't write %s\n", program.c_str(), json_file->c_str());
    return 1;
  }
  return 0;
}

}  // namespace bench
