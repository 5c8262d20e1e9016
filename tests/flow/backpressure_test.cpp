// SPDX-License-Identifier: BSL-1.0
// Whoever can't go on sleeps: workers without a slot, a consumer without a batch. A thread that
// sleeps in the kernel uses no core; one that wakes to look again would show in its count of
// switches.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <penstock/penstock.hpp>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

std::vector<long> threads() {
  std::vector<long> all;
  for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
    all.push_back(std::stol(task.path().filename().string()));
  }
  std::sort(all.begin(), all.end());
  return all;
}

/// The threads that are there before a test begins any.
std::vector<long> threads_before() {
  std::thread{[] {}}.join();  // with its first thread, ThreadSanitizer begins one of its own
  return threads();
}

/// The threads that are in `after` alone.
std::vector<long> new_threads(const std::vector<long>& before, const std::vector<long>& after) {
  std::vector<long> fresh;
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                      std::back_inserter(fresh));
  return fresh;
}

struct glance {
  bool asleep = false;         // in the kernel
  std::uint64_t switches = 0;  // it can't have run without one, asleep before and after
  bool operator==(const glance&) const = default;
};

glance look_at(long thread) {
  std::ifstream file{"/proc/self/task/" + std::to_string(thread) + "/status"};
  glance seen;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("State:")) seen.asleep = line.find("S (sleeping)") != std::string::npos;
    const auto colon = line.find("ctxt_switches:");
    if (colon != std::string::npos) seen.switches += std::stoull(line.substr(colon + 14));
  }
  return seen;
}

std::vector<glance> look_at(const std::vector<long>& all) {
  std::vector<glance> each;
  for (const long thread : all) each.push_back(look_at(thread));
  return each;
}

/// Whether all of them come to rest: asleep, and not given a core while this thread yields its own
/// over and over. One that sleeps for a moment, for a lock, is looked at again; one that wakes now
/// and then to look for itself never rests, and reaches the deadline.
bool come_to_rest(const std::vector<long>& all) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{60};
  while (std::chrono::steady_clock::now() < deadline) {
    const auto then = look_at(all);
    for (int i = 0; i < 30'000; ++i) std::this_thread::yield();
    const bool sleep = std::all_of(then.begin(), then.end(), [](auto& one) { return one.asleep; });
    if (sleep && look_at(all) == then) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("workers whose slots are all full sleep until the consumer goes on", "[flow]") {
  const bool in_order = GENERATE(true, false);
  const numbered data{10'000};
  const auto before = threads_before();
  ps::loader loader{
      data,
      ps::sequential{},
      {.batch_size = 10, .workers = 4, .prefetch = 5, .in_order = in_order, .run = 3}};
  const auto workers = new_threads(before, threads());
  REQUIRE(workers.size() == 4);
  const auto bytes = loader.footprint().bytes;
  auto range = loader.epoch(0);
  auto it = range.begin();
  // One slot at the consumer and five ahead of it: that many batches are read, and no sample more.
  data.state->arrived.wait([](std::uint32_t count) { return count >= 60; });
  CHECK(come_to_rest(workers));
  CHECK(look_at(workers.front()).switches > 0);
  CHECK(data.state->arrived.load() == 60);
  CHECK(new_threads(before, threads()) == workers);
  CHECK(loader.footprint().bytes == bytes);

  std::uint64_t batches = 1;
  for (++it; it != range.end(); ++it) ++batches;
  CHECK(batches == 1000);
}

TEST_CASE("a stalled consumer holds back its copies and its source", "[flow]") {
  const ps::cpu_device device;
  auto stream = device.make_stream();
  const numbered data{10'000};
  ps::loader loader{
      data, ps::sequential{}, device, {.batch_size = 10, .workers = 2, .prefetch = 3}};
  ps::transfer feed{loader, stream, {.depth = 3}};
  auto range = feed.epoch(0);
  auto it = range.begin();
  // Nothing is issued but by the consumer. What the loader has is what fits into its slots, beside
  // what was copied already: no more than the slots of both.
  constexpr std::uint32_t most = 10 * (4 + 3);
  data.state->arrived.wait([](std::uint32_t count) { return count >= 40; });
  auto others = threads();
  others.erase(std::find(others.begin(), others.end(), this_thread_number()));
  CHECK(come_to_rest(others));
  const auto arrived = data.state->arrived.load();
  CHECK(arrived <= most);
  CHECK(arrived >= 40);
  std::uint64_t batches = 1;
  for (++it; it != range.end(); ++it) ++batches;
  CHECK(batches == 1000);
}

TEST_CASE("a consumer whose batch is not ready sleeps until it is", "[flow]") {
  const bool in_order = GENERATE(true, false);
  const numbered data{100};
  data.state->gate.store(1);
  const auto before = threads_before();
  ps::loader loader{
      data, ps::sequential{}, {.batch_size = 10, .workers = 2, .in_order = in_order, .run = 5}};
  const auto workers = new_threads(before, threads());
  const long consumer = this_thread_number();
  std::vector<long> all = workers;
  all.push_back(consumer);
  bool rested = false;
  std::thread producer{[&] {
    data.state->arrived.wait([](std::uint32_t count) { return count == 2; });
    rested = come_to_rest(all);
    data.state->gate.store(0);
  }};
  std::uint64_t samples = 0;
  for (auto& batch : loader.epoch(0)) samples += batch.size();
  producer.join();
  CHECK(rested);
  CHECK(samples == 100);
}
