// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock_ext/report/report_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Formats a time in seconds with nine decimal places, independent of the locale.
[[nodiscard]] inline std::string seconds_text(std::chrono::nanoseconds time) {
  constexpr std::int64_t second = 1'000'000'000;
  const std::int64_t whole = time.count() < 0 ? 0 : time.count();
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%lld.%09lld", static_cast<long long>(whole / second),
                static_cast<long long>(whole % second));
  return text.data();
}

/// Writes the Prometheus text format. HELP and TYPE appear once for each metric family, followed by
/// the samples of all loaders.
class prometheus_writer {
 public:
  /// Sets the family prefix and the labels of the following samples. `labels` is the text between
  /// the braces, such as `loader="1"`.
  void begin(std::string prefix, std::string labels) {
    prefix_ = std::move(prefix);
    labels_ = std::move(labels);
  }

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
  /// Writes a summary as count and sum. Quantiles are omitted because they cannot be aggregated.
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
  /// Writes the number of batches that the loop received, and the body time.
  void step(const step_stats& step) {
    counter("taken_batches_total", "Batches that the loop took.", step.batches);
    counter("taken_samples_total", "Samples of those batches.", step.samples);
    counter("taken_bytes_total", "Bytes of those batches.", step.bytes);
    counter("step_seconds_total", "Time of the loop's body.", step.busy);
  }
  using stage = std::pair<std::string_view, wait_stats>;
  void waits(std::initializer_list<stage> stages) {
    family("waits_total", "counter", "Waits that have begun, by kind.");
    for (const auto& [name, wait] : stages) sample("", name, std::to_string(wait.count));
    family("wait_seconds_total", "counter", "Time waited by all threads, by kind.");
    for (const auto& [name, wait] : stages) sample("", name, seconds_text(wait.time));
  }
  /// Writes several samples of a family, which differ in the label `kind`.
  void kinds(std::string_view name, std::string_view help,
             std::initializer_list<std::pair<std::string_view, std::uint64_t>> values) {
    family(name, "counter", help);
    for (const auto& [kind, value] : values) sample("", kind, std::to_string(value), "kind");
  }

  [[nodiscard]] std::string text() const {
    std::string all;
    for (const family_text& each : families_) all += each.text;
    return all;
  }

 private:
  struct family_text {
    std::string name;
    std::string text;
  };

  void family(std::string_view name, std::string_view type, std::string_view help) {
    const std::string full = str_cat({prefix_, name});
    const auto known = std::ranges::find(families_, full, &family_text::name);
    family_ = static_cast<std::size_t>(known - families_.begin());
    if (known != families_.end()) return;
    families_.push_back(
        {full, str_cat({"# HELP ", full, " ", help, "\n# TYPE ", full, " ", type, "\n"})});
  }
  void sample(std::string_view suffix, std::string_view what, const std::string& value,
              std::string_view label = "stage") {
    auto& [name, text] = families_[family_];
    text += str_cat({name, suffix, "{", labels_});
    if (!what.empty()) text += str_cat({",", label, "=\"", what, "\""});
    text += str_cat({"} ", value, "\n"});
  }

  std::string prefix_;
  std::string labels_;
  std::vector<family_text> families_;  // in order of first use
  std::size_t family_ = 0;             // index of the current family
};

}  // namespace detail

/// A page with the statistics of several loaders and transfers in Prometheus text format:
///
///     ps::prometheus_page page;
///     page.add(train.stats(), "train").add(valid.stats(), "valid");
///     ps::write_prometheus(page, "/var/lib/node_exporter/training.prom");
///
/// Add snapshots, not differences of snapshots, because Prometheus itself computes rates.
class prometheus_page {
 public:
  /// Adds a loader's counters of samples, bytes and seconds since its construction. The label
  /// `loader` is a number derived from the loader's address and the time, which is unique in the
  /// process and different in the next run. `name` is the value of the label `name`. Does nothing
  /// if the page already contains the loader.
  prometheus_page& add(const loader_stats& stats, std::string_view name = {}) {
    const std::string label = "loader=\"" + std::to_string(stats.loader) + '"';
    if (!begin("penstock_loader_", label, name)) return *this;
    out_.gauge("age_seconds", "Time since the loader was made.", detail::seconds_text(stats.age));
    out_.gauge("workers", "Threads that read samples.", std::to_string(stats.workers));
    out_.gauge("clock_has_stepped", "1 if a clock step was detected, so that times may be wrong.",
               stats.clock_has_stepped ? "1" : "0");
    out_.counter("read_chunks_total", "Chunks of samples that were read.", stats.read.chunks);
    out_.counter("read_samples_total", "Samples that were read.", stats.read.samples);
    out_.counter("read_bytes_total", "Bytes of those samples.", stats.read.bytes);
    out_.counter("read_seconds_total", "Time that workers spent reading.", stats.read.busy);
    out_.counter("timed_read_seconds_total", "Time of the timed chunks.", stats.read.timed_chunks);
    out_.counter("timed_transform_seconds_total", "Time of maps and decoders in the timed chunks.",
                 stats.read.timed_transforms);
    out_.summary("sample_seconds", "Times of the timed reads of single samples.", stats.read.times);
    out_.summary("batch_seconds",
                 "Times of batches, from binding a slot until the batch is complete.",
                 stats.batches);
    out_.waits({{"inactive", stats.wait_while_inactive},
                {"slot", stats.wait_for_slot},
                {"copy", stats.wait_for_copy},
                {"demand", stats.wait_for_demand},
                {"opener", stats.wait_for_opener},
                {"ready", stats.wait_for_ready},
                {"lease", stats.wait_for_lease}});
    out_.summary("ready_batches",
                 "Complete batches waiting behind the batch taken, at each sampling.", stats.ready);
    out_.step(stats.step);
    out_.gauge("ahead_max_bytes", "Upper bound of the bytes announced to the dataset in advance.",
               std::to_string(stats.ahead.max_bytes));
    out_.gauge("ahead_source_bytes", "Maximum number of bytes that the dataset prefetches.",
               std::to_string(stats.ahead.source_bytes));
    out_.gauge("ahead_bytes", "Bytes announced to the dataset and not read yet.",
               std::to_string(stats.ahead.bytes_now));
    out_.counter("ahead_samples_total", "Samples announced to the dataset.", stats.ahead.samples);
    out_.counter("ahead_bytes_total", "Bytes of those samples where they are stored.",
                 stats.ahead.bytes);
    out_.counter("ahead_late_total", "Samples that were read before they could be announced.",
                 stats.ahead.late);
    out_.counter("ahead_failures_total",
                 "Exceptions of the dataset or sampler during announcements.", stats.ahead.failed);
    out_.counter("processor_seconds_total", "Processor time of the workers.", stats.processor);
    out_.counter("run_queue_seconds_total",
                 "Time in which workers were ready to run and had no core.", stats.run_queue);
    out_.kinds("page_faults_total", "Page faults of the workers, minor and major.",
               {{"memory", stats.minor_faults}, {"disk", stats.major_faults}});
    out_.counter("throttled_periods_total", "Periods in which the container's quota was used up.",
                 stats.throttled.count);
    out_.counter("throttled_seconds_total", "Time lost to the container's quota, of all cores.",
                 stats.throttled.time);
    return *this;
  }

  /// Adds a transfer's statistics, followed by those of its loader if the source is a loader. The
  /// label `transfer` has the same form as the label `loader`, which is added if there is a loader.
  prometheus_page& add(const transfer_stats& stats, std::string_view name = {}) {
    std::string labels = "transfer=\"" + std::to_string(stats.transfer) + '"';
    if (stats.loader) labels += ",loader=\"" + std::to_string(stats.loader->loader) + '"';
    if (!begin("penstock_transfer_", labels, name)) return *this;
    out_.gauge("age_seconds", "Time since the transfer was made.", detail::seconds_text(stats.age));
    out_.gauge("clock_has_stepped", "1 if a clock step was detected, so that times may be wrong.",
               stats.clock_has_stepped ? "1" : "0");
    out_.counter("copies_total", "Batches whose copy was queued.", stats.copies);
    out_.counter("copied_samples_total", "Samples of those batches.", stats.samples);
    out_.counter("copied_bytes_total", "Bytes copied for those batches.", stats.bytes);
    out_.counter("transforms_total", "Batches whose transform was queued.", stats.transforms);
    out_.waits({{"batch", stats.wait_for_batch},
                {"slot", stats.wait_for_slot},
                {"copy", stats.wait_for_copy}});
    out_.summary("ahead_batches", "Copies queued behind the batch taken, at each sampling.",
                 stats.ahead);
    out_.step(stats.step);
    out_.counter("replayed_batches_total", "Batches of replays.", stats.replay.batches);
    out_.counter("replay_seconds_total", "Time of replays.", stats.replay.time);
    out_.counter("device_batches_total", "Batches that the device has timed.",
                 stats.device.batches);
    out_.counter("device_copy_seconds_total", "Time of their copies.", stats.device.copy);
    out_.counter("device_transform_seconds_total", "Time of their transforms.",
                 stats.device.transform);
    out_.counter("device_idle_seconds_total", "Time that their stream had no work before them.",
                 stats.device.idle);
    out_.counter("device_step_seconds_total", "Time of their steps.", stats.device.step);
    return stats.loader ? add(*stats.loader, name) : *this;
  }

  /// Returns the text of the page.
  [[nodiscard]] std::string text() const { return out_.text(); }

 private:
  /// Begins the samples of a loader or transfer. Returns false if the page already contains them.
  bool begin(const char* prefix, std::string labels, std::string_view name) {
    if (!added_.insert(labels).second) return false;
    if (!name.empty()) labels += ",name=\"" + escaped_label(name) + '"';
    out_.begin(prefix, std::move(labels));
    return true;
  }
  [[nodiscard]] static std::string escaped_label(std::string_view value) {
    std::string text;
    for (const char c : value) {
      if (c == '\\' || c == '"' || c == '\n') text += '\\';
      text += c == '\n' ? 'n' : c;
    }
    return text;
  }

  detail::prometheus_writer out_;
  std::set<std::string> added_;
};

/// Formats the statistics of one loader as a page (see `prometheus_page::add`).
[[nodiscard]] inline std::string to_prometheus(const loader_stats& stats) {
  return prometheus_page{}.add(stats).text();
}
/// Formats the statistics of a transfer and its loader as a page.
[[nodiscard]] inline std::string to_prometheus(const transfer_stats& stats) {
  return prometheus_page{}.add(stats).text();
}

/// Writes `to_prometheus(stats)` to a file for collectors such as node_exporter, which read files
/// with names that end in ".prom":
///
///     ps::write_prometheus(feed.stats(), "/var/lib/node_exporter/train.prom");
///
/// A series may appear in only one file. The file of a transfer also contains its loader's series.
/// To write several loaders and transfers to one file, use a `prometheus_page`. The file is
/// replaced atomically by renaming a temporary file in the same folder, but may not be on the disk
/// yet when the function returns. Needs several system calls, so do not call it for each batch.
/// Thread-safe, even for the same path. Throws `report_error` if the file cannot be written.
inline void write_prometheus(const loader_stats& stats, const std::string& path) {
  detail::write_report(path, "the statistics", to_prometheus(stats));
}
/// Writes the statistics of a transfer, and of its loader if any, to a file. Throws `report_error`
/// if the file cannot be written.
inline void write_prometheus(const transfer_stats& stats, const std::string& path) {
  detail::write_report(path, "the statistics", to_prometheus(stats));
}
/// Writes a page with several loaders and transfers to a file. Throws `report_error` if the file
/// cannot be written.
inline void write_prometheus(const prometheus_page& page, const std::string& path) {
  detail::write_report(path, "the statistics", page.text());
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
