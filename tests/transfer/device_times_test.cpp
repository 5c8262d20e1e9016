// SPDX-License-Identifier: BSL-1.0
// Tests `transfer_options::instrumentation.time_device`.
#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/transfer/detail/device_timer.hpp>
#include <penstock/transfer/transfer.hpp>
#include <penstock_ext/report/stats_text.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/gated_device.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;

namespace {

using timed_record = ps::record<ps::field<"x", float, 1000>>;

struct timed_data {
  using record_type = timed_record;
  std::uint64_t count = 2000;
  [[nodiscard]] std::uint64_t size() const { return count; }
  static void read(std::uint64_t i, ps::sample<timed_record> out) {
    ps::get<"x">(out)[0] = static_cast<float>(i);
  }
};

// A CPU device with a simulated clock. Recording an event advances the clock by 1 ms.
struct counting_device : ps::cpu_device {
  struct event_type : ps::cpu_event {
    event_type() = default;
    explicit event_type(ps::cpu_event&& event) : ps::cpu_event(std::move(event)) {}
    std::int64_t at = -1;
    bool timed = false;
  };
  struct state {
    std::int64_t now = 0;
    int events = 0;
    int records = 0;
    int fails_at = -1;  // index of the record call that fails
  };
  std::shared_ptr<state> played = std::make_shared<state>();

  [[nodiscard]] event_type make_event(ps::event_wait waits = ps::event_wait::by_host) const {
    event_type made{ps::cpu_device::make_event(ps::event_wait::by_host)};
    made.timed = waits == ps::event_wait::timed;
    played->events += made.timed ? 1 : 0;
    return made;
  }
  void record(event_type& event, stream_ref stream) const {
    if (event.timed) {
      if (played->records++ == played->fails_at) throw std::runtime_error("no record");
      event.at = ++played->now;
    }
    ps::cpu_device::record(event, stream);
  }
  [[nodiscard]] std::chrono::nanoseconds elapsed(const event_type& begin,
                                                 const event_type& end) const {
    REQUIRE(begin.timed);
    REQUIRE(end.timed);
    REQUIRE(begin.at >= 0);
    return std::chrono::milliseconds{end.at - begin.at};
  }
  void copy_async(void* to, const void* from, std::size_t bytes, stream_ref stream) const {
    played->now += 10;
    ps::cpu_device::copy_async(to, from, bytes, stream);
  }
};
static_assert(ps::device<counting_device>);
static_assert(ps::times_work<counting_device>);
static_assert(ps::times_work<ps::cpu_device>);
static_assert(!ps::times_work<gated_device>);

}  // namespace

TEST_CASE("a timing event of the CPU device records when its stream reached it", "[device]") {
  const ps::cpu_device device{{.launch_latency = 1us}};
  const ps::cpu_device plain;
  for (const ps::cpu_device& one : {device, plain}) {
    const auto stream = one.make_stream();
    auto begin = one.make_event(ps::event_wait::timed);
    auto middle = one.make_event(ps::event_wait::timed);
    auto end = one.make_event(ps::event_wait::timed);
    const auto before = std::chrono::steady_clock::now();
    one.record(begin, stream);
    std::chrono::steady_clock::time_point worked;
    stream.launch([&worked] {
      const auto until = std::chrono::steady_clock::now() + 2ms;
      while ((worked = std::chrono::steady_clock::now()) < until) {
      }
    });
    one.record(middle, stream);
    one.record(end, stream);
    one.synchronize(end);
    const auto after = std::chrono::steady_clock::now();
    CHECK(one.elapsed(begin, middle) >= 2ms);
    CHECK(one.elapsed(middle, end) >= 0ns);
    CHECK(one.elapsed(begin, end) <= after - before);
    CHECK(one.elapsed(begin, end) == one.elapsed(begin, middle) + one.elapsed(middle, end));

    // An event on the stream of the calling thread.
    auto own = one.make_event(ps::event_wait::timed);
    one.record(own, one.inline_stream());
    CHECK(one.elapsed(end, own) >= 0ns);
  }
}

TEST_CASE("the device times the copy, transform, idle time and step of some batches",
          "[transfer]") {
  const counting_device device;
  ps::loader loader{timed_data{}, ps::sequential{}, device, {.batch_size = 10, .workers = 0}};
  std::uint64_t batches = 0;
  const auto run = [&](auto& feed) {
    for (auto& batch : feed.epoch(0)) {
      static_cast<void>(batch);
      device.played->now += 100;  // duration of the step
      ++batches;
    }
  };
  {
    ps::transfer feed{loader, {.depth = 1, .instrumentation = {.time_device = true}}};
    CHECK(device.played->events == 7);
    run(feed);
    REQUIRE(batches == 200);
    const ps::transfer_stats stats = feed.stats();
    // The timer measures one of 32 copies. The measured times are available one batch after the
    // step.
    CHECK(stats.device.batches == 6);
    CHECK(stats.device.copy == 6 * 11ms);  // 10 ms for each copy and 1 ms for each record
    CHECK(stats.device.idle == 6 * 13ms);  // with a depth of 1 the idle time includes the copy
    CHECK(stats.device.step == 6 * 101ms);
    CHECK(stats.device.transform == 0ns);
    CHECK(stats.device.busy() > 0.88);
    CHECK(stats.device.busy() < 0.89);
    CHECK((feed.stats() - stats).device.batches == 0);
    CHECK((stats + stats).device.step == 6 * 202ms);
    const std::string json = R"("device": {"batches": 6, "copy_ns": 66000000, "transform_ns": 0, )"
                             R"("idle_ns": 78000000, "step_ns": 606000000})";
    CHECK(to_json(stats).find(json) != std::string::npos);
    CHECK(to_text(stats).find("means of 6 timed batches: copy 11 ms, transform") !=
          std::string::npos);
  }
  const auto twice = [&](auto in, auto out, ps::cpu_stream_ref) {
    device.played->now += 1000;
    ps::get<"x">(out)(0, 0) = ps::get<"x">(in)(0, 0);
  };
  ps::transfer feed{loader,
                    device,
                    ps::on_stream<timed_record>(twice),
                    {.instrumentation = {.time_device = true}}};
  run(feed);
  CHECK(feed.stats().device.batches == 6);
  CHECK(feed.stats().device.transform == 6 * 1001ms);
  CHECK(feed.stats().device.copy == 6 * 11ms);
}

TEST_CASE("without the option nothing is timed, and no event is made for it", "[transfer]") {
  const counting_device device;
  ps::loader loader{timed_data{}, ps::sequential{}, device, {.batch_size = 10}};
  ps::transfer feed{loader};
  for (auto& batch : feed.epoch(0)) static_cast<void>(batch);
  CHECK(device.played->events == 0);
  CHECK(feed.stats().device.batches == 0);
  CHECK(feed.stats().device.busy() == 0);
}

TEST_CASE("a range that ends before its timed batch leaves no wrong time", "[transfer]") {
  const counting_device device;
  ps::loader loader{timed_data{}, ps::sequential{}, device, {.batch_size = 10, .workers = 0}};
  ps::transfer feed{loader, {.depth = 3, .instrumentation = {.time_device = true}}};
  for (std::uint64_t epoch = 0; epoch < 40; ++epoch) {
    std::uint64_t batches = 0;
    for (auto& batch : feed.epoch(epoch)) {
      static_cast<void>(batch);
      device.played->now += 100;
      if (++batches == 5 + epoch % 30) break;
    }
    device.played->now += 1'000'000;  // idle time between two ranges
  }
  const ps::device_stats said = feed.stats().device;
  CHECK(said.batches == 20);
  CHECK(said.idle < 1'000'000ms);
  CHECK(said.step == static_cast<std::int64_t>(said.batches) * 101ms);
}

TEST_CASE("only the chosen batch is timed", "[transfer]") {
  const counting_device device;
  const auto stream = device.inline_stream();
  ps::detail::device_timer<counting_device> timer{device};
  const auto batch = [](std::uint64_t epoch, std::uint64_t number) {
    return ps::batch_info{.epoch = epoch, .batch = number};
  };
  const auto copy = [&](const ps::batch_info& one) {
    timer.choose(one);
    timer.begin_copy(stream);
    device.played->now += 10;
    timer.end_copy(stream);
    timer.end_choice();
  };
  const auto body = [&](const ps::batch_info& one, std::int64_t takes) {
    timer.begin_step(stream, one);
    device.played->now += takes;
    return timer.end_step(stream);
  };
  for (std::uint64_t number = 0; number < 32; ++number) copy(batch(1, number));
  copy(batch(1, 32));  // the timer does not choose another batch while it measures one
  CHECK(device.played->records == 2);
  CHECK_FALSE(body(batch(1, 30), 1000));
  CHECK_FALSE(body(batch(0, 31), 2000));  // the batch is from another epoch
  const bool is_abandoned = GENERATE(false, true);
  if (is_abandoned) {
    timer.abandon();
    CHECK_FALSE(body(batch(1, 31), 3000));
    copy(batch(2, 0));
    CHECK_FALSE(body(batch(2, 0), 100));
  } else {
    CHECK_FALSE(body(batch(1, 31), 100));
  }
  const auto times = body(batch(1, 32), 5000);
  REQUIRE(times);
  CHECK(times->batches == 1);
  CHECK(times->copy == 11ms);
  CHECK(times->step == 101ms);
  CHECK(times->transform == 0ns);
  // After `abandon` the idle time includes the copy.
  CHECK(times->idle == (is_abandoned ? 13ms : 1ms));
  CHECK_FALSE(body(batch(1, 33), 100));
}

TEST_CASE("the time between two ranges does not count as idle time", "[transfer]") {
  const counting_device device;
  ps::loader loader{timed_data{310}, ps::sequential{}, device, {.batch_size = 10, .workers = 0}};
  ps::transfer feed{loader, {.depth = 1, .instrumentation = {.time_device = true}}};
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : feed.epoch(epoch)) static_cast<void>(batch);
    device.played->now += 1'000'000;
  }
  // The timer can measure only the second batch of the second epoch, because the idle time before
  // the first batch is unknown.
  CHECK(feed.stats().device.batches == 1);
  CHECK(feed.stats().device.idle == 13ms);
}

TEST_CASE("a failed timing ends the measurement, and the loop continues", "[transfer]") {
  const int fails_at = GENERATE(0, 1, 2, 3, 4);
  const counting_device device;
  device.played->fails_at = fails_at;
  ps::loader loader{timed_data{}, ps::sequential{}, device, {.batch_size = 10, .workers = 0}};
  ps::transfer feed{loader, {.depth = 1, .instrumentation = {.time_device = true}}};
  std::uint64_t batches = 0;
  for (auto& batch : feed.epoch(0)) batches += batch.size() / 10;
  CHECK(batches == 200);
  CHECK(feed.stats().device.batches == 0);
  CHECK(device.played->records == fails_at + 1);
}

TEST_CASE("time_device is rejected for a device without a clock", "[transfer]") {
  const gated_device device;
  ps::loader loader{timed_data{}, ps::sequential{}, device, {.batch_size = 10}};
  const auto rejected = test::error_of<ps::option_error>([&] {
    ps::transfer feed{loader, device.inline_stream(), {.instrumentation = {.time_device = true}}};
  });
  CHECK(rejected.option() == "instrumentation.time_device");
}
