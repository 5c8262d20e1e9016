// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/support/host_slots.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/load/host_batch.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

#include "support/catch.hpp"
#include "support/freeing_device.hpp"
#include "support/gated_device.hpp"
#include "support/happens.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

using record = numbered::record_type;

/// A device that records the unit passed by the slab.
struct pieces_device : gated_device {
  std::shared_ptr<std::size_t> unit = std::make_shared<std::size_t>(0);

  [[nodiscard]] ps::pinned_block allocate_pinned(std::size_t bytes, std::size_t of = 0) const {
    *unit = of;
    return gated_device::allocate_pinned(bytes);
  }
  void deallocate_pinned(void* data, std::size_t bytes, std::size_t = 0) const noexcept {
    gated_device::deallocate_pinned(data, bytes);
  }
};

using ring = ps::detail::host_slots<freeing_device>;
using lease = ps::host_batch<record, freeing_device>;
static_assert(!std::is_move_constructible_v<ring>);

const ps::batch_layout<record> layout{{{}, {}}, 10};

std::shared_ptr<ring> make_ring(const freeing_device& device, std::size_t count) {
  return std::make_shared<ring>(device, layout, count, ps::detail::memory_kind::pinned);
}

lease take(const std::shared_ptr<ring>& slots, std::uint64_t index = 0) {
  const auto slot = slots->acquire();
  REQUIRE(slot.has_value());
  return lease{slots, *slot, {.epoch = 3, .batch = index, .size = 10, .valid_size = 9}};
}

void block_on(const ps::detail::waitable_counter& gate) {
  gate.wait([](std::uint32_t open) { return open != 0; });
}

}  // namespace

TEST_CASE("slots are contiguous in one slab, each for a whole batch",
          "[memory][promise:bounded-1]") {
  const freeing_device device;
  const auto slots = make_ring(device, 4);
  CHECK(slots->count() == 4);
  CHECK(slots->bytes() == 4 * layout.bytes());
  CHECK(slots->layout().as<record>() == layout);
  for (std::uint32_t slot = 0; slot < 4; ++slot) {
    CHECK(slots->data(slot) == slots->data(0) + slot * layout.bytes());
    CHECK(reinterpret_cast<std::uintptr_t>(slots->data(slot)) % 256 == 0);
  }
  CHECK_FALSE(
      (ps::detail::host_slots<freeing_device>{device, layout, 2, ps::detail::memory_kind::pageable}
           .pinned()));
}

TEST_CASE("a device that pins in pieces receives the slot size as its unit", "[memory]") {
  const pieces_device device;
  {
    const ps::detail::host_slots<pieces_device> slots{device, layout, 3,
                                                      ps::detail::memory_kind::pinned};
  }
  CHECK(*device.unit == layout.bytes());
}

TEST_CASE("each slot is acquired only once until it is released", "[memory]") {
  const auto slots = make_ring({}, 4);
  std::set<std::uint32_t> taken;
  for (int i = 0; i < 4; ++i) taken.insert(*slots->try_acquire());
  CHECK(taken == std::set<std::uint32_t>{0, 1, 2, 3});
  CHECK_FALSE(slots->try_acquire().has_value());
  slots->release(2);
  CHECK(slots->acquire() == 2U);
  CHECK_FALSE(slots->try_acquire().has_value());
}

TEST_CASE("slots are acquired in the order of their release", "[memory]") {
  const auto slots = make_ring({}, 3);
  for (int i = 0; i < 3; ++i) CHECK(slots->acquire().has_value());
  for (const std::uint32_t slot : {1U, 2U, 0U}) slots->release(slot);
  for (const std::uint32_t slot : {1U, 2U, 0U}) CHECK(slots->acquire() == slot);
}

TEST_CASE("a slot released after a copy is free only when the stream reaches that point",
          "[memory][promise:race-free-1]") {
  const freeing_device device;
  const auto slots = make_ring(device, 1);
  ps::detail::waitable_counter gate;
  auto stream = device.make_stream();
  std::atomic<bool> copied{false};
  stream.launch([&] {
    block_on(gate);
    copied = true;
  });
  auto batch = take(slots);
  batch.release_after(stream);
  CHECK_FALSE(batch);
  CHECK(slots->leased() == 0);
  std::atomic<bool> acquired{false};
  bool copied_before = false;
  std::optional<std::uint32_t> slot;
  std::thread reaper{[&] {
    slot = slots->acquire();
    copied_before = copied;
    acquired = true;
    device.seen->reached.advance();
  }};
  device.wait_until_reached();
  CHECK_FALSE(acquired);
  gate.store(1);
  reaper.join();
  CHECK(copied_before);
  CHECK(slot == 0U);
}

TEST_CASE("slots that are released at one point are free when the stream has reached it",
          "[memory][promise:race-free-1]") {
  const freeing_device device;
  const auto slots = make_ring(device, 2);
  ps::detail::waitable_counter gate;
  auto stream = device.make_stream();
  auto copies =
      std::make_shared<ring::timeline>(device, stream, std::size_t{3}, ps::event_wait::by_host);
  auto one = take(slots);
  auto two = take(slots);
  stream.launch([&gate] { block_on(gate); });
  const auto end = copies->mark();
  CHECK_FALSE(end.error);
  two.release_after(copies, end.at);
  one.release_after(copies, end.at);
  copies.reset();  // the slots keep the timeline alive
  CHECK_FALSE(one);
  CHECK(slots->leased() == 0);
  std::atomic<bool> acquired{false};
  std::vector<std::uint32_t> order;
  std::thread reaper{[&] {
    for (int i = 0; i < 2; ++i) order.push_back(*slots->acquire());
    acquired = true;
  }};
  device.wait_until_reached();
  CHECK_FALSE(acquired);
  gate.store(1);
  reaper.join();
  CHECK(order == std::vector<std::uint32_t>{1, 0});
}

TEST_CASE("host memory is freed only when the copies out of it have reached their point",
          "[memory][promise:race-free-5]") {
  const freeing_device device;
  auto slots = make_ring(device, 2);
  ps::detail::waitable_counter gate;
  auto stream = device.make_stream();
  const auto copies =
      std::make_shared<ring::timeline>(device, stream, std::size_t{3}, ps::event_wait::by_host);
  stream.launch([&gate] { block_on(gate); });
  take(slots).release_after(copies, copies->mark().at);
  std::thread owner{[&] { slots.reset(); }};
  device.wait_until_reached();
  CHECK(device.seen->frees == 0);
  gate.store(1);
  owner.join();
  CHECK(device.seen->frees == 1);
}

TEST_CASE("a slot that was released after a copy may later be released without a copy",
          "[memory]") {
  const freeing_device device;
  const auto slots = make_ring(device, 1);
  auto stream = device.make_stream();
  take(slots).release_after(stream);
  { const auto batch = take(slots); }
  device.fail_synchronize(0);  // no copy to wait for, so no device call is made
  CHECK(slots->try_acquire() == 0U);
}

TEST_CASE(
    "a release that the device can't record waits for the stream, returns the slot and throws",
    "[memory]") {
  const freeing_device device;
  const auto slots = make_ring(device, 1);
  ps::detail::waitable_counter gate;
  auto stream = device.make_stream();
  std::atomic<bool> copied{false};
  stream.launch([&] {
    block_on(gate);
    copied = true;
  });
  auto batch = take(slots);
  std::atomic<bool> thrown{false};
  bool copied_before = false;
  device.fail_record(0);
  std::thread consumer{[&] {
    try {
      batch.release_after(stream);
    } catch (const device_fault&) {
      copied_before = copied;
    }
    thrown = true;
    device.seen->reached.advance();
  }};
  device.wait_until_reached();
  CHECK_FALSE(thrown);
  gate.store(1);
  consumer.join();
  CHECK(copied_before);
  CHECK_FALSE(batch);
  CHECK(slots->leased() == 0);
  CHECK(slots->try_acquire() == 0U);
}

TEST_CASE("an exception while a copy is waited for reaches the thread that takes the slot",
          "[memory]") {
  const freeing_device device;
  const auto slots = make_ring(device, 1);
  auto stream = device.make_stream();
  take(slots).release_after(stream);
  device.fail_synchronize(0);
  CHECK_THROWS_AS(slots->acquire(), device_fault);
}

TEST_CASE("host memory is freed only after the copies out of it", "[memory][promise:race-free-5]") {
  const freeing_device device;
  auto slots = make_ring(device, 2);
  ps::detail::waitable_counter gate;
  auto stream = device.make_stream();
  stream.launch([&gate] { block_on(gate); });
  take(slots).release_after(stream);
  std::thread owner{[&] { slots.reset(); }};
  device.wait_until_reached();
  CHECK(device.seen->frees == 0);
  gate.store(1);
  owner.join();
  CHECK(device.seen->frees == 1);
}

TEST_CASE(
    "a worker that waits for a slot is woken by half of them, a hungry consumer, or a wake_if_free",
    "[memory]") {
  const auto how = GENERATE(0, 1, 2, 3);
  const auto slots = make_ring({}, 4);
  for (int i = 0; i < 4; ++i) CHECK(slots->acquire().has_value());
  std::optional<std::uint32_t> got;
  std::atomic<bool> acquired{false};
  std::thread worker{[&] {
    got = slots->acquire();
    acquired = true;
  }};
  test::happens(acquired);  // yields until the worker is probably asleep
  if (how == 0) {
    slots->release(3);
    slots->release(1);
  } else if (how == 1) {
    slots->release(3);
    slots->set_starving(true);
  } else if (how == 2) {
    slots->set_starving(true);
    test::happens(acquired);  // yields until the worker is probably asleep again
    slots->release(3);
    slots->set_starving(false);
  } else {
    slots->release(3);
    slots->wake_if_free();
  }
  worker.join();
  CHECK(got == 3U);
}

TEST_CASE("closing wakes threads that wait for a slot", "[memory]") {
  const auto slots = make_ring({}, 1);
  const auto batch = take(slots);
  std::atomic<bool> nothing{false};
  std::thread worker{[&] { nothing = !slots->acquire().has_value(); }};
  std::atomic<bool> never{false};
  test::happens(never);  // yields until the worker is probably asleep
  slots->close();
  worker.join();
  CHECK(nothing);
  CHECK_FALSE(slots->acquire().has_value());
}

TEST_CASE("leases may end after the close", "[memory]") {
  const freeing_device device;
  auto slots = make_ring(device, 2);
  auto stream = device.make_stream();
  auto one = take(slots);
  {
    const auto two = take(slots);
    slots->close();
  }
  one.release_after(stream);
  CHECK(slots->leased() == 0);
  slots.reset();
  CHECK(device.seen->frees == 1);
}
