// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/report/stats_prometheus.hpp>

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

#include <penstock/observe/stats.hpp>
#include <penstock/penstock.hpp>

#include "ext/report/prometheus_reader.hpp"
#include "support/catch.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;
using test::prometheus_reader;

TEST_CASE("every metric is exported to Prometheus in seconds and bytes",
          "[report][fault:files-17]") {
  ps::loader_stats stats;
  stats.loader = 7;
  stats.age = 1h + 2ns;
  stats.workers = 3;
  stats.clock_has_stepped = true;
  stats.read = {.chunks = 10,
                .samples = 11,
                .bytes = 12,
                .busy = 1500ms,
                .timed_chunks = 40us,
                .timed_transforms = 30us,
                .times = {},
                .slowest = {}};
  stats.read.times.counts[20] = 5;
  stats.read.times.total_ticks = 2000;
  stats.batches.counts[10] = 4;
  stats.batches.total_ticks = 3'000'000'000;
  stats.wait_for_slot = {21, 1ns};
  stats.wait_for_copy = {22, 2us};
  stats.wait_for_demand = {23, 3ms};
  stats.wait_for_opener = {24, 4s};
  stats.wait_for_ready = {25, 5s};
  stats.wait_for_lease = {26, 6s};
  stats.wait_while_inactive = {27, 7s};
  stats.ready = {.looks = 31, .sum = 32};
  stats.step = {.batches = 41, .samples = 42, .bytes = 43, .busy = 44ms};
  stats.ahead = {51, 52, 53, 54, 55, 56, 57};
  stats.processor = 45ms;
  stats.run_queue = 46ms;
  stats.minor_faults = 46;
  stats.major_faults = 47;
  stats.throttled = {48, 49ms};
  const prometheus_reader read{to_prometheus(stats)};
  const auto of = [&](const std::string& name, const std::string& more = "") {
    return read["penstock_loader_" + name + "{loader=\"7\"" + more + "}"];
  };
  CHECK(of("age_seconds") == "3600.000000002");
  CHECK(of("workers") == "3");
  CHECK(of("clock_has_stepped") == "1");
  CHECK(of("read_chunks_total") == "10");
  CHECK(of("read_samples_total") == "11");
  CHECK(of("read_bytes_total") == "12");
  CHECK(of("read_seconds_total") == "1.500000000");
  CHECK(of("sample_seconds_count") == "5");
  CHECK(of("sample_seconds_sum") == "0.000002000");
  CHECK(of("batch_seconds_count") == "4");
  CHECK(of("batch_seconds_sum") == "3.000000000");
  std::uint64_t count = 21;
  for (const auto& [stage, time] :
       {std::pair{"slot", "0.000000001"}, std::pair{"copy", "0.000002000"},
        std::pair{"demand", "0.003000000"}, std::pair{"opener", "4.000000000"},
        std::pair{"ready", "5.000000000"}, std::pair{"lease", "6.000000000"},
        std::pair{"inactive", "7.000000000"}}) {
    const std::string label = std::string{",stage=\""} + stage + '"';
    CHECK(of("waits_total", label) == std::to_string(count++));
    CHECK(of("wait_seconds_total", label) == time);
  }
  CHECK(of("ready_batches_count") == "31");
  CHECK(of("ready_batches_sum") == "32");
  CHECK(of("taken_batches_total") == "41");
  CHECK(of("taken_samples_total") == "42");
  CHECK(of("taken_bytes_total") == "43");
  CHECK(of("step_seconds_total") == "0.044000000");
  CHECK(of("processor_seconds_total") == "0.045000000");
  CHECK(of("run_queue_seconds_total") == "0.046000000");
  CHECK(of("page_faults_total", ",kind=\"memory\"") == "46");
  CHECK(of("page_faults_total", ",kind=\"disk\"") == "47");
  CHECK(of("throttled_periods_total") == "48");
  CHECK(of("throttled_seconds_total") == "0.049000000");
  CHECK(of("timed_read_seconds_total") == "0.000040000");
  CHECK(of("timed_transform_seconds_total") == "0.000030000");
  CHECK(of("ahead_max_bytes") == "51");
  CHECK(of("ahead_samples_total") == "52");
  CHECK(of("ahead_bytes_total") == "53");
  CHECK(of("ahead_bytes") == "54");
  CHECK(of("ahead_late_total") == "55");
  CHECK(of("ahead_failures_total") == "56");
  CHECK(of("ahead_source_bytes") == "57");
  CHECK(read.size() == 46);  // no further series
}

TEST_CASE("the metrics of a transfer name its loader and are followed by the loader's metrics",
          "[report]") {
  ps::transfer_stats stats;
  stats.transfer = 2;
  stats.age = 1s;
  stats.copies = 11;
  stats.samples = 12;
  stats.bytes = 13;
  stats.transforms = 14;
  stats.wait_for_batch = {21, 1s};
  stats.wait_for_slot = {22, 2s};
  stats.wait_for_copy = {23, 3s};
  stats.ahead = {.looks = 31, .sum = 32};
  stats.step.batches = 41;
  stats.replay = {51, 52ms};
  stats.device = {61, 62ms, 63ms, 64ms, 65ms};
  const prometheus_reader alone{to_prometheus(stats)};
  CHECK(alone["penstock_transfer_copies_total{transfer=\"2\"}"] == "11");
  CHECK(alone.size() == 25);

  stats.loader = ps::loader_stats{};
  stats.loader->loader = 5;
  const prometheus_reader read{to_prometheus(stats)};
  const auto of = [&](const std::string& name, const std::string& more = "") {
    return read["penstock_transfer_" + name + "{transfer=\"2\",loader=\"5\"" + more + "}"];
  };
  CHECK(of("age_seconds") == "1.000000000");
  CHECK(of("clock_has_stepped") == "0");
  CHECK(of("copies_total") == "11");
  CHECK(of("copied_samples_total") == "12");
  CHECK(of("copied_bytes_total") == "13");
  CHECK(of("transforms_total") == "14");
  CHECK(of("waits_total", ",stage=\"batch\"") == "21");
  CHECK(of("waits_total", ",stage=\"slot\"") == "22");
  CHECK(of("waits_total", ",stage=\"copy\"") == "23");
  CHECK(of("wait_seconds_total", ",stage=\"copy\"") == "3.000000000");
  CHECK(of("ahead_batches_sum") == "32");
  CHECK(of("ahead_batches_count") == "31");
  CHECK(of("taken_batches_total") == "41");
  CHECK(of("replayed_batches_total") == "51");
  CHECK(of("replay_seconds_total") == "0.052000000");
  CHECK(of("device_batches_total") == "61");
  CHECK(of("device_copy_seconds_total") == "0.062000000");
  CHECK(of("device_transform_seconds_total") == "0.063000000");
  CHECK(of("device_idle_seconds_total") == "0.064000000");
  CHECK(of("device_step_seconds_total") == "0.065000000");
  CHECK(read["penstock_loader_workers{loader=\"5\"}"] == "0");
  CHECK(read.size() == 25 + 46);
}

TEST_CASE("several loaders share a page, each family of which begins once", "[report]") {
  ps::loader_stats train;
  train.loader = 1;
  train.workers = 3;
  ps::transfer_stats valid;
  valid.transfer = 7;
  valid.loader = ps::loader_stats{};
  valid.loader->loader = 2;
  ps::transfer_stats again = valid;  // a second transfer with the same loader
  again.transfer = 8;
  ps::prometheus_page page;
  page.add(train, "train").add(valid, "a \"b\", c\\d\ne").add(again).add(train);
  const prometheus_reader read{page.text()};
  const std::string name = R"(,name="a \"b\", c\\d\ne")";
  CHECK(read["penstock_loader_workers{loader=\"1\",name=\"train\"}"] == "3");
  CHECK(read["penstock_loader_workers{loader=\"2\"" + name + "}"] == "0");
  CHECK(read["penstock_loader_waits_total{loader=\"2\"" + name + ",stage=\"slot\"}"] == "0");
  CHECK(read["penstock_transfer_copies_total{transfer=\"7\",loader=\"2\"" + name + "}"] == "0");
  CHECK(read["penstock_transfer_copies_total{transfer=\"8\",loader=\"2\"}"] == "0");
  CHECK(read.size() == 2 * 46 + 2 * 25);
  CHECK(prometheus_reader{ps::prometheus_page{}.text()}.size() == 0);
}

TEST_CASE("the metrics of a running loop, and the largest values, are valid", "[report]") {
  ps::loader loader{numbered{30}, ps::sequential{}, {.batch_size = 10, .workers = 2}};
  ps::transfer feed{loader};
  for (auto& batch : feed.epoch(0)) {
    static_cast<void>(batch);
    const prometheus_reader during{to_prometheus(feed.stats())};
    CHECK(during.families().size() > 20);
  }
  const auto stats = feed.stats();
  const prometheus_reader read{to_prometheus(stats)};
  const std::string labels = "{loader=\"" + std::to_string(stats.loader->loader) + "\"}";
  CHECK(read["penstock_loader_read_samples_total" + labels] == "30");
  CHECK(read["penstock_loader_taken_batches_total" + labels] == "3");

  ps::loader_stats max;
  max.loader = std::numeric_limits<std::uint64_t>::max();
  max.read.samples = max.loader;
  max.age = std::chrono::nanoseconds::max();
  max.processor = -1ns;  // a value that a clock cannot produce
  const std::string label = "{loader=\"18446744073709551615\"}";
  const prometheus_reader large{to_prometheus(max)};
  CHECK(large["penstock_loader_read_samples_total" + label] == "18446744073709551615");
  CHECK(large["penstock_loader_age_seconds" + label] == "9223372036.854775807");
  CHECK(large["penstock_loader_processor_seconds_total" + label] == "0.000000000");
}
