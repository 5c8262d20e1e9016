// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include <penstock/observe/stats.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Writes a JSON object: numbers, times as whole nanoseconds, objects and lists in it.
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

/// The statistics as a JSON object: counts, and times in nanoseconds ("_ns"). Numbers take 64 bits,
/// which not every reader of JSON keeps.
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
                        .add("most_bytes", stats.ahead.most_bytes)
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

/// A transfer's statistics as a JSON object. Those of its loader are the member "loader"; null for
/// a source that is no loader.
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
