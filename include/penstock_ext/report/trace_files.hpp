// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/observe/trace_recorder.hpp>
#include <penstock_ext/report/report_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Returns a number that identifies a batch and links its events.
[[nodiscard]] inline std::uint64_t flow_of(const trace_track& track,
                                           const batch_position& batch) noexcept {
  // Distinguishes 2^28 epochs, 2^28 batches in an epoch, and 2^8 loaders.
  return ((track.flow << 56) ^ (batch.epoch << 28) ^ batch.batch) + 1;
}

/// Formats a trace as JSON for chrome://tracing. Each event is an object with times in
/// microseconds.
class chrome_text {
 public:
  explicit chrome_text(const trace_snapshot& trace) : process_(std::to_string(::getpid())) {
    text_ += "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
    text_ += R"({"ph": "M", "name": "process_name", "pid": )" + process_ +
             R"(, "args": {"name": "penstock"}})";
    for (const trace_track& track : trace.tracks) {
      ++thread_;
      text_ += ",\n" + start("M", "thread_name") + R"(, "args": {"name": ")" + escaped(track.name) +
               R"("}})";
      for (const trace_event& event : nested(track)) add(track, event);
    }
    text_ += "\n]}\n";
  }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  [[nodiscard]] std::string start(std::string_view phase, std::string_view name) const {
    std::string text = R"({"ph": ")";
    ((text += phase) += R"(", "name": ")") += name;
    return text + R"(", "pid": )" + process_ + R"(, "tid": )" + std::to_string(thread_);
  }
  /// Returns the events as viewers require: sorted by start time, with each event ending no later
  /// than its enclosing event.
  [[nodiscard]] static std::vector<trace_event> nested(const trace_track& track) {
    std::vector<trace_event> events{track.events.begin(), track.events.end()};
    std::stable_sort(events.begin(), events.end(), [](const trace_event& a, const trace_event& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    std::vector<std::chrono::nanoseconds> open;
    for (trace_event& event : events) {
      while (!open.empty() && open.back() <= event.begin) open.pop_back();
      if (!open.empty()) event.end = (std::min)(event.end, open.back());
      open.push_back(event.end);
    }
    return events;
  }
  [[nodiscard]] static std::string microseconds(std::chrono::nanoseconds time) {
    std::array<char, 40> text{};
    const std::int64_t all = time.count();
    std::snprintf(text.data(), text.size(), "%s%" PRId64 ".%03d", all < 0 ? "-" : "",
                  std::abs(all / 1000), static_cast<int>(std::abs(all % 1000)));
    return text.data();
  }
  [[nodiscard]] static std::string escaped(const std::string& text) {
    std::string all;
    for (const char one : text) {
      if (static_cast<unsigned char>(one) < 0x20) continue;
      if (one == '"' || one == '\\') all += '\\';
      all += one;
    }
    return all;
  }

  void add(const trace_track& track, const trace_event& event) {
    text_ += ",\n" + start("X", name_of(event.stage)) + R"(, "ts": )" + microseconds(event.begin) +
             R"(, "dur": )" + microseconds(event.end - event.begin);
    if (event.batch) {
      text_ += R"(, "bind_id": ")" + std::to_string(flow_of(track, *event.batch)) +
               R"(", "flow_in": true, "flow_out": true, "args": {"epoch": )" +
               std::to_string(event.batch->epoch) + R"(, "batch": )" +
               std::to_string(event.batch->batch);
      if (event.samples != 0) text_ += R"(, "samples": )" + std::to_string(event.samples);
      text_ += '}';
    } else if (event.stage == trace_stage::setting) {
      text_ += R"(, "args": {"workers": )" + std::to_string(event.workers) + R"(, "prefetch": )" +
               std::to_string(event.prefetch) + '}';
    } else if (event.stage == trace_stage::depth) {
      text_ += R"(, "args": {"slots": )" + std::to_string(event.depth) + '}';
    }
    text_ += '}';
  }

  std::string process_;
  std::size_t thread_ = 0;
  std::string text_;
};

}  // namespace detail

/// Writes a trace as JSON for ui.perfetto.dev and chrome://tracing. Each thread and each slot has a
/// track. Each stage is a slice with epoch, batch and samples, and arrows link the slices of a
/// batch. A slice occupies about 170 bytes, first in memory and then in the file.
///
/// The file is replaced atomically by renaming a temporary file in the same folder. If `path` is
/// not a regular file, for example a pipe, writes to it directly. Throws `report_error` and
/// std::bad_alloc. Thread-safe and never blocks a loop.
inline void write_chrome_trace(const trace_snapshot& trace, const std::string& path) {
  detail::write_report(path, "the trace", detail::chrome_text{trace}.text());
}
/// Writes the current trace of a recorder. Throws the same errors as the overload above.
inline void write_chrome_trace(const trace_recorder& recorder, const std::string& path) {
  write_chrome_trace(recorder.snapshot(), path);
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
