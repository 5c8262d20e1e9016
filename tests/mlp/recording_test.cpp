// SPDX-License-Identifier: BSL-1.0
#include "recording.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include <penstock/penstock.hpp>

#include "augment.hpp"
#include "digits.hpp"
#include "host_backend.hpp"
#include "mlp/replaying_backend.hpp"
#include "support/catch.hpp"

namespace {

namespace ps = penstock;

struct drawn {
  static constexpr std::size_t count = 203;
  std::vector<std::uint8_t> images = std::vector<std::uint8_t>(count * 784);
  std::vector<std::uint8_t> labels = std::vector<std::uint8_t>(count);

  drawn() {
    for (std::size_t i = 0; i < count; ++i) {
      labels[i] = static_cast<std::uint8_t>(i % 10);
      mlp::draw_digit(labels[i], i, std::span<std::uint8_t, 784>{&images[i * 784], 784});
    }
  }
};

mlp::options chosen_for(std::size_t batch, std::size_t workers) {
  mlp::options chosen;
  chosen.epochs = 3;  // of which one is recorded
  chosen.batch = batch;
  chosen.workers = workers;
  chosen.prefetch = 2;
  return chosen;
}

template <class Backend = mlp::host_backend>
std::array<mlp::recorded_loop, 2> recorded(const mlp::options& chosen,
                                           const ps::cpu_device& device = {},
                                           const Backend& backend = {}) {
  const drawn digits;
  const ps::memory_dataset<ps::digit_record> plain{digits.images, digits.labels};
  const auto data = plain | ps::map<ps::digit_record>(mlp::augment{});
  return mlp::record_loops(data, device, backend, device.inline_stream(), chosen);
}

struct first_and_last {
  double begin;
  double end;
};

/// When each batch was in a stage, whichever lanes did it.
std::map<std::size_t, first_and_last> times_in(const mlp::recorded_loop& loop, mlp::stage kind) {
  std::map<std::size_t, first_and_last> times;
  for (const mlp::lane& lane : loop.lanes) {
    if (lane.kind != kind) continue;
    for (const mlp::span& s : lane.spans) {
      auto& known = times.emplace(s.batch, first_and_last{s.begin, s.end}).first->second;
      known.begin = std::min(known.begin, s.begin);
      known.end = std::max(known.end, s.end);
    }
  }
  return times;
}

/// Every batch is read, then copied, then computed, and no lane does two things at once.
void check_consistent(const mlp::recorded_loop& loop, std::size_t batches) {
  CAPTURE(mlp::name_of(loop.fed_by), batches);
  const auto reads = times_in(loop, mlp::stage::read);
  const auto copies = times_in(loop, mlp::stage::copy);
  const auto steps = times_in(loop, mlp::stage::compute);
  REQUIRE(reads.size() == batches);
  REQUIRE(copies.size() == batches);
  REQUIRE(steps.size() == batches);
  for (std::size_t b = 0; b < batches; ++b) {
    CAPTURE(b);
    CHECK(reads.at(b).begin >= 0);
    CHECK(reads.at(b).begin < reads.at(b).end);
    CHECK(reads.at(b).end <= copies.at(b).begin);
    CHECK(copies.at(b).begin <= copies.at(b).end);
    CHECK(copies.at(b).end <= steps.at(b).begin);
    CHECK(steps.at(b).begin < steps.at(b).end);
  }
  for (const mlp::lane& lane : loop.lanes) {
    CAPTURE(lane.name);
    for (std::size_t i = 1; i < lane.spans.size(); ++i) {
      CHECK(lane.spans[i - 1].end <= lane.spans[i].begin);
    }
  }
}

}  // namespace

TEST_CASE("twenty batches of each loop are recorded, in the order of their stages", "[mlp]") {
  const std::size_t workers = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{3});
  CAPTURE(workers);
  const auto loops = recorded(chosen_for(8, workers));  // 26 batches
  REQUIRE(loops[0].fed_by == mlp::technique::serial);
  REQUIRE(loops[1].fed_by == mlp::technique::overlapped);
  check_consistent(loops[0], 20);
  check_consistent(loops[1], 20);

  CHECK(loops[0].lanes.size() == 3);
  REQUIRE(loops[1].lanes.size() == std::max<std::size_t>(1, workers) + 2);
  CHECK(loops[1].lanes.front().name == (workers <= 1 ? "read" : "read, worker 1"));
}

TEST_CASE("in the serial loop nothing overlaps", "[mlp]") {
  const auto loop = recorded(chosen_for(8, 1))[0];
  const auto reads = times_in(loop, mlp::stage::read);
  const auto steps = times_in(loop, mlp::stage::compute);
  for (std::size_t b = 1; b < 20; ++b) CHECK(steps.at(b - 1).end <= reads.at(b).begin);
}

TEST_CASE("an epoch of less than twenty batches is recorded whole, and no more than it", "[mlp]") {
  const auto loops = recorded(chosen_for(16, 2));  // 12 batches, and a short one
  check_consistent(loops[0], 13);
  check_consistent(loops[1], 13);
}

TEST_CASE("copies that take time are recorded in stream order", "[mlp]") {
  ps::cpu_device_options slow;
  slow.copy_bytes_per_second = 50e6;
  check_consistent(recorded(chosen_for(8, 1), ps::cpu_device{slow})[1], 20);
}

TEST_CASE("warm-up is not recorded", "[mlp]") {
  const test::replaying_backend<> replaying;
  const auto loops = recorded(chosen_for(8, 1), {}, replaying);
  REQUIRE(replaying.replays() > 2 * 26);  // it did rehearse
  check_consistent(loops[0], 20);
  check_consistent(loops[1], 20);
}

TEST_CASE("a stamp in a busy stream gives the time when the stream got there", "[mlp]") {
  const ps::cpu_device device;
  auto stream = device.make_stream();
  mlp::host_stamp before;
  mlp::host_stamp behind;
  before.set(device, stream);
  std::atomic<bool> go{false};
  stream.launch([&] { go.wait(false); });
  behind.set(device, stream);
  mlp::host_stamp now;
  now.set(device, device.inline_stream());
  const double held_until = now.microseconds_since(before);
  go = true;
  go.notify_one();
  device.synchronize(stream);
  CHECK(held_until >= 0);
  CHECK(behind.microseconds_since(before) >= held_until);
}
