// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <array>
#include <chrono>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <penstock/observe/trace_recorder.hpp>
#include <penstock_ext/report/detail/nested.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A trace as JSON that chrome://tracing reads: an object an event, with times in microseconds.
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
      for (const trace_event& event : track.events) add(track, event);
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
}  // namespace PENSTOCK_ABI
}  // namespace penstock
