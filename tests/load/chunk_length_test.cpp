// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/support/plan.hpp>

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include <penstock/load/loader.hpp>

#include "support/catch.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;
using ps::detail::chunk_length;

namespace {

constexpr std::uint64_t microsecond = 1'000;  // in ticks
constexpr std::uint64_t millisecond = 1'000'000;
constexpr std::uint64_t ten_milliseconds = 10 * millisecond;

}  // namespace

TEST_CASE("chunks are short until a read was timed", "[load]") {
  const chunk_length run{{.batch_size = 32, .workers = 16}, 4, ten_milliseconds};
  CHECK(run.max_samples() == 32);
  CHECK(run.samples() == 1);
  CHECK(run.is_timed(0));
  CHECK(run.is_timed(5));
}

TEST_CASE("many small, fast samples are claimed at a time", "[load][promise:bounded-13]") {
  chunk_length run{{.batch_size = 1000, .workers = 16}, 100, ten_milliseconds};
  run.record(10, 200);
  CHECK(run.samples() == 41);  // just enough samples to fill a page
  run.record(10, 0);
  CHECK(run.samples() == 41);
  CHECK(run.is_timed(16));
  CHECK_FALSE(run.is_timed(17));
}

TEST_CASE("slow samples are shared evenly, however small they are", "[load][promise:bounded-13]") {
  chunk_length run{{.batch_size = 64, .workers = 8}, 4, ten_milliseconds};
  run.record(4, 8 * millisecond);
  CHECK(run.samples() == 4);
  run.record(4, 4 * microsecond);  // chunks grow when reads become fast
  CHECK(run.samples() == 10);
  run.record(4, 40);
  CHECK(run.samples() == 64);
}

TEST_CASE("a reader that lost its core once does not count as slow", "[load][promise:bounded-13]") {
  chunk_length run{{.batch_size = 64, .workers = 8}, 4, ten_milliseconds};
  run.record(64, 64 * 20);
  CHECK(run.samples() == 64);
  run.record(64, 100 * millisecond);
  CHECK(run.samples() == 31);
  run.record(31, 60 * millisecond);  // another slow read shrinks chunks further
  run.record(4, 8 * millisecond);
  CHECK(run.samples() == 4);
}

TEST_CASE("reads with a fixed chunk length are not timed", "[load]") {
  const std::size_t sample = 1 << 20;
  CHECK_FALSE(chunk_length{{.batch_size = 64, .workers = 8}, sample, ten_milliseconds}.is_timed(0));
  CHECK_FALSE(chunk_length{{.batch_size = 64, .workers = 1}, 4, ten_milliseconds}.is_timed(0));
  CHECK_FALSE(chunk_length{{.batch_size = 64, .workers = 0}, 4, ten_milliseconds}.is_timed(0));
  CHECK_FALSE(
      chunk_length{{.batch_size = 64, .workers = 8, .tuning = {.chunk = 7}}, 4, ten_milliseconds}
          .is_timed(0));
  CHECK(chunk_length{{.batch_size = 64, .workers = 8, .tuning = {.chunk = 7}}, 4, ten_milliseconds}
            .samples() == 7);
}

TEST_CASE("all workers share the first batch, however small its samples are",
          "[load][promise:bounded-13]") {
  const numbered data{320};
  data.state->gate.store(1);
  ps::loader loader{data, ps::sequential{}, {.batch_size = 32, .workers = 16, .prefetch = 1}};
  std::thread opener{[&] {
    // Every read blocks at the gate. Sixteen simultaneous reads show that sixteen workers share
    // batch 0.
    data.state->arrived.wait([](std::uint32_t count) { return count == 16; });
    CHECK(data.state->running == 16);
    data.state->gate.store(0);
  }};
  std::uint64_t next = 0;
  for (auto& batch : loader.epoch(0)) {
    for (const std::uint64_t label : labels_of(batch)) CHECK(label == next++);
  }
  CHECK(next == 320);
  opener.join();
}
