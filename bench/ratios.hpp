#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace bench {

/// Prints the medians in Google Benchmark's table, keeps every repetition's items per second, and can say at the end
/// how one benchmark stands to another: medians, with the smallest and largest repetition.
class ratio_reporter : public benchmark::ConsoleReporter {
 public:
  ratio_reporter() : ConsoleReporter(OO_Tabular) {}

  void ReportRuns(const std::vector<Run>& runs) override {
    std::vector<Run> medians;
    for (const Run& run : runs) {
      const auto rate = run.counters.find("items_per_second");
      if (run.run_type == Run::RT_Iteration && rate != run.counters.end()) {
        rates_[run.run_name.function_name].push_back(rate->second.value);
      } else if (run.aggregate_name == "median") {
        medians.push_back(run);
      }
    }
    ConsoleReporter::ReportRuns(medians);
  }

  /// One line: "loader/one_worker over floor/hand_off: 0.97 (target 0.90)". Says so when one of the
  /// two did not run, and when the floor moved by more than a fifth: the machine was too noisy then.
  void print_ratio(const std::string& name, const std::string& floor, double target) const {
    const auto of_name = rates_.find(name);
    const auto of_floor = rates_.find(floor);
    if (of_name == rates_.end() || of_floor == rates_.end()) {
      std::printf("%-24s over %-18s not measured\n", name.c_str(), floor.c_str());
      return;
    }
    const auto a = sorted(of_name->second);
    const auto b = sorted(of_floor->second);
    std::printf("%-24s over %-18s %.3f  (median of %zu; %.2f of %.2f M samples/s; target %.2f)%s\n",
                name.c_str(), floor.c_str(), median(a) / median(b), a.size(), median(a) / 1e6,
                median(b) / 1e6, target,
                b.back() > 1.2 * b.front() ? "  NOISY: the floor moved by more than 20 %" : "");
  }

 private:
  static std::vector<double> sorted(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values;
  }
  static double median(const std::vector<double>& values) { return values[values.size() / 2]; }

  std::map<std::string, std::vector<double>> rates_;
};

}  // namespace bench
