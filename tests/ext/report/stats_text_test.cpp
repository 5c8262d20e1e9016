// SPDX-License-Identifier: BSL-1.0
#include <cctype>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

#include <penstock/penstock.hpp>
#include <penstock_ext/report/stats_text.hpp>

#include "support/catch.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

/// A strict JSON reader. Stores numbers and strings by path, such as "read.slowest.0.index".
class json_reader {
 public:
  explicit json_reader(std::string_view text) : text_(text) {
    value("");
    REQUIRE(at_ == text_.size());
  }
  [[nodiscard]] std::string operator[](const std::string& path) const {
    const auto found = values_.find(path);
    return found == values_.end() ? "(nothing)" : found->second;
  }
  [[nodiscard]] std::size_t size() const { return values_.size(); }

 private:
  void value(const std::string& path) {
    if (peek() == '{' || peek() == '[') {
      const bool is_object = peek() == '{';
      const char end = is_object ? '}' : ']';
      ++at_;
      for (std::size_t i = 0; peek() != end; ++i) {
        if (i != 0) expect(", ");
        std::string name = std::to_string(i);
        if (is_object) {
          name = word();
          expect(": ");
        }
        value(path.empty() ? name : path + "." + name);
      }
      ++at_;
    } else if (peek() == '"') {
      keep(path, word());
    } else {
      const std::size_t begin = at_;
      while (std::isalnum(static_cast<unsigned char>(peek())) != 0 || peek() == '-') ++at_;
      const std::string read{text_.substr(begin, at_ - begin)};
      const bool is_word = read == "true" || read == "false" || read == "null";
      REQUIRE((is_word || read.find_first_not_of("0123456789") == std::string::npos));
      REQUIRE_FALSE(read.empty());
      keep(path, read);
    }
  }
  void keep(const std::string& path, const std::string& read) {
    REQUIRE(values_.emplace(path, read).second);
  }
  std::string word() {
    expect("\"");
    const std::size_t begin = at_;
    while (peek() != '"') ++at_;
    return std::string{text_.substr(begin, at_++ - begin)};
  }
  void expect(std::string_view mark) {
    REQUIRE(text_.substr(at_, mark.size()) == mark);
    at_ += mark.size();
  }
  [[nodiscard]] char peek() const {
    REQUIRE(at_ < text_.size());
    return text_[at_];
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::map<std::string, std::string> values_;
};

}  // namespace

TEST_CASE("statistics as JSON contain every value by name", "[report]") {
  ps::loader loader{numbered{30}, ps::sequential{}, {.batch_size = 10, .workers = 2}};
  ps::transfer feed{loader};
  for (auto& batch : feed.epoch(0)) static_cast<void>(batch);
  for (auto& batch : feed.replay({(std::uint64_t{1} << 32) - 1, 0}, ps::batch_count{7}))
    static_cast<void>(batch);
  const auto stats = feed.stats();
  const json_reader json{to_json(stats)};
  CHECK(json["penstock_transfer_stats"] == "1");
  CHECK(json["copies"] == "6");
  CHECK(json["replay.batches"] == "7");
  CHECK(json["replay.ns"] == std::to_string(stats.replay.time.count()));
  CHECK(json["step.samples"] == "30");
  CHECK(json["loader.penstock_loader_stats"] == "1");
  CHECK(json["loader.workers"] == "2");
  CHECK(json["loader.read.samples"] == "60");
  CHECK(json["loader.read.times.p99_ns"] ==
        std::to_string(stats.loader->read.times.quantile(0.99).count()));
  CHECK(json["loader.read.slowest.0.index"] == std::to_string(stats.loader->read.slowest[0].index));
  CHECK(json["loader.wait_for_slot.ns"] ==
        std::to_string(stats.loader->wait_for_slot.time.count()));
  CHECK(json["loader.clock"] == ps::detail::name_of(stats.loader->clock));
  CHECK(json["loader.clock_has_stepped"] == (stats.loader->clock_has_stepped ? "true" : "false"));
  CHECK(json["loader.throttled.count"] != "(nothing)");
  CHECK(json["loader.run_queue_ns"] == std::to_string(stats.loader->run_queue.count()));
  CHECK(json.size() > 60);
}

TEST_CASE("statistics of nothing are texts too", "[report]") {
  const json_reader json{to_json(ps::transfer_stats{})};
  CHECK(json["loader"] == "null");
  CHECK(json_reader{to_json(ps::loader_stats{})}["read.samples"] == "0");
  CHECK(to_text(ps::loader_stats{}).find("slowest") == std::string::npos);
  CHECK(to_text(ps::loader_stats{}).find("announced") == std::string::npos);
  CHECK(to_text(ps::transfer_stats{}).find("loader") == std::string::npos);
  CHECK(to_text(ps::transfer_stats{}).find("replay") == std::string::npos);
  ps::loader_stats crowded;
  CHECK(to_text(crowded).find("without a core") == std::string::npos);
  crowded.run_queue = std::chrono::milliseconds{1};
  CHECK(to_text(crowded).find("without a core") != std::string::npos);
  ps::transfer_stats replayed;
  replayed.replay = {5, std::chrono::milliseconds{1}};
  CHECK(to_text(replayed - ps::transfer_stats{}).find("  replay                        5") !=
        std::string::npos);
  CHECK((replayed + replayed).replay.batches == 10);
}

TEST_CASE("a time is formatted with three digits and a matching unit", "[report]") {
  using ps::detail::short_text;
  CHECK(short_text(std::chrono::nanoseconds{999'499}) == "999 us");
  CHECK(short_text(std::chrono::nanoseconds{999'500}) == "1 ms");
  CHECK(short_text(std::chrono::nanoseconds{999'999'999}) == "1 s");
  CHECK(short_text(std::chrono::nanoseconds{1000}) == "1 us");
  CHECK(short_text(std::chrono::seconds{12'345}) == "12345 s");
}

TEST_CASE("the table has one line per stage with its share of the time", "[report]") {
  ps::loader_stats stats;
  stats.age = std::chrono::seconds{2};
  stats.workers = 3;
  stats.read.samples = 1234;
  stats.read.busy = std::chrono::milliseconds{500};
  stats.read.slowest[0] = {17, std::chrono::microseconds{1234}};
  stats.wait_for_slot = {5, std::chrono::seconds{1}};
  stats.ahead = {100, 7, 80, 40, 2, 1, 200};
  CHECK(json_reader{to_json(stats)}["ahead.bytes_now"] == "40");
  CHECK(json_reader{to_json(stats)}["ahead.source_bytes"] == "200");
  CHECK(to_text(stats).find("announced: 7 samples, 80 bytes, at most 100 at a time; 2 too late, 1 "
                            "failed\n") != std::string::npos);
  std::ostringstream written;
  written << stats;
  const std::string text = written.str();
  CHECK(text == to_text(stats));
  CHECK(text.find("loader, 3 workers, 2 s, clock steady\n") == 0);
  CHECK(text.find("  read                       1234     500 ms   25.0 %  p50 0 ns") !=
        std::string::npos);
  CHECK(text.find("transform") == std::string::npos);
  CHECK(text.find("  wait for slot                 5        1 s   50.0 %\n") != std::string::npos);
  CHECK(text.find("  slowest samples: 17 (1.23 ms)\n") != std::string::npos);

  stats.read.timed_chunks = std::chrono::microseconds{40};
  stats.read.timed_transforms = std::chrono::microseconds{30};
  CHECK(
      to_text(stats).find("    transform                1234     375 ms   18.8 %  of read: map") !=
      std::string::npos);
}
