// SPDX-License-Identifier: BSL-1.0
#include <penstock/device/cpu_stream.hpp>

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/device/cpu_device.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/exit_while.hpp"
#include "support/in_child.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;

namespace {

static_assert(std::movable<ps::cpu_stream> && !std::copyable<ps::cpu_stream>);
static_assert(std::movable<ps::cpu_event> && !std::copyable<ps::cpu_event>);
static_assert(!std::is_constructible_v<ps::cpu_stream_ref, int>);
static_assert(!std::is_constructible_v<ps::cpu_stream_ref, std::nullptr_t>);
static_assert(!std::is_default_constructible_v<ps::cpu_stream_ref>);

void block_on(const ps::detail::waitable_counter& gate) {
  gate.wait([](std::uint32_t open) { return open != 0; });
}

/// Counts its live instances, except those that were moved from.
class counted {
 public:
  explicit counted(std::atomic<int>& alive) : alive_(&alive) { ++*alive_; }
  counted(counted&& other) noexcept : alive_(std::exchange(other.alive_, nullptr)) {}
  ~counted() {
    if (alive_ != nullptr) --*alive_;
  }

 private:
  std::atomic<int>* alive_;
};

/// Returns the product of two floats, a denormal number.
float denormal_product() {
  const volatile float small = std::numeric_limits<float>::min();
  const volatile float half = 0.5F;
  return small * half;
}

}  // namespace

TEST_CASE("work is destroyed after its run, whether it throws or not", "[device]") {
  std::atomic<int> alive{0};
  int alive_while_running = 0;
  int alive_in_next = 99;
  {
    ps::cpu_stream stream;
    stream.launch([&, token = counted{alive}] { alive_while_running = alive; });
    stream.launch([&] { alive_in_next = alive; });
    stream.synchronize();
    CHECK(alive_while_running == 1);
    CHECK(alive_in_next == 0);
    stream.launch([token = counted{alive}] { throw std::runtime_error{"work failed"}; });
    CHECK_THROWS_AS(stream.synchronize(), std::runtime_error);
    CHECK(alive == 0);
    for (int i = 0; i < 1000; ++i) stream.launch([token = counted{alive}] {});
  }
  CHECK(alive == 0);
}

TEST_CASE("a stream queues 256 operations, then the caller waits until one has run", "[device]") {
  ps::cpu_stream stream;
  ps::detail::waitable_counter gate;
  ps::detail::waitable_counter begun;
  std::atomic<int> ran{0};
  std::atomic<int> given{0};
  stream.launch([&] {
    begun.store(1);
    block_on(gate);
  });
  block_on(begun);  // the operation in progress is one of the 256
  for (int i = 0; i < 255; ++i) stream.launch([&ran] { ++ran; });
  std::thread giver{[&] {
    stream.launch([&ran] { ++ran; });
    given = 1;
  }};
  for (int turn = 0; turn < 1000 && given == 0; ++turn) std::this_thread::yield();
  CHECK(given == 0);
  CHECK(ran == 0);
  gate.store(1);
  giver.join();
  stream.synchronize();
  CHECK(ran == 256);
}

TEST_CASE("work may launch any number of operations into its own stream, in order",
          "[device][fault:consumers-8]") {
  constexpr int launches = 1000;
  std::vector<int> order;
  {
    ps::cpu_stream stream;
    const ps::cpu_stream_ref ref{stream};
    stream.launch([&order, ref] {
      for (int i = 0; i < launches; ++i) {
        ref.launch([&order, i, ref] {
          order.push_back(i);
          if (i % 2 == 0) ref.launch([&order, i] { order.push_back(launches + i / 2); });
        });
      }
    });
  }
  REQUIRE(order.size() == launches + launches / 2);
  for (int i = 0; i < launches + launches / 2; ++i)
    REQUIRE(order[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("an operation that must not wait is queued in a full stream, in order", "[device]") {
  constexpr int launches = 1000;
  std::vector<int> order;
  {
    ps::cpu_stream stream;
    const ps::cpu_stream_ref ref{stream};
    ps::detail::waitable_counter gate;
    stream.launch([&] { block_on(gate); });
    for (int i = 0; i < 255; ++i) ref.launch([&order, i] { order.push_back(i); });
    for (int i = 255; i < launches; ++i)
      ref.launch_without_wait([&order, i] { order.push_back(i); });
    CHECK(order.empty());
    gate.store(1);
    for (int i = launches; i < 2 * launches; ++i) {  // queued while the operations on the heap run
      if (i % 3 == 0) {
        ref.launch([&order, i] { order.push_back(i); });
      } else {
        ref.launch_without_wait([&order, i] { order.push_back(i); });
      }
    }
  }
  REQUIRE(order.size() == 2 * launches);
  for (int i = 0; i < 2 * launches; ++i) REQUIRE(order[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("other threads wait for room while work fills its own stream, and none waits forever",
          "[device][fault:consumers-8]") {
  constexpr int launches = 2000;
  std::atomic<int> ran{0};
  std::array<int, 2> last{-1, -1};
  bool in_order = true;
  {
    ps::cpu_stream stream;
    const ps::cpu_stream_ref ref{stream};
    ps::detail::waitable_counter begun;
    stream.launch([&, ref] {
      begun.store(1);
      for (int i = 0; i < launches; ++i) ref.launch([&ran] { ++ran; });
    });
    std::vector<std::thread> givers;
    for (std::size_t giver = 0; giver < 2; ++giver) {
      givers.emplace_back([&, giver, ref] {
        block_on(begun);
        for (int i = 0; i < launches; ++i) {
          ref.launch([&, giver, i, ref] {
            in_order = in_order && last[giver] == i - 1;
            last[giver] = i;
            ++ran;
            if (i % 4 == 0) ref.launch([&ran] { ++ran; });
          });
        }
      });
    }
    for (auto& giver : givers) giver.join();
  }  // the destructor also waits for work that other work has launched
  CHECK(ran == 3 * launches + 2 * launches / 4);
  CHECK(in_order);
}

TEST_CASE("a stream's destructor waits for work that its work launches", "[device]") {
  std::atomic<int> ran{0};
  {
    ps::cpu_stream stream;
    const ps::cpu_stream_ref ref{stream};
    stream.launch([&, ref, here = this_thread_number()] {
      wait_until_asleep(here);  // the destructor sleeps after it has queued its last operation
      ref.launch([&ran, ref] {
        ++ran;
        ref.launch([&ran] { ++ran; });
      });
    });
  }
  CHECK(ran == 2);
}

TEST_CASE("a stream may be destroyed by its own work, and still runs its queue", "[device]") {
  std::atomic<int> alive{0};
  // Shared with the work, because `store` may still be running when this thread sees the value.
  const auto ended = std::make_shared<ps::detail::waitable_counter>();
  auto stream = std::make_unique<ps::cpu_stream>();
  const ps::cpu_stream_ref ref{*stream};
  ps::detail::waitable_counter gate;
  ref.launch([own = std::move(stream), &gate] { block_on(gate); });
  for (int i = 0; i < 10; ++i) ref.launch([token = counted{alive}] {});
  ref.launch([ended] { ended->store(1); });
  gate.store(1);
  block_on(*ended);
  CHECK(alive == 0);
}

TEST_CASE("work that waits for its own stream is a logic error and not a hang",
          "[device][fault:consumers-8]") {
  const ps::cpu_device device;
  ps::cpu_stream stream;
  const ps::cpu_stream_ref ref{stream};
  auto before = device.make_event();
  device.record(before, stream);
  stream.launch([&] { device.synchronize(before); });  // the event is already complete
  device.synchronize(ref);
  stream.launch([&] { device.synchronize(ref); });
  CHECK_THROWS_MATCHES(
      device.synchronize(ref), std::logic_error,
      Catch::Matchers::Message(
          "penstock::cpu_stream: work on a stream cannot wait for later work on the same stream"));
  stream.launch([&] {
    auto own = device.make_event();
    device.record(own, ref);
    device.synchronize(own);
  });
  CHECK_THROWS_AS(device.synchronize(ref), std::logic_error);
}

TEST_CASE("work can query the stream that runs it", "[device]") {
  ps::cpu_stream stream;
  const ps::cpu_stream_ref ref{stream};
  CHECK_FALSE(ps::cpu_stream_ref::running());
  std::optional<ps::cpu_stream_ref> seen;
  stream.launch([&seen] { seen = ps::cpu_stream_ref::running(); });
  ps::cpu_device{}.synchronize(ref);
  CHECK(seen == ref);
}

TEST_CASE("a moved-from stream rejects work and does not become the inline stream",
          "[device][fault:consumers-8]") {
  ps::cpu_stream stream;
  const ps::cpu_stream to{std::move(stream)};
  bool ran = false;
  CHECK_THROWS_AS(stream.launch([&ran] { ran = true; }), std::logic_error);  // NOLINT: moved from
  CHECK_THROWS_MATCHES(
      ps::cpu_stream_ref{stream}, std::logic_error,
      Catch::Matchers::Message("penstock::cpu_stream: it was moved from and refers to no stream"));
  CHECK_FALSE(ran);
  stream = ps::cpu_stream{};
  stream.launch([&ran] { ran = true; });
  stream.synchronize();
  CHECK(ran);
}

TEST_CASE("synchronize rethrows an exception of the work once, and the stream continues",
          "[device]") {
  const ps::cpu_device device;
  ps::cpu_stream stream;
  const ps::cpu_stream_ref ref{stream};
  bool ran = false;
  stream.launch([] { throw std::out_of_range{"first"}; });
  stream.launch([] { throw std::runtime_error{"second"}; });
  stream.launch([&ran] { ran = true; });
  CHECK_THROWS_MATCHES(device.synchronize(ref), std::out_of_range,
                       Catch::Matchers::Message("first"));
  CHECK(ran);
  device.synchronize(ref);
  stream.launch([] { throw std::runtime_error{"third"}; });
  CHECK_THROWS_MATCHES(device.synchronize(ref), std::runtime_error,
                       Catch::Matchers::Message("third"));
}

TEST_CASE("an event completes even if earlier work throws", "[device]") {
  const ps::cpu_device device;
  auto stream = device.make_stream();
  auto event = device.make_event();
  stream.launch([] { throw std::runtime_error{"failed"}; });
  device.record(event, stream);
  device.synchronize(event);
  CHECK(device.is_complete(event));
}

TEST_CASE("a stream whose error is never retrieved is destroyed quietly", "[device]") {
  ps::cpu_stream stream;
  stream.launch([] { throw std::runtime_error{"unobserved"}; });
}

TEST_CASE("the inline stream runs work at once, on the calling thread", "[device]") {
  const auto stream = ps::cpu_stream_ref::calling_thread();
  std::thread::id where;
  stream.launch([&where] { where = std::this_thread::get_id(); });
  CHECK(where == std::this_thread::get_id());
  CHECK_THROWS_AS(stream.launch([] { throw std::runtime_error{"at once"}; }), std::runtime_error);
}

TEST_CASE("a stream runs all of its work on one thread, which is not the caller's", "[device]") {
  std::vector<std::thread::id> where;
  {
    ps::cpu_stream stream;
    for (int i = 0; i < 3; ++i) {
      stream.launch([&where] { where.push_back(std::this_thread::get_id()); });
    }
  }
  REQUIRE(where.size() == 3);
  CHECK(where[0] != std::this_thread::get_id());
  CHECK(where[1] == where[0]);
  CHECK(where[2] == where[0]);
}

TEST_CASE("work may be move-only, mutable, and up to 96 bytes large", "[device]") {
  int seen = 0;
  std::array<std::byte, 80> rest{};
  rest[79] = std::byte{7};
  const ps::cpu_device_options plain;
  const ps::cpu_device_options modelled{.copy_bytes_per_second = 0.0, .launch_latency = 1ns};
  for (const auto& options : {plain, modelled}) {
    ps::cpu_stream stream{options};
    auto work = [&seen, owner = std::make_unique<int>(5), rest]() mutable {
      *owner += 1;
      seen += *owner + static_cast<int>(rest[79]);
    };
    static_assert(sizeof(work) == 96);
    stream.launch(std::move(work));
  }
  CHECK(seen == 2 * 13);
}

TEST_CASE("references to the same stream are equal, and others are not", "[device]") {
  ps::cpu_stream one;
  ps::cpu_stream two;
  CHECK(ps::cpu_stream_ref{one} == ps::cpu_stream_ref{one});
  CHECK_FALSE(ps::cpu_stream_ref{one} == ps::cpu_stream_ref{two});
  CHECK_FALSE(ps::cpu_stream_ref{one} == ps::cpu_stream_ref::calling_thread());
  CHECK(ps::cpu_stream_ref::calling_thread() == ps::cpu_stream_ref::calling_thread());
}

TEST_CASE("a stream reports if its work is done, waits for it, and names its device", "[device]") {
  const ps::cpu_device device{{.copy_bytes_per_second = 1e9}};
  const auto stream = device.make_stream();  // const, because a query does not modify the stream
  const ps::cpu_stream_ref reference = stream;
  CHECK(stream.is_complete());
  std::promise<void> go_on;
  bool done = false;
  stream.launch([&done, reported = go_on.get_future().share()] {
    reported.wait();
    done = true;
  });
  CHECK_FALSE(stream.is_complete());
  CHECK_FALSE(reference.is_complete());
  go_on.set_value();
  stream.synchronize();
  CHECK(done);
  CHECK(reference.is_complete());
  CHECK(stream.device().options().copy_bytes_per_second == 1e9);

  stream.launch([] { throw std::runtime_error{"step"}; });
  CHECK_THROWS_WITH(reference.synchronize(), "step");
  reference.synchronize();  // an error is thrown only once

  const auto body = ps::cpu_stream_ref::calling_thread();
  CHECK(body.is_complete());
  body.synchronize();
  CHECK(body.device().options().copy_bytes_per_second == 0.0);

  static_assert(std::convertible_to<const ps::cpu_stream&, ps::cpu_stream_ref>);
  // A reference to a temporary object would dangle.
  static_assert(!std::convertible_to<ps::cpu_stream, ps::cpu_stream_ref>);
}

TEST_CASE("a stream's thread flushes denormals to zero", "[device]") {
  CHECK(denormal_product() != 0.0F);  // the mode of this thread is unchanged
  float product = 1.0F;
  {
    ps::cpu_stream stream;
    stream.launch([&product] { product = denormal_product(); });
  }
  CHECK(product == 0.0F);
  CHECK(denormal_product() != 0.0F);  // the mode of this thread is still unchanged
}

TEST_CASE("each launch takes at least the modeled latency", "[device]") {
  constexpr auto latency = 2ms;
  constexpr int launches = 5;
  const ps::cpu_device device{{.copy_bytes_per_second = 0.0, .launch_latency = latency}};
  auto stream = device.make_stream();
  int ran = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < launches; ++i) stream.launch([&ran] { ++ran; });
  stream.synchronize();
  CHECK(std::chrono::steady_clock::now() - begin >= launches * latency);
  CHECK(ran == launches);
}

TEST_CASE("a copy takes at least its bytes divided by the modeled bandwidth", "[device]") {
  constexpr std::size_t bytes = 100'000;
  constexpr int copies = 3;
  const ps::cpu_device device{{.copy_bytes_per_second = 50e6, .launch_latency = 1ms}};
  const std::vector<std::byte> from(bytes, std::byte{9});
  std::vector<std::byte> to(bytes);
  auto stream = device.make_stream();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < copies; ++i) device.copy_async(to.data(), from.data(), bytes, stream);
  stream.synchronize();
  CHECK(std::chrono::steady_clock::now() - begin >= copies * (2ms + 1ms));
  CHECK(to == from);
}

TEST_CASE("after a wait, modeled time counts from the end of the wait", "[device]") {
  constexpr std::size_t bytes = 1'000'000;
  constexpr auto span = 20ms;
  const ps::cpu_device plain;
  const ps::cpu_device device{{.copy_bytes_per_second = 50e6, .launch_latency = 0ms}};
  const std::vector<std::byte> from(bytes, std::byte{9});
  std::vector<std::byte> to(bytes);
  ps::detail::waitable_counter gate;
  auto before = plain.make_stream();
  auto stream = device.make_stream();
  auto done = plain.make_event();
  before.launch([&gate] { block_on(gate); });
  plain.record(done, before);

  ps::detail::waitable_counter reached;
  std::atomic<long> thread{0};
  stream.launch([&] {
    thread = this_thread_number();
    reached.store(1);
  });
  device.wait(stream, done);
  device.copy_async(to.data(), from.data(), bytes, stream);
  block_on(reached);
  wait_until_asleep(thread);  // waits until the stream thread sleeps in the wait
  std::this_thread::sleep_for(span);

  const auto begin = std::chrono::steady_clock::now();
  gate.store(1);
  stream.synchronize();
  CHECK(std::chrono::steady_clock::now() - begin >= span);
  CHECK(to == from);
}

TEST_CASE("the inline stream models the bus as well", "[device]") {
  constexpr std::size_t bytes = 100'000;
  const ps::cpu_device device{{.copy_bytes_per_second = 50e6, .launch_latency = 1ms}};
  const std::vector<std::byte> from(bytes, std::byte{9});
  std::vector<std::byte> to(bytes);
  const auto begin = std::chrono::steady_clock::now();
  device.copy_async(to.data(), from.data(), bytes, device.inline_stream());
  CHECK(std::chrono::steady_clock::now() - begin >= 2ms + 1ms);
  CHECK(to == from);
}

TEST_CASE("exit() in the work of a stream releases all threads that wait for the stream",
          "[device][fault:hangs-8]") {
  static std::optional<ps::cpu_stream> exiting;
  static std::optional<ps::cpu_stream> behind;  // queued behind work on `exiting`
  static std::atomic<bool> has_run{false};
  CHECK(test::in_child([]() -> int {
          const ps::cpu_device device;
          exiting.emplace();
          behind.emplace();
          ps::detail::waitable_counter gate;
          exiting->launch([&gate] {
            block_on(gate);
            test::exit_while([] {
              try {
                behind->synchronize();
              } catch (const ps::cancelled&) {
                if (!has_run) return;
              }
              ::_exit(2);
            });
          });
          auto end = device.make_event();
          device.record(end, *exiting);
          device.wait(*behind, end);
          behind->launch([]() noexcept { has_run = true; });
          gate.store(1);
          for (;;) ::pause();
        }) == 7);
}

TEST_CASE("a static stream ends in exit() although another thread continues to launch work",
          "[device][fault:hangs-8]") {
  static std::optional<ps::cpu_stream> stream;
  static std::atomic<int> launched{0};
  CHECK(test::in_child([]() -> int {
          const ps::cpu_device device;
          stream.emplace();
          const ps::cpu_stream_ref here = *stream;
          // Keeps the queue alive after the stream is destroyed.
          auto keeps_queue = device.make_event();
          device.record(keeps_queue, here);
          std::thread other{[] {
            while (launched < 300) std::this_thread::yield();
            std::exit(7);
          }};
          for (int i = 0;; launched = ++i) {
            here.launch([i]() noexcept {  // runs until more work is queued
              while (launched < i + 2) std::this_thread::yield();
            });
          }
        }) == 7);
}
