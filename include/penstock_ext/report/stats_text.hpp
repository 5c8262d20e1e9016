// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ostream>
#include <string>
#include <string_view>

#include <penstock/observe/stats.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Formats a time with about three digits in a suitable unit, such as "12.3 us".
[[nodiscard]] inline std::string short_text(std::chrono::nanoseconds time) {
  constexpr std::array<const char*, 4> units{"ns", "us", "ms", "s"};
  auto value = static_cast<double>(time.count());
  std::size_t unit = 0;
  // A value of 999.5 or more would be rounded to 1000.
  for (; value >= 999.5 && unit + 1 < units.size(); ++unit) value /= 1000;
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), value < 999.5 ? "%.3g %s" : "%.0f %s", value,
                units[unit]);
  return text.data();
}

/// Formats a number with three digits, such as "0.125".
[[nodiscard]] inline std::string short_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return text.data();
}

/// Formats a table. Each line has a name, a count, a time and a remark.
class stats_table {
 public:
  explicit stats_table(std::chrono::nanoseconds age) : age_(age) {}

  void head(const std::string& line) { (text_ += line) += '\n'; }
  void row(std::string_view name, std::uint64_t count, std::chrono::nanoseconds time,
           const std::string& remark = {}) {
    const double share = age_.count() == 0 ? 0.0
                                           : 100 * static_cast<double>(time.count()) /
                                                 static_cast<double>(age_.count());
    std::array<char, 96> cells{};
    std::snprintf(cells.data(), cells.size(), "  %-18.*s %12llu %10s %6.1f %%",
                  static_cast<int>(name.size()), name.data(),
                  static_cast<unsigned long long>(count), short_text(time).c_str(), share);
    text_ += cells.data();
    if (!remark.empty()) (text_ += "  ") += remark;
    text_ += '\n';
  }
  void wait(std::string_view name, const wait_stats& wait) { row(name, wait.count, wait.time); }
  [[nodiscard]] std::string text() const { return text_; }

 private:
  std::chrono::nanoseconds age_;
  std::string text_;
};

[[nodiscard]] inline std::string quantile_text(const duration_stats& times) {
  return "p50 " + short_text(times.quantile(0.5)) + ", p90 " + short_text(times.quantile(0.9)) +
         ", p99 " + short_text(times.quantile(0.99)) + ", max " + short_text(times.longest());
}

[[nodiscard]] inline std::string clock_text(stats_clock clock, bool has_stepped) {
  std::string text = ", clock " + std::string{name_of(clock)};
  if (has_stepped) text += ", which has stepped: times may be wrong";
  return text;
}

}  // namespace detail

/// Formats statistics as a readable table. Each line is a stage with its count, its time, and its
/// share of the measured time, summed over the threads of the stage.
[[nodiscard]] inline std::string to_text(const loader_stats& stats) {
  using detail::short_text;
  detail::stats_table table{stats.age};
  table.head("loader, " + std::to_string(stats.workers) + " workers, " + short_text(stats.age) +
             detail::clock_text(stats.clock, stats.clock_has_stepped));
  table.row("read", stats.read.samples, stats.read.busy, detail::quantile_text(stats.read.times));
  if (stats.read.timed_transforms.count() != 0) {
    const double part = stats.read.transforming();
    const auto time = std::chrono::duration<double, std::nano>{stats.read.busy} * part;
    table.row("  transform", stats.read.samples,
              std::chrono::duration_cast<std::chrono::nanoseconds>(time),
              "of read: map and decoders, where timed");
  }
  table.row("batch", stats.batches.count(), stats.batches.total(),
            detail::quantile_text(stats.batches));
  table.wait("wait for slot", stats.wait_for_slot);
  table.wait("wait for copy", stats.wait_for_copy);
  table.wait("wait for demand", stats.wait_for_demand);
  table.wait("wait for opener", stats.wait_for_opener);
  if (stats.wait_while_inactive.count != 0) table.wait("inactive", stats.wait_while_inactive);
  table.wait("wait for ready", stats.wait_for_ready);
  table.wait("wait for lease", stats.wait_for_lease);
  table.row("step", stats.step.batches, stats.step.busy,
            short_text(stats.ready.mean()) + " batches ready");
  table.row("processor", stats.workers, stats.processor,
            std::to_string(stats.minor_faults + stats.major_faults) + " page faults, " +
                std::to_string(stats.major_faults) + " from disk");
  if (stats.run_queue.count() != 0) {
    table.row("without a core", stats.workers, stats.run_queue, "ready to run");
  }
  table.wait("throttled", stats.throttled);
  if (stats.ahead.max_bytes != 0) {
    const ahead_stats& ahead = stats.ahead;
    table.head("  announced: " + std::to_string(ahead.samples) + " samples, " +
               std::to_string(ahead.bytes) + " bytes, at most " + std::to_string(ahead.max_bytes) +
               " at a time; " + std::to_string(ahead.late) + " too late, " +
               std::to_string(ahead.failed) + " failed");
  }
  std::string slowest;
  for (const slow_sample& one : stats.read.slowest) {
    if (one.time.count() == 0) continue;
    slowest += (slowest.empty() ? " " : ", ") + std::to_string(one.index) + " (" +
               short_text(one.time) + ")";
  }
  if (!slowest.empty()) table.head("  slowest samples:" + slowest);
  return table.text();
}

/// Formats a transfer's statistics as a table, followed by the table of its loader, if any.
[[nodiscard]] inline std::string to_text(const transfer_stats& stats) {
  using detail::short_text;
  detail::stats_table table{stats.age};
  table.head("transfer, " + short_text(stats.age) +
             detail::clock_text(stats.clock, stats.clock_has_stepped));
  table.row("copy", stats.copies, stats.wait_for_copy.time,
            std::to_string(stats.wait_for_copy.count) + " were waited for");
  table.wait("wait for batch", stats.wait_for_batch);
  table.wait("wait for slot", stats.wait_for_slot);
  table.row("step", stats.step.batches, stats.step.busy,
            short_text(stats.ahead.mean()) + " copies ahead");
  if (stats.device.batches != 0) {
    const auto mean = [&](std::chrono::nanoseconds time) {
      return short_text(time / static_cast<std::int64_t>(stats.device.batches));
    };
    table.head("  on the device, means of " + std::to_string(stats.device.batches) +
               " timed batches: copy " + mean(stats.device.copy) + ", transform " +
               mean(stats.device.transform) + ", idle " + mean(stats.device.idle) + ", step " +
               mean(stats.device.step));
  }
  if (stats.replay.batches != 0) table.row("replay", stats.replay.batches, stats.replay.time);
  return stats.loader ? table.text() + to_text(*stats.loader) : table.text();
}

/// Writes `to_text(stats)`.
inline std::ostream& operator<<(std::ostream& out, const loader_stats& stats) {
  return out << to_text(stats);
}
/// Writes `to_text(stats)`.
inline std::ostream& operator<<(std::ostream& out, const transfer_stats& stats) {
  return out << to_text(stats);
}

namespace detail {

/// Writes a JSON object. Members are numbers, times in nanoseconds, nested objects and lists.
class json_object {
 public:
  json_object& add(std::string_view name, const std::string& value) {
    if (text_.size() != 1) text_ += ", ";
    (((text_ += '"') += name) += "\": ") += value;
    return *this;
  }
  json_object& add(std::string_view name, std::uint64_t value) {
    return add(name, std::to_string(value));
  }
  json_object& add(std::string_view name, std::chrono::nanoseconds time) {
    return add(name, std::to_string(time.count()));
  }
  json_object& add(std::string_view name, const wait_stats& wait) {
    return add(name, json_object{}.add("count", wait.count).add("ns", wait.time).text());
  }
  json_object& add(std::string_view name, const depth_stats& depth) {
    return add(name, json_object{}.add("looks", depth.looks).add("sum", depth.sum).text());
  }
  json_object& add(std::string_view name, const step_stats& step) {
    return add(name, json_object{}
                         .add("batches", step.batches)
                         .add("samples", step.samples)
                         .add("bytes", step.bytes)
                         .add("busy_ns", step.busy)
                         .text());
  }
  json_object& add(std::string_view name, const duration_stats& times) {
    return add(name, json_object{}
                         .add("count", times.count())
                         .add("total_ns", times.total())
                         .add("p50_ns", times.quantile(0.5))
                         .add("p90_ns", times.quantile(0.9))
                         .add("p99_ns", times.quantile(0.99))
                         .add("max_ns", times.longest())
                         .text());
  }
  json_object& add_clock(stats_clock clock, bool has_stepped) {
    return add("clock", '"' + std::string{name_of(clock)} + '"')
        .add("clock_has_stepped", std::string{has_stepped ? "true" : "false"});
  }
  [[nodiscard]] std::string text() const { return text_ + '}'; }

 private:
  std::string text_{"{"};
};

[[nodiscard]] inline std::string read_json(const read_stats& read) {
  std::string slowest = "[";
  for (const slow_sample& one : read.slowest) {
    if (one.time.count() == 0) continue;
    if (slowest.size() != 1) slowest += ", ";
    slowest += json_object{}.add("index", one.index).add("ns", one.time).text();
  }
  return json_object{}
      .add("chunks", read.chunks)
      .add("samples", read.samples)
      .add("bytes", read.bytes)
      .add("busy_ns", read.busy)
      .add("timed", read.timed)
      .add("timed_chunks_ns", read.timed_chunks)
      .add("timed_transforms_ns", read.timed_transforms)
      .add("times", read.times)
      .add("slowest", slowest + ']')
      .text();
}

}  // namespace detail

/// Formats statistics as a JSON object with counts and times in nanoseconds ("_ns"). Numbers have
/// 64 bits, which some JSON parsers do not preserve.
[[nodiscard]] inline std::string to_json(const loader_stats& stats) {
  return detail::json_object{}
      .add("penstock_loader_stats", std::uint64_t{1})
      .add("loader", stats.loader)
      .add("age_ns", stats.age)
      .add("workers", std::uint64_t{stats.workers})
      .add_clock(stats.clock, stats.clock_has_stepped)
      .add("read", detail::read_json(stats.read))
      .add("batches", stats.batches)
      .add("wait_for_slot", stats.wait_for_slot)
      .add("wait_for_copy", stats.wait_for_copy)
      .add("wait_for_demand", stats.wait_for_demand)
      .add("wait_for_opener", stats.wait_for_opener)
      .add("wait_while_inactive", stats.wait_while_inactive)
      .add("wait_for_ready", stats.wait_for_ready)
      .add("wait_for_lease", stats.wait_for_lease)
      .add("ready", stats.ready)
      .add("step", stats.step)
      .add("ahead", detail::json_object{}
                        .add("max_bytes", stats.ahead.max_bytes)
                        .add("samples", stats.ahead.samples)
                        .add("bytes", stats.ahead.bytes)
                        .add("bytes_now", stats.ahead.bytes_now)
                        .add("source_bytes", stats.ahead.source_bytes)
                        .add("late", stats.ahead.late)
                        .add("failed", stats.ahead.failed)
                        .text())
      .add("processor_ns", stats.processor)
      .add("run_queue_ns", stats.run_queue)
      .add("minor_faults", stats.minor_faults)
      .add("major_faults", stats.major_faults)
      .add("throttled", stats.throttled)
      .text();
}

/// Formats a transfer's statistics as a JSON object. The member "loader" contains the statistics of
/// its loader, or null if the source is not a loader.
[[nodiscard]] inline std::string to_json(const transfer_stats& stats) {
  return detail::json_object{}
      .add("penstock_transfer_stats", std::uint64_t{1})
      .add("transfer", stats.transfer)
      .add("age_ns", stats.age)
      .add_clock(stats.clock, stats.clock_has_stepped)
      .add("copies", stats.copies)
      .add("samples", stats.samples)
      .add("bytes", stats.bytes)
      .add("transforms", stats.transforms)
      .add("wait_for_batch", stats.wait_for_batch)
      .add("wait_for_slot", stats.wait_for_slot)
      .add("wait_for_copy", stats.wait_for_copy)
      .add("ahead", stats.ahead)
      .add("step", stats.step)
      .add("replay", detail::json_object{}
                         .add("batches", stats.replay.batches)
                         .add("ns", stats.replay.time)
                         .text())
      .add("device", detail::json_object{}
                         .add("batches", stats.device.batches)
                         .add("copy_ns", stats.device.copy)
                         .add("transform_ns", stats.device.transform)
                         .add("idle_ns", stats.device.idle)
                         .add("step_ns", stats.device.step)
                         .text())
      .add("loader", stats.loader ? to_json(*stats.loader) : "null")
      .text();
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
