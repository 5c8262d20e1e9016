// SPDX-License-Identifier: BSL-1.0
#include <penstock/device/stream_timeline.hpp>

#include <cstddef>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/gated_device.hpp"

namespace ps = penstock;

using timeline_type = ps::detail::stream_timeline<gated_device>;

namespace {

/// A stream whose work can be held, and its timeline.
struct marked_stream {
  gated_device device{};
  gated_device::stream_type stream = device.make_stream();
  timeline_type timeline;

  explicit marked_stream(std::size_t events = 2)
      : timeline(device, stream, events, ps::event_wait::by_host) {}
};

}  // namespace

TEST_CASE("points are numbered in the order of their marks", "[device]") {
  marked_stream on;
  CHECK(on.timeline.mark().at == 1);
  CHECK(on.timeline.mark(ps::detail::capture_check::done).at == 2);
  CHECK(on.timeline.mark().at == 3);
}

TEST_CASE("marks that follow one another may leave out the lock", "[device]") {
  const ps::cpu_device device;
  auto stream = device.make_stream();
  ps::detail::stream_timeline<ps::cpu_device, ps::detail::no_lock> timeline{
      device, stream, 1, ps::event_wait::by_streams};
  CHECK(timeline.mark().at == 1);
  timeline.wait(timeline.mark().at);
}

TEST_CASE("a point that is known to be reached costs no call of the device", "[device]") {
  marked_stream on;
  auto other = on.device.make_stream();
  const auto first = on.timeline.mark();
  const auto second = on.timeline.mark();
  on.timeline.wait(second.at);
  on.device.fail_synchronize(0);
  on.device.fail_query(0);
  on.timeline.wait(first.at);
  on.timeline.wait(second.at);
  CHECK(on.timeline.reached(first.at));
  timeline_type::point known = 0;
  on.timeline.wait(second.at, other, known);
  const auto third = on.timeline.mark();
  CHECK_THROWS_AS(on.timeline.reached(third.at), device_fault);
  CHECK_THROWS_AS(on.timeline.wait(third.at), device_fault);
  on.timeline.wait(third.at);  // the fault was not mistaken for the end of the work
}

TEST_CASE("a query remembers the point that it found reached", "[device]") {
  marked_stream on;
  const auto end = on.timeline.mark();
  while (!on.timeline.reached(end.at)) std::this_thread::yield();
  on.device.fail_query(0);
  CHECK(on.timeline.reached(end.at));
}

TEST_CASE("a rejected mark is waited for, reported once, and followed by others",
          "[device][fault:devices-5]") {
  marked_stream on;
  int done = 0;
  on.stream.launch([&done] { done = 1; });
  on.device.fail_record(0);
  const auto rejected = on.timeline.mark();
  CHECK(done == 1);
  CHECK(rejected.at == 0);
  CHECK_FALSE(rejected.is_lost);
  CHECK_THROWS_AS(rejected.rethrow_error(), device_fault);
  CHECK(on.timeline.reached(rejected.at));
  const auto next = on.timeline.mark();
  next.rethrow_error();
  CHECK(next.at == 1);
}

TEST_CASE("only a mark whose work cannot be waited for is lost", "[device][fault:devices-5]") {
  marked_stream on;
  on.device.fail_record(0);
  on.device.fail_stream_synchronize(0);
  const auto lost = on.timeline.mark();
  CHECK(lost.is_lost);
  CHECK(lost.at == timeline_type::never);
  CHECK_THROWS_AS(lost.rethrow_error(), device_fault);
  const auto next = on.timeline.mark();
  CHECK(next.at == 1);
  on.timeline.wait(next.at);
}

TEST_CASE("memory is freed after a point, unless the device fails to wait twice",
          "[device][promise:race-free-5]") {
  marked_stream on;
  on.device.hold_copies();
  int to = 0;
  const int from = 7;
  on.device.copy_async(&to, &from, sizeof(int), on.stream);
  const auto end = on.timeline.mark();
  on.device.fail_synchronize(0);
  std::thread opens{[&] { on.device.open_copies(); }};
  CHECK(on.timeline.try_synchronize(end.at));
  CHECK(to == 7);
  opens.join();
}

TEST_CASE("the end of work is recorded in a separate event on any stream",
          "[device][fault:devices-5]") {
  const gated_device device;
  auto event = device.make_event();
  auto one = device.make_stream();
  auto two = device.make_stream();
  int done = 0;
  const auto add = [&done] { ++done; };
  one.launch(add);
  CHECK(ps::detail::record_end(device, event, one).error == nullptr);
  device.synchronize(event);
  CHECK(done == 1);
  two.launch(add);
  CHECK(ps::detail::record_end(device, event, two).error == nullptr);
  device.synchronize(event);
  CHECK(done == 2);

  one.launch(add);
  device.fail_record(0);
  const auto rejected = ps::detail::record_end(device, event, one);
  CHECK(done == 3);
  CHECK_FALSE(rejected.is_lost);
  CHECK_THROWS_AS(rejected.rethrow_error(), device_fault);

  device.fail_record(0);
  device.fail_stream_synchronize(0);
  CHECK(ps::detail::record_end(device, event, one).is_lost);
}

TEST_CASE("a wait follows a rejected record and is omitted otherwise", "[device]") {
  int waits = 0;
  const auto wait = [&waits] {
    ++waits;
    return true;
  };
  CHECK(ps::detail::record_or_wait([] {}, wait).error == nullptr);
  CHECK(waits == 0);
  const auto end = ps::detail::record_or_wait([] { throw std::runtime_error{"rejected"}; }, wait);
  CHECK(waits == 1);
  CHECK_FALSE(end.is_lost);
  CHECK_THROWS_AS(end.rethrow_error(), std::runtime_error);
}
