// SPDX-License-Identifier: BSL-1.0
// Traces as files: what was recorded is read back, by a parser of protocol buffers that shares no
// code with the library, and nothing is left behind where a disk is full.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
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
#include "support/numbered.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;

namespace {

/// A message of protocol buffers: the values of each field, in their order.
class fields {
 public:
  explicit fields(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::uint64_t key = varint(bytes);
      if (key % 8 == 0) {
        numbers_[key / 8].push_back(varint(bytes));
      } else if (key % 8 == 1) {
        REQUIRE(bytes.size() >= 8);
        std::uint64_t value = 0;
        for (std::size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
        numbers_[key / 8].push_back(value);
        bytes.remove_prefix(8);
      } else {
        REQUIRE(key % 8 == 2);
        const auto size = static_cast<std::size_t>(varint(bytes));
        REQUIRE(bytes.size() >= size);
        texts_[key / 8].emplace_back(bytes.substr(0, size));
        bytes.remove_prefix(size);
      }
    }
  }
  [[nodiscard]] bool has(std::uint64_t field) const {
    return numbers_.count(field) != 0 || texts_.count(field) != 0;
  }
  [[nodiscard]] std::uint64_t number(std::uint64_t field) const {
    INFO("number of field " << field);
    REQUIRE(numbers_.count(field) == 1);
    return numbers_.at(field).front();
  }
  [[nodiscard]] std::string text(std::uint64_t field) const {
    INFO("text of field " << field);
    REQUIRE(texts_.count(field) == 1);
    return texts_.at(field).front();
  }
  [[nodiscard]] fields message(std::uint64_t field) const { return fields{text(field)}; }
  [[nodiscard]] std::vector<fields> messages(std::uint64_t field) const {
    std::vector<fields> all;
    if (texts_.count(field) == 0) return all;
    for (const std::string& bytes : texts_.at(field)) all.emplace_back(bytes);
    return all;
  }

 private:
  static std::uint64_t varint(std::string_view& bytes) {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      REQUIRE(!bytes.empty());
      REQUIRE(shift < 64);
      const auto byte = static_cast<unsigned char>(bytes.front());
      bytes.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      if (byte < 0x80) return value;
    }
  }

  std::map<std::uint64_t, std::vector<std::uint64_t>> numbers_;
  std::map<std::uint64_t, std::vector<std::string>> texts_;
};

/// A slice as it stands in a file: times in nanoseconds.
struct slice {
  std::string track;
  std::string stage;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::map<std::string, std::uint64_t> notes;  // epoch, batch, samples
  std::uint64_t flow = 0;

  [[nodiscard]] auto all() const { return std::tie(track, stage, begin, end, notes); }
  friend bool operator<(const slice& a, const slice& b) { return a.all() < b.all(); }
  friend bool operator==(const slice& a, const slice& b) { return a.all() == b.all(); }
};

/// Reads a file of Perfetto's as its trace processor does: names by what each sequence says of
/// them, the end of a slice as that of the last one that is open.
class perfetto_reader {
 public:
  explicit perfetto_reader(std::string_view bytes) {
    for (const fields& packet : fields{bytes}.messages(1)) take(packet);
    for (const auto& [id, one] : sequences_) CHECK(one.open.empty());
  }
  std::vector<slice> slices;
  std::map<std::uint64_t, std::string> processes;  // by pid
  std::set<std::string> threads;
  std::map<std::uint64_t, std::uint64_t> clocks;  // the snapshot: by clock

 private:
  struct sequence {
    std::map<std::uint64_t, std::string> names;
    std::map<std::uint64_t, std::string> notes;
    std::uint64_t track = 0;
    std::uint64_t clock = 0;
    std::uint64_t last = 0;
    std::vector<slice> open;
  };

  void take(const fields& packet) {
    sequence& of = sequences_[packet.number(10)];
    if (packet.has(6)) {
      for (const fields& clock : packet.message(6).messages(1)) {
        clocks[clock.number(1)] = clock.number(2);
      }
      CHECK(packet.message(6).number(2) == 3);
    }
    if (packet.has(60)) describe(packet.message(60));
    if (packet.has(12)) {
      CHECK(packet.number(13) == 3);  // what was interned before is forgotten
      for (const fields& name : packet.message(12).messages(2)) {
        of.names[name.number(1)] = name.text(2);
      }
      for (const fields& name : packet.message(12).messages(3)) {
        of.notes[name.number(1)] = name.text(2);
      }
    }
    if (packet.has(59)) {
      of.clock = packet.message(59).number(58);
      of.track = packet.message(59).message(11).number(11);
    }
    if (packet.has(11)) take(of, packet);
  }

  void describe(const fields& track) {
    if (track.has(2)) tracks_[track.number(1)] = track.text(2);
    if (track.has(3)) {
      const fields process = track.message(3);
      processes[process.number(1)] = process.text(6);
    }
    if (track.has(4)) {
      const fields thread = track.message(4);
      CHECK(processes.count(thread.number(1)) == 1);
      CHECK(threads.insert(thread.text(5)).second);
      CHECK(tids_.insert(thread.number(2)).second);
    }
  }

  void take(sequence& of, const fields& packet) {
    const fields event = packet.message(11);
    const std::uint64_t time = packet.number(8);
    CHECK(packet.number(13) == 2);  // it needs what was interned
    CHECK(of.clock == 3);
    CHECK(time >= of.last);
    of.last = time;
    if (event.number(9) == 2) {
      REQUIRE_FALSE(of.open.empty());
      of.open.back().end = time;
      slices.push_back(of.open.back());
      of.open.pop_back();
      return;
    }
    REQUIRE(event.number(9) == 1);
    slice one{tracks_.at(of.track), of.names.at(event.number(10)), time, 0, {}, 0};
    for (const fields& note : event.messages(4)) {
      one.notes[of.notes.at(note.number(1))] = note.number(3);
    }
    if (event.has(47)) one.flow = event.number(47);
    of.open.push_back(one);
  }

  std::map<std::uint64_t, sequence> sequences_;
  std::map<std::uint64_t, std::string> tracks_;
  std::set<std::uint64_t> tids_;
};

std::string bytes_of(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
}

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

/// What two epochs with every kind of stage but waits for leases leave.
ps::trace_snapshot recorded() {
  ps::trace_recorder recorder;
  ps::loader loader{
      numbered{103}, ps::shuffled{.seed = 1}, {.batch_size = 10, .workers = 2, .trace = &recorder}};
  const auto unchanged = ps::on_stream<numbered::record_type>(
      [](ps::const_batch_view<numbered::record_type>, ps::batch_view<numbered::record_type>,
         ps::cpu_stream_ref) {});
  ps::transfer feed{loader, ps::cpu_device{}, unchanged, {.trace = &recorder}};
  for (auto& batch : feed.epochs(0, 2)) static_cast<void>(batch);
  return recorder.snapshot();
}

/// Two stages within each other, one that belongs to no batch, and a name that JSON has to escape.
ps::trace_snapshot played() {
  ps::trace_snapshot trace;
  trace.taken = 2ms;
  trace.suspended = 5ms;
  trace.tracks.push_back({"penstock \"one\"",
                          3,
                          0,
                          {{ps::trace_stage::transform, 1200ns, 1300ns, {{1, 2}}, 10},
                           {ps::trace_stage::copy, 1100ns, 1500ns, {{1, 2}}, 10},
                           {ps::trace_stage::wait_for_batch, 1500ns, 1002000ns, {}, 0}}});
  return trace;
}

std::size_t files_in(const test::temp_dir& folder) {
  const std::filesystem::directory_iterator all{folder.path("")};
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// The path and the number of the error that writing throws.
template <class Write>
std::pair<std::string, int> failure_of(Write write) {
  try {
    write();
  } catch (const ps::report_error& error) {
    CHECK(std::string{error.what()}.find(error.path()) == 0);
    return {error.path(), error.number()};
  }
  return {"(written)", 0};
}

}  // namespace

TEST_CASE("what was recorded is read back from Perfetto's file", "[report][promise:honest-19]") {
  const test::temp_dir folder;
  const auto trace = recorded();
  write_perfetto(trace, folder.path("trace.pftrace"));
  CHECK(files_in(folder) == 1);
  perfetto_reader read{bytes_of(folder.path("trace.pftrace"))};
  auto expected = slices_of(trace);
  REQUIRE(expected.size() > 22 * 5);
  std::sort(expected.begin(), expected.end());
  std::sort(read.slices.begin(), read.slices.end());
  CHECK(read.slices == expected);
  REQUIRE(read.processes.size() == 1);
  CHECK(read.processes.begin()->second == "penstock");
  CHECK(read.threads == std::set<std::string>{"penstock worker 0", "penstock worker 1",
                                              "penstock consumer", "penstock transfer"});
  CHECK(read.clocks[6] - read.clocks[3] == static_cast<std::uint64_t>(trace.suspended.count()));
}

TEST_CASE("the slices of a batch have one flow, which no other batch has", "[report]") {
  const test::temp_dir folder;
  write_perfetto(recorded(), folder.path("trace.pftrace"));
  const perfetto_reader read{bytes_of(folder.path("trace.pftrace"))};
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
  // One that ends after what it began in, as by a clock that has stepped, ends with it.
  trace.tracks[0].events.push_back({ps::trace_stage::step, 1400ns, 1600ns, {{1, 2}}, 10});
  write_perfetto(trace, folder.path("trace.pftrace"));
  const perfetto_reader read{bytes_of(folder.path("trace.pftrace"))};
  REQUIRE(read.slices.size() == 4);
  CHECK(read.slices[0].stage == "transform");
  CHECK(read.slices[1].stage == "step");
  CHECK(read.slices[1].end == 1500);
  CHECK(read.slices[2].stage == "copy");
  CHECK(read.slices[2].end == 1500);
  CHECK(read.slices[3].end == 1002000);
  CHECK(read.slices[3].flow == 0);
}

TEST_CASE("a trace for Chrome is JSON, an object an event", "[report]") {
  const test::temp_dir folder;
  write_chrome_trace(played(), folder.path("trace.json"));
  auto text = bytes_of(folder.path("trace.json"));
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
{"ph": "X", "name": "transform", "pid": P, "tid": 1, "ts": 1.200, "dur": 0.100, "bind_id": ")" +
          flow +
          R"(", "flow_in": true, "flow_out": true, "args": {"epoch": 1, "batch": 2, "samples": 10}},
{"ph": "X", "name": "copy", "pid": P, "tid": 1, "ts": 1.100, "dur": 0.400, "bind_id": ")" +
          flow +
          R"(", "flow_in": true, "flow_out": true, "args": {"epoch": 1, "batch": 2, "samples": 10}},
{"ph": "X", "name": "wait for batch", "pid": P, "tid": 1, "ts": 1.500, "dur": 1000.500}
]}
)");
}

TEST_CASE("a setting is written with its workers and its prefetch, a depth with its slots",
          "[report]") {
  const test::temp_dir folder;
  ps::trace_snapshot trace;
  trace.tracks.push_back(
      {"penstock tuning", 1, 0, {{ps::trace_stage::setting, 100ns, 900ns, {}, 0, 3, 4}}});
  trace.tracks.push_back(
      {"penstock depth", 1, 0, {{ps::trace_stage::depth, 200ns, 900ns, {}, 0, 0, 0, 5}}});
  write_chrome_trace(trace, folder.path("trace.json"));
  CHECK(bytes_of(folder.path("trace.json")).find(R"("args": {"workers": 3, "prefetch": 4}})") !=
        std::string::npos);
  CHECK(bytes_of(folder.path("trace.json")).find(R"("args": {"slots": 5}})") != std::string::npos);
  write_perfetto(trace, folder.path("trace.pftrace"));
  const perfetto_reader read{bytes_of(folder.path("trace.pftrace"))};
  REQUIRE(read.slices.size() == 2);
  CHECK(read.slices[1].stage == "depth");
  CHECK(read.slices[1].notes == std::map<std::string, std::uint64_t>{{"slots", 5}});
  CHECK(read.slices[0].stage == "setting");
  CHECK(read.slices[0].notes ==
        std::map<std::string, std::uint64_t>{{"workers", 3}, {"prefetch", 4}});
  CHECK(read.slices[0].flow == 0);
}

TEST_CASE("an epoch of MNIST's size fits into a ring, and into a megabyte", "[report]") {
  ps::trace_snapshot trace;
  ps::trace_recorder recorder;
  using digit = ps::record<ps::field<"image", std::uint8_t, 28, 28>>;
  const std::vector<std::uint8_t> images(std::size_t{60000} * 784);
  ps::loader loader{ps::memory_dataset<digit>{images},
                    ps::shuffled{.seed = 1},
                    {.batch_size = 64, .workers = 2, .trace = &recorder}};
  ps::transfer feed{loader, {.trace = &recorder}};
  for (auto& batch : feed.epoch(0)) static_cast<void>(batch);
  trace = recorder.snapshot();
  for (const auto& track : trace.tracks) CHECK(track.lost == 0);
  const ps::detail::perfetto_bytes made{trace};
  CHECK(made.bytes().size() > 300'000);
  CHECK(made.bytes().size() < 1'000'000);
}

TEST_CASE("a file that can't be written is an error with path and number",
          "[report][fault:files-17]") {
  const test::temp_dir folder;
  const auto trace = played();
  const std::string missing = folder.path("missing/trace.json");
  CHECK(failure_of([&] { write_chrome_trace(trace, missing); }) == std::pair{missing, ENOENT});
  CHECK(failure_of([&] { write_perfetto(trace, missing); }) == std::pair{missing, ENOENT});
  const std::string itself = folder.path("");
  CHECK(failure_of([&] { write_perfetto(trace, itself); }) == std::pair{itself, EISDIR});
  const int opened = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (opened >= 0) {
    ::close(opened);
    const std::string full = "/dev/full";
    CHECK(failure_of([&] { write_perfetto(trace, full); }) == std::pair{full, ENOSPC});
    CHECK(std::filesystem::is_character_file(full));  // it was not replaced
  }
  CHECK(files_in(folder) == 0);
}

TEST_CASE("a disk that becomes full leaves the file as it was, and nothing beside it",
          "[report][fault:files-17]") {
  const test::temp_dir folder;
  const std::string path = folder.path("trace.pftrace");
  write_perfetto(played(), path);
  const std::string before = bytes_of(path);
  const auto trace = recorded();

  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit tight{1000, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
  const auto failure = failure_of([&] { write_perfetto(trace, path); });
  CHECK(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(failure == std::pair{path, EFBIG});
  CHECK(bytes_of(path) == before);
  CHECK(files_in(folder) == 1);

  write_perfetto(trace, path);  // now there is room: the old file is replaced
  CHECK(bytes_of(path).size() > before.size());
  CHECK(files_in(folder) == 1);
}

TEST_CASE("times before the clock's zero are numbers of JSON", "[report]") {
  const test::temp_dir folder;
  ps::trace_snapshot trace;
  trace.tracks.push_back({"one", 1, 0, {{ps::trace_stage::step, -1500ns, -200ns, {{0, 0}}, 1}}});
  write_chrome_trace(trace, folder.path("trace.json"));
  const std::string text = bytes_of(folder.path("trace.json"));
  CHECK(text.find("-1.500") != std::string::npos);
  CHECK(text.find(".-") == std::string::npos);
}

TEST_CASE("a link is written through, and stays one", "[report]") {
  const test::temp_dir folder;
  const std::string path = folder.path("link");
  std::error_code refused;
  std::filesystem::create_symlink(folder.write("target", {1, 2, 3}), path, refused);
  if (refused) {
    WARN("not tested: there are no links here");
    return;
  }
  write_perfetto(played(), path);
  CHECK(std::filesystem::is_symlink(path));
  CHECK(bytes_of(folder.path("target")).size() > 100);
}

// For trace_schema.py, which reads the files with others' parsers.
TEST_CASE("traces are written to PENSTOCK_TRACES", "[.][traces]") {
  const char* const folder = std::getenv("PENSTOCK_TRACES");
  if (folder == nullptr) {  // a build that leaves tests out by a tag lists the hidden ones as well
    WARN("not run: PENSTOCK_TRACES names no folder");
    return;
  }
  const auto trace = recorded();
  write_perfetto(trace, std::string{folder} + "/trace.pftrace");
  write_chrome_trace(trace, std::string{folder} + "/trace.json");
}
