// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/cuda/cuda_error.hpp>

namespace bench {

[[nodiscard]] inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

[[nodiscard]] inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// If the call failed, throws `std::runtime_error` with the name and the text of the error, and
/// clears the error from the last-error slot. Throws `penstock::cuda_context_lost` if no later call
/// can succeed.
inline void must(cudaError_t code) {
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  if (penstock::detail::is_sticky(code)) penstock::detail::throw_cuda_error(code, "a CUDA call");
  throw std::runtime_error(std::string{cudaGetErrorName(code)} + ": " + cudaGetErrorString(code));
}

/// A way to perform an operation. `prepare` allocates resources and returns a function that
/// performs the operation once and returns its time. If either throws, only this way is reported as
/// failed.
struct way {
  std::string name;
  std::function<std::function<double()>()> prepare;
};

/// The result of a measurement: the median of its repetitions, or the reason for its failure.
struct measurement {
  double value = 0;
  std::string failed;
  bool is_lost = false;  ///< the GPU's context was lost during this measurement
};

/// Measures several ways to do the same thing, in rotation, so that changes of the machine affect
/// all of them. Runs one warm-up repetition, and then returns the median of `repetitions`
/// repetitions for each way. Stops if the GPU's context is lost, and keeps earlier measurements.
[[nodiscard]] inline std::vector<measurement> in_turns(int repetitions,
                                                       const std::vector<way>& ways) {
  std::vector<measurement> found(ways.size());
  std::vector<std::function<double()>> run(ways.size());
  std::vector<std::vector<double>> values(ways.size());
  std::string lost;
  const auto guarded = [&](std::size_t at, const auto& work) {
    if (!found[at].failed.empty() || !lost.empty()) return;
    try {
      work();
    } catch (const penstock::cuda_context_lost& error) {
      lost = error.what();
      found[at].is_lost = true;
    } catch (const std::exception& error) {
      found[at].failed = error.what();
      static_cast<void>(
          cudaGetLastError());  // otherwise, the next way would report the error of a launch
    }
  };
  for (std::size_t at = 0; at < ways.size(); ++at) {
    guarded(at, [&] { run[at] = ways[at].prepare(); });
  }
  for (int turn = -1; turn < repetitions; ++turn) {
    for (std::size_t at = 0; at < ways.size(); ++at) {
      guarded(at, [&] {
        const double value = run[at]();
        if (turn >= 0) values[at].push_back(value);
      });
    }
  }
  for (std::size_t at = 0; at < ways.size(); ++at) {
    if (!found[at].failed.empty()) continue;
    if (values[at].empty()) {
      found[at].failed = lost;
    } else {
      found[at].value = median(std::move(values[at]));
    }
  }
  return found;
}

/// The results: printed line by line, and written to a JSON file that is complete after every row.
class rows {
 public:
  /// Thrown if the file cannot be written. Not derived from std::exception, so that it is not
  /// mistaken for the failure of a row.
  struct write_error {
    std::string path;
  };

  /// If `path` is null, no file is written. Only the groups named in `groups` are measured, or all
  /// groups if `groups` is empty.
  explicit rows(const char* path, std::vector<std::string> groups = {})
      : path_(path == nullptr ? "" : path), groups_(std::move(groups)) {}

  /// Adds a member to the JSON object next to the rows. `value` is JSON.
  void fact(const std::string& name, const std::string& value) {
    facts_ += ",\n " + quoted(name) + ": " + value;
    write();
  }

  /// `floor` is the value to compare with, in the same unit. 0 means that the row has no floor.
  void add(const std::string& group, const std::string& name, double bytes, double value,
           const char* unit, double floor = 0.0) {
    std::printf("%-12s %-38s %12.0f B %12.3f %-10s", group.c_str(), name.c_str(), bytes, value,
                unit);
    if (floor > 0.0) std::printf("  floor %10.3f  ratio %6.3f", floor, value / floor);
    std::printf("\n");
    std::string members = number("value", value) + ", \"unit\": " + quoted(unit);
    if (floor > 0.0)
      members += ", " + number("floor", floor) + ", " + number("ratio", value / floor);
    keep(group, name, bytes, members);
  }
  /// Adds a row that could not be measured, with the reason.
  void fail(const std::string& group, const std::string& name, double bytes,
            const std::string& why) {
    std::printf("%-12s %-38s %12.0f B  failed: %s\n", group.c_str(), name.c_str(), bytes,
                why.c_str());
    keep(group, name, bytes, "\"failed\": " + quoted(why));
  }
  void add(const std::string& group, const std::string& name, double bytes,
           const measurement& measured, const char* unit, double floor = 0.0) {
    if (measured.is_lost) lose(group, name);
    if (!measured.failed.empty()) return fail(group, name, bytes, measured.failed);
    add(group, name, bytes, measured.value, unit, floor);
  }

  /// Measures `ways` in rotation and adds a row for each. `value` converts the time of a repetition
  /// to the row's value. The first way is the floor of the others. Returns the measurements.
  template <class Value>
  std::vector<measurement> compare(const std::string& group, double bytes, int repetitions,
                                   const char* unit, const std::vector<way>& ways,
                                   const Value& value) {
    auto found = in_turns(repetitions, ways);
    for (std::size_t at = 0; at < ways.size(); ++at) {
      if (found[at].failed.empty()) found[at].value = value(found[at].value);
      const bool has_floor = at != 0 && found[0].failed.empty();
      add(group, ways[at].name, bytes, found[at], unit, has_floor ? found[0].value : 0.0);
    }
    return found;
  }

  /// Runs a group of measurements and records its duration. If a measurement throws, the group gets
  /// a failed row, and other groups are not affected. No group runs after the GPU's context is
  /// lost.
  template <class Measure>
  void group(const std::string& name, const Measure& measure) {
    if (!groups_.empty()) {
      const auto wanted = std::find(groups_.begin(), groups_.end(), name);
      if (wanted == groups_.end()) return;
      was_met_.push_back(name);
    }
    if (is_lost()) return fail(name, "the whole group", 0, "not tried: the context is lost");
    const auto begin = std::chrono::steady_clock::now();
    try {
      measure();
    } catch (const penstock::cuda_context_lost& error) {
      lose(name, "the rest of the group");
      fail(name, "the rest of the group", 0, error.what());
    } catch (const std::exception& error) {
      static_cast<void>(cudaGetLastError());
      fail(name, "the rest of the group", 0, error.what());
    }
    const double taken = seconds_since(begin);
    std::printf("%-12s took %.2f s\n", name.c_str(), taken);
    std::fflush(stdout);
    seconds_ += (seconds_.empty() ? "" : ", ") + number(name.c_str(), taken);
    write();
  }

  /// Returns a name given by `--group` that no group has, or an empty string.
  [[nodiscard]] std::string unknown_group() const {
    for (const std::string& name : groups_) {
      if (std::find(was_met_.begin(), was_met_.end(), name) == was_met_.end()) return name;
    }
    return {};
  }

  /// Returns true if the GPU's context is lost, after which no call of this process can succeed.
  [[nodiscard]] bool is_lost() const noexcept { return !lost_.empty(); }

  /// Marks the results as complete unless the context was lost.
  void complete() {
    is_complete_ = !is_lost();
    write();
  }

 private:
  static std::string quoted(const std::string& text) {
    std::string made = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') made += '\\';
      made += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    return made + '"';
  }
  static std::string number(const char* name, double value) {
    char text[160];
    std::snprintf(text, sizeof text, "\"%s\": %.6g", name, value);
    return text;
  }

  void lose(const std::string& group, const std::string& name) {
    if (!is_lost()) lost_ = group + ": " + name;
  }

  void keep(const std::string& group, const std::string& name, double bytes,
            const std::string& members) {
    std::fflush(stdout);
    lines_ += (lines_.empty() ? "\n  {" : ",\n  {") + ("\"group\": " + quoted(group)) +
              ", \"name\": " + quoted(name) + ", " + number("bytes", bytes) + ", " + members + "}";
    write();
  }

  /// Writes a new file and renames it, so that the earlier rows remain if the process is killed.
  void write() const {
    if (path_.empty()) return;
    const std::string beside = path_ + ".new";
    std::FILE* file = std::fopen(beside.c_str(), "w");
    if (file == nullptr) throw write_error{beside};
    const std::string lost = is_lost() ? ",\n \"lost\": " + quoted(lost_) : "";
    std::fprintf(file, "{\"complete\": %s%s%s,\n \"seconds\": {%s},\n \"rows\": [%s\n]}\n",
                 is_complete_ ? "true" : "false", lost.c_str(), facts_.c_str(), seconds_.c_str(),
                 lines_.c_str());
    if (std::fclose(file) != 0) throw write_error{beside};
    if (std::rename(beside.c_str(), path_.c_str()) != 0) throw write_error{path_};
  }
  std::string path_;
  std::vector<std::string> groups_;
  std::vector<std::string> was_met_;  // requested groups that exist
  std::string facts_;
  std::string seconds_;
  std::string lines_;
  std::string lost_;  // the row at which the context was lost
  bool is_complete_ = false;
};

}  // namespace bench
