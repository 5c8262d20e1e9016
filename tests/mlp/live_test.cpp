// SPDX-License-Identifier: BSL-1.0
#include "live.hpp"

#include <chrono>
#include <string>

#include "support/catch.hpp"

namespace {

using namespace std::chrono_literals;

/// A tenth of a second of a loop on two workers that nobody has waited in.
mlp::live_moment some_moment() {
  penstock::transfer_stats fed;
  fed.age = 100ms;
  fed.loader = penstock::loader_stats{};
  fed.loader->workers = 2;
  fed.loader->ready = {.looks = 10, .sum = 40};
  return {.label = "overlapped",
          .step = 420,
          .steps = 1000,
          .steps_since = 200,
          .seconds = 0.1,
          .floor = 0.0004,
          .slots = 9,
          .fed = fed};
}

}  // namespace

TEST_CASE("the live line says rate, distance from the floor, who waits, and what is ready",
          "[mlp]") {
  CHECK(mlp::live_text(some_moment(), 200) ==
        "overlapped  42 %  2000 batches/s, 1.25x floor [###..] nobody waits");
}

TEST_CASE("the live line names the longest wait, the loop's first", "[mlp]") {
  auto now = some_moment();
  now.fed->loader->wait_for_slot = {1, 50ms};
  now.fed->loader->wait_for_demand = {1, 40ms};
  CHECK(mlp::who_waits(*now.fed) == "workers wait 25 %: slots");  // of both workers' time
  now.fed->loader->wait_for_demand = {1, 60ms};
  CHECK(mlp::who_waits(*now.fed) == "workers wait 30 %: loop");
  now.fed->loader->wait_for_copy = {1, 80ms};
  CHECK(mlp::who_waits(*now.fed) == "workers wait 40 %: copies");
  now.fed->wait_for_batch = {1, 4ms};
  CHECK(mlp::who_waits(*now.fed) == "workers wait 40 %: copies");
  now.fed->wait_for_batch = {1, 6ms};
  CHECK(mlp::who_waits(*now.fed) == "loop waits 6 %: batches");
  now.fed->wait_for_copy = {1, 7ms};
  CHECK(mlp::who_waits(*now.fed) == "loop waits 7 %: copies");
  now.fed->wait_for_slot = {1, 300ms};
  CHECK(mlp::who_waits(*now.fed) == "loop waits 100 %: leases");
  auto alone = some_moment();
  alone.fed->loader->workers = 0;
  alone.fed->wait_for_batch = {1, 90ms};
  CHECK(mlp::who_waits(*alone.fed) == "loop waits 90 %: reading");
  alone.fed->wait_for_batch = {};
  CHECK(mlp::who_waits(*alone.fed) == "nobody waits");
}

TEST_CASE("the live line of a loop that nothing feeds is a bar", "[mlp]") {
  mlp::live_moment now{.label = "serial", .step = 30, .steps = 40};
  CHECK(mlp::live_text(now, 200) == "serial      75 % [###############.....]");
  now.seconds = 0.5;
  now.steps_since = 30;
  CHECK(mlp::live_text(now, 200) == "serial      75 %    60 batches/s [###############.....]");
  CHECK(mlp::live_text({}, 200) == "             0 % [....................]");
}

TEST_CASE("the live line leaves out what is not known, and fits its width", "[mlp]") {
  auto now = some_moment();
  const std::string whole = mlp::live_text(now, 200);
  for (const std::size_t width : {0U, 1U, 30U, 60U}) {
    CHECK(mlp::live_text(now, width) == whole.substr(0, width));
  }
  now.floor = 0;
  now.fed->loader->ready = {};
  CHECK(mlp::live_text(now, 200) == "overlapped  42 %  2000 batches/s nobody waits");
  now.fed->loader->ready = {.looks = 1, .sum = 4};
  CHECK(mlp::live_text(now, 200) == "overlapped  42 %  2000 batches/s [###..] nobody waits");
  now.slots = 1;
  CHECK(mlp::live_text(now, 200) == "overlapped  42 %  2000 batches/s nobody waits");
  now.fed->loader.reset();  // some other source
  CHECK(mlp::live_text(now, 200) == "overlapped  42 %  2000 batches/s");
  now.fed->age = 0ns;
  now.fed->wait_for_batch = {1, 1ms};
  CHECK(mlp::live_text(now, 200) == "overlapped  42 %  2000 batches/s");
}

TEST_CASE("a bar is full and empty at its ends, and never longer", "[mlp]") {
  CHECK(mlp::bar_of(0, 4) == "[....]");
  CHECK(mlp::bar_of(0.5, 4) == "[##..]");
  CHECK(mlp::bar_of(1, 4) == "[####]");
  CHECK(mlp::bar_of(7, 4) == "[####]");
  CHECK(mlp::bar_of(-1, 4) == "[....]");
  CHECK(mlp::bar_of(0.5, 0) == "[]");
}
