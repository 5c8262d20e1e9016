// SPDX-License-Identifier: BSL-1.0
// Tests trace files. An independent reader parses one object per line and must find the recorded
// events. A full disk must leave no file behind.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/report/trace_files.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/limits.hpp"
#include "support/numbered.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;

namespace {

/// A slice in a trace file, with times in nanoseconds.
struct slice {
  std::string track;
  std::string stage;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::map<std::string, std::uint64_t> notes;  // the values of epoch, batch and samples
  std::uint64_t flow = 0;

  [[nodiscard]] auto all() const { return std::tie(track, stage, begin, end, notes); }
  friend bool operator<(const slice& a, const slice& b) { return a.all() < b.all(); }
  friend bool operator==(const slice& a, const slice& b) { return a.all() == b.all(); }
};

/// Reads the trace file of a process, which has one object per line. trace_schema.py checks that
/// the whole file is valid JSON.
class trace_reader {
 public:
  explicit trace_reader(const std::string& text) {
    std::map<std::uint64_t, std::string> tracks;
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);) {
      if (line.find("\"process_name\"") != std::string::npos)
        process = word(line, "\"args\": {\"name");
      if (line.find("\"thread_name\"") != std::string::npos) {
        CHECK(tracks.emplace(number(line, "tid"), word(line, "\"args\": {\"name")).second);
        CHECK(threads.insert(word(line, "\"args\": {\"name")).second);
      }
      if (line.find(R"("ph": "X")") == std::string::npos) continue;
      const std::uint64_t begin = time(line, "ts");
      slice one{tracks.at(number(line, "tid")),
                word(line, "\"name"),
                begin,
                begin + time(line, "dur"),
                {},
                0};
      for (const char* note : {"epoch", "batch", "samples", "workers", "prefetch", "slots"}) {
        if (has(line, note)) one.notes[note] = number(line, note);
      }
      if (has(line, "bind_id")) one.flow = std::stoull(word(line, "\"bind_id"));
      slices.push_back(one);
    }
  }
  std::vector<slice> slices;
  std::string process;
  std::set<std::string> threads;

 private:
  static bool has(const std::string& line, const std::string& key) {
    return line.find('"' + key + "\": ") != std::string::npos;
  }
  static std::uint64_t number(const std::string& line, const std::string& key) {
    return std::stoull(line.substr(line.find('"' + key + "\": ") + key.size() + 4));
  }
  /// Converts microseconds with three decimal places to nanoseconds.
  static std::uint64_t time(const std::string& line, const std::string& key) {
    const std::string text = line.substr(line.find('"' + key + "\": ") + key.size() + 4);
    const auto point = text.find('.');
    REQUIRE(point != std::string::npos);
    return std::stoull(text) * 1000 + std::stoull(text.substr(point + 1, 3));
  }
  static std::string word(const std::string& line, const std::string& start) {
    const auto begin = line.find(start + "\": \"") + start.size() + 4;
    return line.substr(begin, line.find('"', begin) - begin);
  }
};

std::vector<slice> slices_of(const ps::trace_snapshot& trace) {
  std::vector<slice> all;
  for (const ps::trace_track& track : trace.tracks) {
    for (const ps::trace_event& event : track.events) {
      slice one{track.name,
                std::string{name_of(event.stage)},
                static_cast<std::uint64_t>(event.begin.count()),
                static_cast<std::uint64_t>(event.end.count()),
                {},
                0};
      if (event.batch) {
        one.notes = {{"epoch", event.batch->epoch}, {"batch", event.batch->batch}};
        if (event.samples != 0) one.notes["samples"] = event.samples;
      }
      all.push_back(one);
    }
  }
  return all;
}

/// Returns the trace of two epochs, with all kinds of stages except waits for leases.
ps::trace_snapshot recorded() {
  ps::trace_recorder recorder;
  ps::loader loader{numbered{103},
                    ps::shuffled{.seed = 1},
                    {.batch_size = 10, .workers = 2, .instrumentation = {.trace = &recorder}}};
  const auto unchanged = ps::on_stream<numbered::record_type>(
      [](ps::const_batch_view<numbered::record_type>, ps::batch_view<numbered::record_type>,
         ps::cpu_stream_ref) {});
  ps::transfer feed{loader, ps::cpu_device{}, unchanged, {.instrumentation = {.trace = &recorder}}};
  for (auto& batch : feed.epochs(0, 2)) static_cast<void>(batch);
  return recorder.snapshot();
}

/// Returns a trace with nested stages, a stage without a batch, and a name that JSON must escape.
ps::trace_snapshot played() {
  ps::trace_snapshot trace;
  trace.taken = 2ms;
  trace.tracks.push_back({"penstock \"one\"",
                          3,
                          0,
                          {{ps::trace_stage::transform, 1200ns, 1300ns, {{1, 2}}, 10},
                           {ps::trace_stage::copy, 1100ns, 1500ns, {{1, 2}}, 10},
                           {ps::trace_stage::wait_for_batch, 1500ns, 1002000ns, {}, 0}}});
  return trace;
}

/// Returns the path and the error number of the exception that `write` throws.
template <class Write>
std::pair<std::string, int> failure_of(Write write) {
  const auto error = test::error_of<ps::report_error>(write);
  CHECK(std::string_view{error.what()}.starts_with(error.path()));
  return {error.path(), error.number()};
}

}  // namespace

TEST_CASE("a recorded trace is read back from its file", "[report][promise:honest-19]") {
  const test::temp_dir folder;
  const auto trace = recorded();
  write_chrome_trace(trace, folder.path("trace.json"));
  CHECK(test::files_in(folder) == 1);
  trace_reader read{test::content_of(folder.path("trace.json"))};
  std::erase_if(read.threads, [](const auto& name) { return name.find(" slot ") != name.npos; });
  auto expected = slices_of(trace);
  REQUIRE(expected.size() > 22 * 5);
  std::sort(expected.begin(), expected.end());
  std::sort(read.slices.begin(), read.slices.end());
  CHECK(read.slices == expected);
  CHECK(read.process == "penstock");
  CHECK(read.threads == std::set<std::string>{"penstock worker 0", "penstock worker 1",
                                              "penstock consumer", "penstock transfer"});
}

TEST_CASE("the slices of a batch have a unique flow", "[report]") {
  const test::temp_dir folder;
  write_chrome_trace(recorded(), folder.path("trace.json"));
  const trace_reader read{test::content_of(folder.path("trace.json"))};
  std::map<std::uint64_t, std::set<std::pair<std::uint64_t, std::uint64_t>>> batches;
  for (const slice& one : read.slices) {
    CHECK((one.flow != 0) == (one.notes.count("batch") == 1));
    if (one.flow != 0) batches[one.flow].emplace(one.notes.at("epoch"), one.notes.at("batch"));
  }
  CHECK(batches.size() == 22);
  for (const auto& [flow, those] : batches) CHECK(those.size() == 1);
}

TEST_CASE("slices within each other are written as they nest", "[report]") {
  const test::temp_dir folder;
  auto trace = played();
  // After a clock step, a stage may end after its enclosing stage. The stage is then cut at the end
  // of the enclosing stage.
  trace.tracks[0].events.push_back({ps::trace_stage::step, 1400ns, 1600ns, {{1, 2}}, 10});
  write_chrome_trace(trace, folder.path("trace.json"));
  const trace_reader read{test::content_of(folder.path("trace.json"))};
  REQUIRE(read.slices.size() == 4);
  CHECK(read.slices[0].stage == "copy");
  CHECK(read.slices[0].end == 1500);
  CHECK(read.slices[1].stage == "transform");
  CHECK(read.slices[1].end == 1300);
  CHECK(read.slices[2].stage == "step");
  CHECK(read.slices[2].end == 1500);
  CHECK(read.slices[3].end == 1002000);
  CHECK(read.slices[3].flow == 0);
}

TEST_CASE("a Chrome trace is JSON with one object per event", "[report]") {
  const test::temp_dir folder;
  write_chrome_trace(played(), folder.path("trace.json"));
  auto text = test::content_of(folder.path("trace.json"));
  const std::string process = "\"pid\": " + std::to_string(::getpid());
  for (auto at = text.find(process); at != std::string::npos; at = text.find(process)) {
    text.replace(at, process.size(), "\"pid\": P");
  }
  const std::string flow = std::to_string((std::uint64_t{3} << 56) + (1U << 28U) + 3);
  CHECK(
      text ==
      "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n"
      R"({"ph": "M", "name": "process_name", "pid": P, "args": {"name": "penstock"}},
{"ph": "M", "name": "thread_name", "pid": P, "tid": 1, "args": {"name": "penstock \"one\""}},
{"ph": "X", "name": "copy", "pid": P, "tid": 1, "ts": 1.100, "dur": 0.400, "bind_id": ")" +
          flow +
          R"(", "flow_in": true, "flow_out": true, "args": {"epoch": 1, "batch": 2, "samples": 10}},
{"ph": "X", "name": "transform", "pid": P, "tid": 1, "ts": 1.200, "dur": 0.100, "bind_id": ")" +
          flow +
          R"(", "flow_in": true, "flow_out": true, "args": {"epoch": 1, "batch": 2, "samples": 10}},
{"ph": "X", "name": "wait for batch", "pid": P, "tid": 1, "ts": 1.500, "dur": 1000.500}
]}
)");
}

TEST_CASE("a setting is written with workers and prefetch, and a depth with its slots",
          "[report]") {
  const test::temp_dir folder;
  ps::trace_snapshot trace;
  trace.tracks.push_back(
      {"penstock tuning", 1, 0, {{ps::trace_stage::setting, 100ns, 900ns, {}, 0, 3, 4}}});
  trace.tracks.push_back(
      {"penstock depth", 1, 0, {{ps::trace_stage::depth, 200ns, 900ns, {}, 0, 0, 0, 5}}});
  write_chrome_trace(trace, folder.path("trace.json"));
  const trace_reader read{test::content_of(folder.path("trace.json"))};
  REQUIRE(read.slices.size() == 2);
  CHECK(read.slices[1].stage == "depth");
  CHECK(read.slices[1].notes == std::map<std::string, std::uint64_t>{{"slots", 5}});
  CHECK(read.slices[0].stage == "setting");
  CHECK(read.slices[0].notes ==
        std::map<std::string, std::uint64_t>{{"workers", 3}, {"prefetch", 4}});
  CHECK(read.slices[0].flow == 0);
}

TEST_CASE("an epoch of MNIST's size fits into a ring, and into three megabytes", "[report]") {
  ps::trace_snapshot trace;
  ps::trace_recorder recorder;
  using digit = ps::record<ps::field<"image", std::uint8_t, 28, 28>>;
  const std::vector<std::uint8_t> images(std::size_t{60000} * 784);
  ps::loader loader{ps::memory_dataset<digit>{images},
                    ps::shuffled{.seed = 1},
                    {.batch_size = 64, .workers = 2, .instrumentation = {.trace = &recorder}}};
  ps::transfer feed{loader, {.instrumentation = {.trace = &recorder}}};
  for (auto& batch : feed.epoch(0)) static_cast<void>(batch);
  trace = recorder.snapshot();
  for (const auto& track : trace.tracks) CHECK(track.lost == 0);
  const ps::detail::chrome_text made{trace};
  CHECK(made.text().size() > 300'000);
  CHECK(made.text().size() < 3'000'000);
}

TEST_CASE("a file that can't be written is an error with path and number",
          "[report][fault:files-17]") {
  const test::temp_dir folder;
  const auto trace = played();
  const std::string missing = folder.path("missing/trace.json");
  CHECK(failure_of([&] { write_chrome_trace(trace, missing); }) == std::pair{missing, ENOENT});
  const std::string itself = folder.path("");
  CHECK(failure_of([&] { write_chrome_trace(trace, itself); }) == std::pair{itself, EISDIR});
  const int opened = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (opened >= 0) {
    ::close(opened);
    const std::string full = "/dev/full";
    CHECK(failure_of([&] { write_chrome_trace(trace, full); }) == std::pair{full, ENOSPC});
    CHECK(std::filesystem::is_character_file(full));  // the device file was not replaced
  }
  CHECK(test::files_in(folder) == 0);
}

TEST_CASE("a full disk leaves the old file and no temporary file", "[report][fault:files-17]") {
  const test::temp_dir folder;
  const std::string path = folder.path("trace.json");
  write_chrome_trace(played(), path);
  const std::string before = test::content_of(path);
  const auto trace = recorded();

  const auto failure = [&] {
    const test::file_limit limit{1000};
    return failure_of([&] { write_chrome_trace(trace, path); });
  }();
  CHECK(failure == std::pair{path, EFBIG});
  CHECK(test::content_of(path) == before);
  CHECK(test::files_in(folder) == 1);

  write_chrome_trace(trace, path);  // space is available again, so the old file is replaced
  CHECK(test::content_of(path).size() > before.size());
  CHECK(test::files_in(folder) == 1);
}

TEST_CASE("times before the clock's zero are numbers of JSON", "[report]") {
  const test::temp_dir folder;
  ps::trace_snapshot trace;
  trace.tracks.push_back({"one", 1, 0, {{ps::trace_stage::step, -1500ns, -200ns, {{0, 0}}, 1}}});
  write_chrome_trace(trace, folder.path("trace.json"));
  const std::string text = test::content_of(folder.path("trace.json"));
  CHECK(text.find("-1.500") != std::string::npos);
  CHECK(text.find(".-") == std::string::npos);
}

TEST_CASE("writing through a link keeps the link", "[report]") {
  const test::temp_dir folder;
  const std::string path = folder.path("link");
  std::error_code rejected;
  std::filesystem::create_symlink(folder.write("target", {1, 2, 3}), path, rejected);
  if (rejected) {
    WARN("not tested: there are no links here");
    return;
  }
  write_chrome_trace(played(), path);
  CHECK(std::filesystem::is_symlink(path));
  CHECK(test::content_of(folder.path("target")).size() > 100);
}

// Writes files that trace_schema.py reads with other parsers.
TEST_CASE("traces are written to PENSTOCK_TRACES", "[.][traces]") {
  const char* const folder = std::getenv("PENSTOCK_TRACES");
  if (folder == nullptr) {  // a build that selects tests by tag also runs hidden tests
    WARN("not run: PENSTOCK_TRACES names no folder");
    return;
  }
  const auto trace = recorded();
  write_chrome_trace(trace, std::string{folder} + "/trace.json");
}
