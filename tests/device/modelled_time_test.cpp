// SPDX-License-Identifier: BSL-1.0
#include <penstock/device/cpu_stream.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include <penstock/device/cpu_device.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

#include "support/catch.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;
using moment = ps::detail::host_clock::time_point;

namespace {

const ps::cpu_device_options modelled{.copy_bytes_per_second = 1e6, .launch_latency = 1us};
const ps::cpu_device_options nothing_modelled{};

/// Returns the modeled end time of all work that the calling stream has run.
moment own_end() { return ps::detail::cpu_queue::running()->busy_until(); }

/// A stream whose thread starts only when the test requests it.
class late_stream {
 public:
  explicit late_stream(const ps::cpu_device_options& options)
      : queue_(std::make_shared<ps::detail::cpu_queue>(options)) {}

  /// Runs `first(stream)` on the stream's thread, and then all work that `first` has queued on the
  /// stream.
  template <class First>
  void run(First first) {
    queue_->push([&first] { first(*ps::cpu_stream_ref::running()); });
    queue_->push([this] { queue_->push([this] { queue_->stop(); }); });
    std::thread{[this] { queue_->run(); }}.join();
    queue_->rethrow_error();
  }

 private:
  std::shared_ptr<ps::detail::cpu_queue> queue_;
};

}  // namespace

TEST_CASE("modeled time of a stream never decreases", "[device]") {
  ps::detail::stream_time time;
  CHECK(time.busy_until() == moment{});
  time.busy_until(moment{7us});
  time.busy_until(moment{3us});
  CHECK(time.busy_until() == moment{7us});
  CHECK(time.start_of(moment{5us}) == moment{7us});
  CHECK(time.start_of(moment{9us}) == moment{9us});
}

TEST_CASE(
    "the ends of the last 256 operations are exact, and earlier operations report a later end",
    "[device]") {
  constexpr std::uint64_t remembered = ps::detail::stream_time::remembered;
  ps::detail::stream_time time;
  for (std::uint64_t i = 0; i < remembered + 10; ++i) {
    time.busy_until(moment{std::chrono::microseconds{i}});
    time.on_end(i);
  }
  CHECK(time.end_of(remembered + 9) == moment{265us});
  CHECK(time.end_of(10) == moment{10us});
  CHECK(time.end_of(9) == moment{265us});
}

TEST_CASE("an operation after modeled work starts at its modeled end, not when a thread wakes",
          "[device]") {
  const ps::cpu_device device{modelled};
  const std::byte from{9};
  std::byte to{};
  ps::detail::waitable_counter gate;
  const auto first = device.make_stream();
  const auto second = device.make_stream();
  auto copied = device.make_event();
  first.launch([&gate] { gate.wait([](std::uint32_t open) { return open != 0; }); });
  device.copy_async(&to, &from, 1, first);
  device.record(copied, first);
  device.wait(second, copied);
  moment end_of_copy;
  moment end_of_wait;
  first.launch([&end_of_copy] { end_of_copy = own_end(); });
  second.launch([&end_of_wait] { end_of_wait = own_end(); });
  gate.store(1);
  first.synchronize();
  second.synchronize();
  CHECK(end_of_copy != moment{});
  CHECK(end_of_wait == end_of_copy);
}

TEST_CASE("a stream that starts a wait late still starts after the modeled end of the work",
          "[device]") {
  const ps::cpu_device device{modelled};
  ps::detail::waitable_counter gate;
  const auto first = device.make_stream();
  auto done = device.make_event();
  moment end_of_first;
  moment end_of_wait;
  late_stream second{modelled};
  second.run([&](ps::cpu_stream_ref own) {
    first.launch([&gate] { gate.wait([](std::uint32_t open) { return open != 0; }); });
    device.record(done, first);
    device.wait(own, done);
    own.launch([&end_of_wait] { end_of_wait = own_end(); });
    first.launch([&end_of_first] { end_of_first = own_end(); });
    gate.store(1);
    first.synchronize();  // ensures that the wait of the second stream starts late
  });
  CHECK(end_of_first != moment{});
  CHECK(end_of_wait == end_of_first);
}

TEST_CASE("a stream without a model measures no time", "[device]") {
  const ps::cpu_device device{modelled};
  ps::detail::waitable_counter gate;
  const auto first = device.make_stream();
  auto done = device.make_event();
  moment end_of_wait{1us};
  late_stream second{nothing_modelled};
  second.run([&](ps::cpu_stream_ref own) {
    first.launch([&gate] { gate.wait([](std::uint32_t open) { return open != 0; }); });
    device.record(done, first);
    device.wait(own, done);
    own.launch([&end_of_wait] { end_of_wait = own_end(); });
    gate.store(1);
    first.synchronize();
  });
  CHECK(end_of_wait == moment{});
}
