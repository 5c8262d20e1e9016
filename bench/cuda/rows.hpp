// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace bench {

[[nodiscard]] inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

[[nodiscard]] inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Several ways to do one thing, timed in turns so that a change of the machine's mood meets all of
/// them: the seconds of every way, the median of `repetitions`; one more before that doesn't count.
template <class... Ways>
[[nodiscard]] std::vector<double> in_turns(int repetitions, const Ways&... ways) {
  std::vector<std::vector<double>> seconds(sizeof...(Ways));
  for (int turn = -1; turn < repetitions; ++turn) {
    std::size_t at = 0;
    const auto time = [&](const auto& way) {
      const double taken = way();
      if (turn >= 0) seconds[at].push_back(taken);
      ++at;
    };
    (time(ways), ...);
  }
  std::vector<double> medians;
  for (const auto& of_way : seconds) medians.push_back(median(of_way));
  return medians;
}

/// What was measured: printed line by line, and at the end written as JSON.
class rows {
 public:
  /// `floor` is what the value is to be held against, in the same unit; 0 for none.
  void add(const std::string& group, const std::string& name, double bytes, double value,
           const char* unit, double floor = 0.0) {
    char text[512];
    std::snprintf(text, sizeof text, "%-10s %-34s %14.0f B %12.3f %-8s", group.c_str(),
                  name.c_str(), bytes, value, unit);
    std::printf("%s", text);
    if (floor > 0.0) std::printf("  floor %10.3f  ratio %6.3f", floor, value / floor);
    std::printf("\n");
    std::fflush(stdout);
    std::snprintf(text, sizeof text,
                  R"({"group": "%s", "name": "%s", "bytes": %.0f, "value": %.6g, "unit": "%s")",
                  group.c_str(), name.c_str(), bytes, value, unit);
    std::string line = text;
    if (floor > 0.0) {
      std::snprintf(text, sizeof text, R"(, "floor": %.6g, "ratio": %.6g)", floor, value / floor);
      line += text;
    }
    lines_.push_back(line + "}");
  }

  /// Writes all rows below "rows", and `facts` (JSON members) before them. False if it can't.
  [[nodiscard]] bool write(const char* path, const std::string& facts) const {
    std::FILE* file = std::fopen(path, "w");
    if (file == nullptr) return false;
    std::fprintf(file, "{%s,\n \"rows\": [", facts.c_str());
    for (std::size_t i = 0; i < lines_.size(); ++i)
      std::fprintf(file, "%s\n  %s", i == 0 ? "" : ",", lines_[i].c_str());
    std::fprintf(file, "\n]}\n");
    return std::fclose(file) == 0;
  }

 private:
  std::vector<std::string> lines_;
};

}  // namespace bench
