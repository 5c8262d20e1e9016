// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/observe/stats.hpp>
#include <penstock_ext/report/report_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Seconds with all nine places, whatever the locale.
[[nodiscard]] inline std::string seconds_text(std::chrono::nanoseconds time) {
  constexpr std::int64_t second = 1'000'000'000;
  const std::int64_t whole = time.count() < 0 ? 0 : time.count();
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%lld.%09lld", static_cast<long long>(whole / second),
                static_cast<long long>(whole % second));
  return text.data();
}

/// Writes Prometheus' text format: families of samples that share a prefix and labels.
class prometheus_writer {
 public:
  /// `labels` as they stand between braces: `loader="1"`.
  prometheus_writer(std::string prefix, std::string labels)
      : prefix_(std::move(prefix)), labels_(std::move(labels)) {}

  void counter(std::string_view name, std::string_view help, std::uint64_t value) {
    family(name, "counter", help);
    sample("", "", std::to_string(value));
  }
  void counter(std::string_view name, std::string_view help, std::chrono::nanoseconds time) {
    family(name, "counter", help);
    sample("", "", seconds_text(time));
  }
  void gauge(std::string_view name, std::string_view help, const std::string& value) {
    family(name, "gauge", help);
    sample("", "", value);
  }
  /// A summary without quantiles, which could not be added up: how many, and their sum.
  void summary(std::string_view name, std::string_view help, const std::string& sum,
               std::uint64_t count) {
    family(name, "summary", help);
    sample("_sum", "", sum);
    sample("_count", "", std::to_string(count));
  }
  void summary(std::string_view name, std::string_view help, const duration_stats& times) {
    summary(name, help, seconds_text(times.total()), times.count());
  }
  void summary(std::string_view name, std::string_view help, const depth_stats& depth) {
    summary(name, help, std::to_string(depth.sum), depth.looks);
  }
  /// What came out of the end of a stage, and the time between two.
  void step(const step_stats& step) {
    counter("taken_batches_total", "Batches that the loop got.", step.batches);
    counter("taken_samples_total", "Samples of those batches.", step.samples);
    counter("taken_bytes_total", "Bytes of those batches.", step.bytes);
    counter("step_seconds_total", "Time of the loop's body.", step.busy);
  }
  using stage = std::pair<std::string_view, wait_stats>;
  void waits(std::initializer_list<stage> stages) {
    family("waits_total", "counter", "Waits that have begun, by what is waited for.");
    for (const auto& [name, wait] : stages) sample("", name, std::to_string(wait.count));
    family("wait_seconds_total", "counter", "Time waited by all threads, by what is waited for.");
    for (const auto& [name, wait] : stages) sample("", name, seconds_text(wait.time));
  }
  /// One more number, with the label `kind`.
  void kinds(std::string_view name, std::string_view help,
             std::initializer_list<std::pair<std::string_view, std::uint64_t>> values) {
    family(name, "counter", help);
    for (const auto& [kind, value] : values) sample("", kind, std::to_string(value), "kind");
  }

  [[nodiscard]] std::string text() && { return std::move(text_); }

 private:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    (name_ = prefix_) += name;
    ((((text_ += "# HELP ") += name_) += ' ') += help) += '\n';
    ((((text_ += "# TYPE ") += name_) += ' ') += type) += '\n';
  }
  void sample(std::string_view suffix, std::string_view what, const std::string& value,
              std::string_view label = "stage") {
    (((text_ += name_) += suffix) += '{') += labels_;
    if (!what.empty()) ((((text_ += ',') += label) += "=\"") += what) += '"';
    ((text_ += "} ") += value) += '\n';
  }

  std::string prefix_;
  std::string labels_;
  std::string name_;  // of the family that is being written
  std::string text_;
};

}  // namespace detail

/// The statistics in Prometheus' text format: counters of samples, bytes and seconds from the
/// loader's construction. The label `loader` is a long number that no other loader of the process
/// has, made of its address and of the time; the next run has others. For snapshots, not for
/// differences of two: Prometheus subtracts itself.
[[nodiscard]] inline std::string to_prometheus(const loader_stats& stats) {
  detail::prometheus_writer out{"penstock_loader_",
                                "loader=\"" + std::to_string(stats.loader) + '"'};
  out.gauge("age_seconds", "Time since the loader was made.", detail::seconds_text(stats.age));
  out.gauge("workers", "Threads that read samples.", std::to_string(stats.workers));
  out.gauge("clock_has_stepped", "1 where the clock was found wrong, and so all times may be.",
            stats.clock_has_stepped ? "1" : "0");
  out.counter("read_chunks_total", "Chunks of samples that were read.", stats.read.chunks);
  out.counter("read_samples_total", "Samples that were read.", stats.read.samples);
  out.counter("read_bytes_total", "Bytes of those samples.", stats.read.bytes);
  out.counter("read_seconds_total", "Time in which workers did not wait.", stats.read.busy);
  out.counter("timed_read_seconds_total", "Time of the runs that were timed.",
              stats.read.timed_chunks);
  out.counter("timed_transform_seconds_total", "Time of maps and decoders in those.",
              stats.read.timed_transforms);
  out.summary("sample_seconds", "Reads of single samples, those that were timed.",
              stats.read.times);
  out.summary("batch_seconds", "Batches, from the binding of a slot until they are complete.",
              stats.batches);
  out.waits({{"inactive", stats.wait_while_inactive},
             {"slot", stats.wait_for_slot},
             {"copy", stats.wait_for_copy},
             {"demand", stats.wait_for_demand},
             {"opener", stats.wait_for_opener},
             {"ready", stats.wait_for_ready},
             {"lease", stats.wait_for_lease}});
  out.summary("ready_batches", "Complete batches after the one that was taken, at each look.",
              stats.ready);
  out.step(stats.step);
  out.gauge("ahead_most_bytes", "The bound of what the dataset is told of beforehand.",
            std::to_string(stats.ahead.most_bytes));
  out.gauge("ahead_source_bytes", "The most bytes that the dataset keeps ahead.",
            std::to_string(stats.ahead.source_bytes));
  out.gauge("ahead_bytes", "Bytes that the dataset was told of, and that are not read yet.",
            std::to_string(stats.ahead.bytes_now));
  out.counter("ahead_samples_total", "Samples that the dataset was told of.", stats.ahead.samples);
  out.counter("ahead_bytes_total", "Bytes of those samples where they are stored.",
              stats.ahead.bytes);
  out.counter("ahead_late_total", "Samples that were read before they could be told.",
              stats.ahead.late);
  out.counter("ahead_failures_total", "Exceptions of the dataset or sampler while telling.",
              stats.ahead.failed);
  out.counter("processor_seconds_total", "Processor time of the workers.", stats.processor);
  out.counter("run_queue_seconds_total", "Time in which workers were ready and had no core.",
              stats.run_queue);
  out.kinds("page_faults_total", "Page faults of the workers, and those that waited for a disk.",
            {{"memory", stats.minor_faults}, {"disk", stats.major_faults}});
  out.counter("throttled_periods_total", "Periods in which the container's quota was used up.",
              stats.throttled.count);
  out.counter("throttled_seconds_total", "Time lost to the container's quota, of all cores.",
              stats.throttled.time);
  return std::move(out).text();
}

/// A transfer's statistics in the same format, with the label `transfer`, such a number too, and
/// `loader` where its source is one; then follow the series of that loader.
[[nodiscard]] inline std::string to_prometheus(const transfer_stats& stats) {
  std::string labels = "transfer=\"" + std::to_string(stats.transfer) + '"';
  if (stats.loader) labels += ",loader=\"" + std::to_string(stats.loader->loader) + '"';
  detail::prometheus_writer out{"penstock_transfer_", labels};
  out.gauge("age_seconds", "Time since the transfer was made.", detail::seconds_text(stats.age));
  out.gauge("clock_has_stepped", "1 where the clock was found wrong, and so all times may be.",
            stats.clock_has_stepped ? "1" : "0");
  out.counter("copies_total", "Batches whose copy was queued.", stats.copies);
  out.counter("copied_samples_total", "Samples of those batches.", stats.samples);
  out.counter("copied_bytes_total", "Bytes of those batches, as they travel.", stats.bytes);
  out.counter("transforms_total", "Batches whose transform was queued.", stats.transforms);
  out.waits({{"batch", stats.wait_for_batch},
             {"slot", stats.wait_for_slot},
             {"copy", stats.wait_for_copy}});
  out.summary("ahead_batches", "Copies queued after the batch that was taken, at each look.",
              stats.ahead);
  out.step(stats.step);
  out.counter("replayed_batches_total", "Batches of replays.", stats.replay.batches);
  out.counter("replay_seconds_total", "Time of replays.", stats.replay.time);
  out.counter("device_batches_total", "Batches that the device has timed.", stats.device.batches);
  out.counter("device_copy_seconds_total", "Time of their copies.", stats.device.copy);
  out.counter("device_transform_seconds_total", "Time of their transforms.",
              stats.device.transform);
  out.counter("device_idle_seconds_total", "Time that their stream had no work before them.",
              stats.device.idle);
  out.counter("device_step_seconds_total", "Time of their steps.", stats.device.step);
  std::string text = std::move(out).text();
  return stats.loader ? text + to_prometheus(*stats.loader) : text;
}

/// Writes `to_prometheus(stats)` to a file, for a collector that reads files such as that of
/// node_exporter, whose files end in ".prom":
///
///     ps::write_prometheus(feed.stats(), "/var/lib/node_exporter/train.prom");
///
/// One file for each transfer, and one for each loader that no transfer takes batches from: the
/// file of a transfer has its loader's series too, and a series may be in one file only. A reader
/// sees the file of before or the new one, never a part: it is written to a file in the same folder
/// and renamed. It is not on the disk yet when this returns. Costs some system calls: for once in a
/// while, not for each batch. From any thread, also for one path; throws `report_error`.
inline void write_prometheus(const loader_stats& stats, const std::string& path) {
  detail::write_report(path, "the statistics", to_prometheus(stats));
}
/// Of a transfer, and of its loader if it has one.
inline void write_prometheus(const transfer_stats& stats, const std::string& path) {
  detail::write_report(path, "the statistics", to_prometheus(stats));
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
