// SPDX-License-Identifier: BSL-1.0
#include <penstock/transfer/device_batch.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/lease.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

#include "support/catch.hpp"
#include "support/freeing_device.hpp"
#include "support/gated_device.hpp"
#include "support/happens.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

using two_fields = ps::record<ps::field<"a", std::uint8_t, 3>, ps::field<"b", std::uint32_t>>;
const ps::batch_layout<two_fields> layout{{{}, {}}, 10};

/// A device that counts its events and all frees, including device memory. Calls a function before
/// each record.
struct watched_device : freeing_device {
  struct calls {
    std::function<void()> on_record;
    std::atomic<int> events{0};
  };
  std::shared_ptr<calls> noted = std::make_shared<calls>();

  [[nodiscard]] event_type make_event(ps::event_wait waits) const {
    ++noted->events;
    return freeing_device::make_event(waits);
  }
  void record(event_type& event, stream_ref stream) const {
    if (noted->on_record) noted->on_record();
    freeing_device::record(event, stream);
  }
  void deallocate(void* data, std::size_t bytes) const noexcept {
    freeing_device::deallocate(data, bytes);
    ++seen->frees;
    seen->reached.advance();
  }
};
static_assert(ps::device<watched_device>);

using ring = ps::detail::device_slots<watched_device>;
using lease = ps::device_batch<two_fields, watched_device>;
static_assert(std::movable<lease> && !std::copyable<lease>);
static_assert(std::is_nothrow_move_constructible_v<lease> &&
              std::is_nothrow_move_assignable_v<lease>);
static_assert(!std::is_move_constructible_v<ring>);

/// A batch in pageable memory whose values all equal `value`.
struct host_memory {
  explicit host_memory(std::uint32_t value, std::size_t size = 10)
      : bytes(std::make_shared<std::vector<std::byte>>(layout.bytes())),
        shape{.epoch = 4, .batch = value, .size = size, .valid_size = size} {
    const ps::batch_view<two_fields> all{bytes->data(), layout, 0, layout.batch_size()};
    for (auto& number : ps::get<"b">(all).flat()) number = value;
  }
  explicit operator bool() const { return !released; }
  [[nodiscard]] const std::byte* data() const { return bytes->data(); }
  [[nodiscard]] const ps::batch_info& info() const { return shape; }
  void release_after(ps::cpu_stream_ref stream) {
    stream.launch([kept = bytes] {});  // the copy may still read the bytes
    released = true;
  }

  std::shared_ptr<std::vector<std::byte>> bytes;
  ps::batch_info shape;
  bool released = false;
};

std::shared_ptr<ring> make_ring(const watched_device& device, std::size_t depth) {
  return ps::detail::shared_by_leases<ring, ps::cpu_stream_ref>(
      device, layout, device.inline_stream(), depth, depth);
}

lease hand_out(const std::shared_ptr<ring>& slots, std::size_t slot, ps::cpu_stream_ref stream) {
  slots->wait_for_copy(slot, stream);
  return lease{slots, slot, stream};
}

std::uint32_t first_number(const lease& batch) { return ps::get<"b">(batch)(0); }

void block_on(const ps::detail::waitable_counter& gate) {
  gate.wait([](std::uint32_t open) { return open != 0; });
}

}  // namespace

TEST_CASE("device slots are contiguous at fixed addresses", "[transfer][promise:bounded-1]") {
  const watched_device device;
  const auto slots = make_ring(device, 3);
  CHECK(slots->count() == 3);
  CHECK(slots->bytes() == 3 * layout.bytes());
  CHECK(slots->layout().as<two_fields>() == layout);
  for (std::size_t slot = 0; slot < 3; ++slot) {
    CHECK(slots->data(slot) == slots->data(0) + slot * layout.bytes());
    CHECK(slots->is_released(slot));
  }
}

TEST_CASE("slots beyond the address space throw out_of_memory", "[transfer][fault:memory-2]") {
  using wide = ps::record<ps::field<"x", std::uint8_t, ps::dyn>>;
  using slots = ps::detail::device_slots<ps::cpu_device>;
  // Four slots of this size wrap to 1024 modulo 2^64.
  const std::size_t length = (std::size_t{1} << 62) + 256;
  const ps::batch_layout<wide> huge{ps::record_extents<wide>{{length}}, 1};
  CHECK_THROWS_AS(slots(ps::cpu_device{}, huge, ps::cpu_device{}.inline_stream(), 4, 4),
                  ps::out_of_memory);
  CHECK_THROWS_AS(slots(ps::cpu_device{}, huge, ps::cpu_device{}.inline_stream(), 3, 3),
                  ps::out_of_memory);  // three slots do not wrap
}

TEST_CASE("a device lease describes its batch and provides views of device memory", "[transfer]") {
  const watched_device device;
  const auto slots = make_ring(device, 2);
  host_memory from{7, 6};
  slots->copy_in(1, from);
  CHECK(from.released);
  auto batch = hand_out(slots, 1, device.inline_stream());
  CHECK(batch);
  CHECK(batch.epoch() == 4);
  CHECK(batch.number() == 7);
  CHECK(batch.size() == 6);
  CHECK(batch.valid() == 6);
  CHECK(batch.slot() == 1);
  CHECK(batch.stream() == device.inline_stream());
  CHECK(batch.data() == slots->data(1));
  CHECK(ps::get<"b">(batch).extent(0) == 6);
  CHECK(ps::get<"b">(batch)(5) == 7);
  const auto& constant = batch;
  static_assert(std::is_same_v<decltype(ps::get<"b">(batch).data()), std::uint32_t*>);
  static_assert(std::is_same_v<decltype(ps::get<"b">(constant).data()), const std::uint32_t*>);
  static_assert(std::is_same_v<decltype(constant.data()), const std::byte*>);
  static_assert(std::is_same_v<decltype(constant.view()), ps::const_batch_view<two_fields>>);
  CHECK(constant.view().size() == 6);
  // Only the used part of the slot was copied.
  CHECK(device.copied_bytes() == layout.used_bytes(6));
}

TEST_CASE("a copy occupies a slot, and its lease releases the slot", "[transfer]") {
  const watched_device device;
  const auto slots = make_ring(device, 2);
  slots->copy_in(0, host_memory{1});
  CHECK_FALSE(slots->is_released(0));
  CHECK(slots->is_released(1));
  {
    const auto batch = hand_out(slots, 0, device.inline_stream());
    CHECK_FALSE(slots->is_released(0));
  }
  CHECK(slots->is_released(0));
}

TEST_CASE("a moved device lease is released once, by its new owner", "[transfer]") {
  const watched_device device;
  const auto slots = make_ring(device, 2);
  slots->copy_in(0, host_memory{1});
  slots->copy_in(1, host_memory{2});
  std::optional first{hand_out(slots, 0, device.inline_stream())};
  auto second = std::move(*first);
  CHECK_FALSE(*first);
  first.reset();
  CHECK_FALSE(slots->is_released(0));
  second = hand_out(slots, 1, device.inline_stream());  // releases the previous lease of `second`
  CHECK(slots->is_released(0));
  CHECK(first_number(second) == 2);
  auto& itself = second;
  second = std::move(itself);
  CHECK(second);
  CHECK_FALSE(slots->is_released(1));
  second = lease{};
  CHECK(slots->is_released(1));
  CHECK_FALSE(second);
}

TEST_CASE("work on the lease's stream waits for the copy, the caller does not", "[transfer]") {
  const watched_device device;
  const auto slots = make_ring(device, 1);
  auto stream = device.make_stream();
  device.hold_copies();
  slots->copy_in(0, host_memory{3});
  {
    const auto batch = hand_out(slots, 0, stream);
    std::atomic<bool> ran{false};
    std::uint32_t seen = 0;
    stream.launch([&, view = ps::get<"b">(batch)] {
      seen = view(0);
      ran = true;
    });
    CHECK_FALSE(test::happens(ran));
    device.open_copies();
    stream.synchronize();
    CHECK(seen == 3);
  }
}

TEST_CASE(
    "the next copy into a slot waits for the work queued at the release, even if the flag "
    "is set",
    "[transfer]") {
  const watched_device device;
  const auto slots = make_ring(device, 1);
  ps::detail::waitable_counter gate;
  auto stream = device.make_stream();
  std::uint32_t seen = 0;
  host_memory one{1};
  host_memory two{2};
  slots->copy_in(0, one);
  {
    const auto batch = hand_out(slots, 0, stream);
    stream.launch([&, view = ps::get<"b">(batch)] {
      block_on(gate);
      seen = view(0);
    });
  }
  CHECK(slots->is_released(0));
  slots->copy_in(0, two);  // the call does not block
  CHECK_FALSE(test::happens([&] { return device.copies() > 1; }));
  gate.store(1);
  const auto batch = hand_out(slots, 0, device.inline_stream());
  CHECK(seen == 1);
  CHECK(first_number(batch) == 2);
}

TEST_CASE("the flag is set only after the records of the release",
          "[transfer][promise:race-free-2]") {
  const watched_device device;
  const auto slots = make_ring(device, 1);
  auto second = device.make_stream();
  slots->copy_in(0, host_memory{1});
  auto batch = hand_out(slots, 0, device.inline_stream());
  batch.also_used_on(second);
  int records = 0;
  int early = 0;
  device.noted->on_record = [&] {
    ++records;
    early += slots->is_released(0) ? 1 : 0;
  };
  batch = lease{};
  device.noted->on_record = nullptr;
  CHECK(records == 2);
  CHECK(early == 0);
  CHECK(slots->is_released(0));
}

TEST_CASE("writes before a release are visible when the flag is",
          "[transfer][promise:race-free-2]") {
  const watched_device device;
  const auto slots = make_ring(device, 1);
  host_memory from{1};
  std::uint64_t message = 0;  // not atomic, because the flag orders the accesses
  for (std::uint64_t round = 1; round <= 500; ++round) {
    slots->copy_in(0, from);
    auto batch = hand_out(slots, 0, device.inline_stream());
    std::thread other{[&, moved = std::move(batch)]() mutable {
      message = round;
      moved = lease{};
    }};
    while (!slots->is_released(0)) std::this_thread::yield();
    const auto seen = message;
    other.join();
    REQUIRE(seen == round);
  }
}

TEST_CASE("a second stream of a lease waits for the copy, and the release waits for the stream",
          "[transfer]") {
  const watched_device device;
  const auto slots = make_ring(device, 1);
  ps::detail::waitable_counter gate;
  auto stream = device.make_stream();
  auto second = device.make_stream();
  std::atomic<bool> ran{false};
  std::uint32_t seen = 0;
  host_memory one{1};
  host_memory two{2};
  device.hold_copies();
  slots->copy_in(0, one);
  {
    auto batch = hand_out(slots, 0, stream);
    batch.also_used_on(second);
    second.launch([&, view = ps::get<"b">(batch)] {
      ran = true;
      block_on(gate);
      seen = view(0);
    });
    CHECK_FALSE(test::happens(ran));  // the copy is still blocked
    device.open_copies();
  }
  CHECK(slots->is_released(0));
  slots->copy_in(0, two);
  CHECK_FALSE(test::happens([&] { return device.copies() > 1; }));
  gate.store(1);
  const auto batch = hand_out(slots, 0, device.inline_stream());
  CHECK(seen == 1);
  CHECK(first_number(batch) == 2);
}

TEST_CASE("a second stream applies only to the lease that named it", "[transfer]") {
  const watched_device device;
  const auto slots = make_ring(device, 1);
  ps::detail::waitable_counter gate;
  auto second = device.make_stream();
  host_memory from{1};
  slots->copy_in(0, from);
  {
    auto batch = hand_out(slots, 0, device.inline_stream());
    batch.also_used_on(second);
  }
  slots->copy_in(0, from);
  { const auto batch = hand_out(slots, 0, device.inline_stream()); }
  second.launch([&gate] { block_on(gate); });
  slots->copy_in(0, from);
  slots->wait_for_copy(0, device.inline_stream());  // would hang if the second stream still applied
  CHECK(device.copies() == 3);
  slots->discard(0);
  gate.store(1);
}

TEST_CASE("several streams may use a lease, and their events are created once", "[transfer]") {
  const watched_device device;
  const auto slots = make_ring(device, 1);
  ps::detail::waitable_counter gate;
  auto second = device.make_stream();
  auto third = device.make_stream();
  host_memory from{1};
  const int events = device.noted->events;
  for (int round = 0; round < 5; ++round) {
    slots->copy_in(0, from);
    auto batch = hand_out(slots, 0, device.inline_stream());
    batch.also_used_on(second);
    batch.also_used_on(third);
  }
  CHECK(device.noted->events == events + 2);
  slots->copy_in(0, from);
  {
    auto batch = hand_out(slots, 0, device.inline_stream());
    batch.also_used_on(second);
    batch.also_used_on(third);
    third.launch([&gate] { block_on(gate); });
  }
  slots->copy_in(0, from);
  CHECK_FALSE(test::happens([&] { return device.copies() > 6; }));
  gate.store(1);
  slots->wait_for_copy(0, device.inline_stream());
  CHECK(device.copies() == 7);
}

TEST_CASE("naming a stream twice for a lease counts once", "[transfer]") {
  const watched_device device;
  const auto slots = make_ring(device, 1);
  auto stream = device.make_stream();
  auto second = device.make_stream();
  slots->copy_in(0, host_memory{1});
  auto batch = hand_out(slots, 0, stream);
  const int events = device.noted->events;
  int records = 0;
  for (int step = 0; step < 100; ++step) {
    batch.also_used_on(second);
    batch.also_used_on(stream);
  }
  CHECK(device.noted->events == events + 1);
  device.noted->on_record = [&records] { ++records; };
  batch = lease{};
  device.noted->on_record = nullptr;
  CHECK(records == 2);
}

TEST_CASE("an unwanted batch is discarded after its copy, without a wait", "[transfer]") {
  const watched_device device;
  const auto slots = make_ring(device, 1);
  host_memory one{1};
  host_memory two{2};
  device.hold_copies();
  slots->copy_in(0, one);
  slots->discard(0);
  CHECK(slots->is_released(0));
  slots->copy_in(0, two);
  CHECK(device.copies() == 0);
  device.open_copies();
  const auto batch = hand_out(slots, 0, device.inline_stream());
  CHECK(first_number(batch) == 2);
}

TEST_CASE("a release that cannot be recorded is waited for and reported once",
          "[transfer][fault:devices-5]") {
  const watched_device device;
  const auto slots = make_ring(device, 2);
  slots->copy_in(0, host_memory{1});
  slots->copy_in(1, host_memory{2});
  slots->rethrow_poison();
  auto one = hand_out(slots, 0, device.inline_stream());
  auto two = hand_out(slots, 1, device.inline_stream());
  device.fail_record(0);
  one = lease{};  // the destructor does not throw
  CHECK_FALSE(one);
  CHECK(slots->is_released(0));  // no work uses the slot any more
  CHECK_THROWS_AS(slots->rethrow_poison(), device_fault);
  slots->rethrow_poison();
  two = lease{};
  CHECK(slots->is_released(1));
}

TEST_CASE("a release that cannot be recorded on a second stream is waited for and reported once",
          "[transfer][fault:devices-5]") {
  const watched_device device;
  const auto slots = make_ring(device, 1);
  auto second = device.make_stream();
  slots->copy_in(0, host_memory{1});
  auto batch = hand_out(slots, 0, device.inline_stream());
  batch.also_used_on(second);
  device.fail_record(1);
  batch = lease{};
  CHECK(slots->is_released(0));
  CHECK_THROWS_AS(slots->rethrow_poison(), device_fault);
}

TEST_CASE("if waiting also fails, the slot is lost and reported from then on",
          "[transfer][fault:devices-5]") {
  const watched_device device;
  const auto slots = make_ring(device, 1);
  slots->copy_in(0, host_memory{1});
  auto batch = hand_out(slots, 0, device.inline_stream());
  device.fail_record(0);
  device.fail_stream_synchronize(0);
  batch = lease{};
  CHECK_FALSE(slots->is_released(0));
  CHECK_THROWS_AS(slots->rethrow_poison(), device_fault);
  CHECK_THROWS_AS(slots->rethrow_poison(), device_fault);
}

TEST_CASE("a lost slot stays reported, although a later release is rejected and reported",
          "[transfer][fault:devices-5]") {
  const watched_device device;
  const auto slots = make_ring(device, 2);
  slots->copy_in(0, host_memory{1});
  slots->copy_in(1, host_memory{2});
  auto one = hand_out(slots, 0, device.inline_stream());
  auto two = hand_out(slots, 1, device.inline_stream());
  device.fail_record(0);
  device.fail_stream_synchronize(0);
  one = lease{};
  device.fail_record(0);
  two = lease{};
  CHECK_THROWS_AS(slots->rethrow_poison(), device_fault);
  CHECK_THROWS_AS(slots->rethrow_poison(), device_fault);
  CHECK_FALSE(slots->is_released(0));
  CHECK(slots->is_released(1));
}

TEST_CASE("a rejected copy leaves batch and slot as they were", "[transfer]") {
  const watched_device device;
  const auto slots = make_ring(device, 1);
  host_memory from{1};
  device.fail_copy(0);
  CHECK_THROWS_AS(slots->copy_in(0, from), device_fault);
  CHECK_FALSE(from.released);
  CHECK(slots->is_released(0));
  slots->rethrow_poison();
  slots->copy_in(0, from);
  CHECK(first_number(hand_out(slots, 0, device.inline_stream())) == 1);
}

TEST_CASE("batches before a failed batch keep their slots, and the failed batch's slot is free",
          "[transfer]") {
  const watched_device device;
  ps::loader loader{numbered{30}, ps::sequential{}, device, {.batch_size = 10}};
  const auto slots = ps::detail::shared_by_leases<ring, ps::cpu_stream_ref>(
      device, loader.layout(), device.inline_stream(), std::size_t{2}, std::size_t{2},
      ps::detail::host_slot_end::with_last_use);
  using filling = ps::detail::slot_filling<ps::host_batch<numbered::record_type, watched_device>>;
  auto range = loader.epoch(0);
  std::vector<filling> both;
  for (auto& batch : range) {
    slots->take(both.size(), batch.info());
    both.push_back({both.size(), std::move(batch)});
    if (both.size() == 2) break;
  }
  REQUIRE_FALSE(slots->is_released(1));
  const auto reject_second = [](const filling& which, const auto& queue) {
    if (which.slot == 1) throw device_fault("no");
    queue();
  };
  CHECK_THROWS_AS(slots->copy_in(std::span{both}, reject_second), device_fault);
  CHECK(slots->filled() == 1);
  CHECK_FALSE(slots->is_released(0));
  CHECK_FALSE(both[0].from);
  CHECK(slots->is_released(1));
  CHECK(both[1].from.number() == 1);
  slots->discard(0);
}

TEST_CASE("a copy whose record is rejected has run before the error is thrown", "[transfer]") {
  const watched_device device;
  const auto slots = make_ring(device, 1);
  host_memory from{1};
  device.hold_copies();
  device.fail_record(0);
  std::atomic<bool> thrown{false};
  bool rejected = false;
  std::thread issuer{[&] {
    try {
      slots->copy_in(0, from);
    } catch (const device_fault&) {
      rejected = true;
    }
    thrown = true;
    device.seen->reached.advance();
  }};
  // The thread that catches the error reuses the batch's memory, so the copy must have finished by
  // then.
  device.wait_until_reached();
  CHECK_FALSE(thrown);
  device.open_copies();
  issuer.join();
  CHECK(rejected);
  CHECK(device.copies() == 1);
  CHECK_FALSE(from.released);
  CHECK(slots->is_released(0));
}

TEST_CASE("leases outlive the ring's owner, the memory goes with the last of them", "[transfer]") {
  const watched_device device;
  auto slots = make_ring(device, 2);
  slots->copy_in(0, host_memory{1});
  slots->copy_in(1, host_memory{2});
  auto one = hand_out(slots, 0, device.inline_stream());
  auto two = hand_out(slots, 1, device.inline_stream());
  slots.reset();
  one = lease{};
  CHECK(device.seen->frees == 0);
  CHECK(first_number(two) == 2);
  two = lease{};
  CHECK(device.seen->frees == 1);
}

TEST_CASE("device memory is freed only after the copies into it and the work on it",
          "[transfer][promise:race-free-5]") {
  const auto kind = GENERATE(0, 1, 2, 3);
  const watched_device device;
  auto slots = make_ring(device, 1);
  ps::detail::waitable_counter gate;
  auto stream = device.make_stream();
  auto second = device.make_stream();
  host_memory from{1};
  if (kind == 0) device.hold_copies();
  slots->copy_in(0, from);
  {
    std::optional<lease> batch;
    if (kind == 0) {
      slots->discard(0);  // holds back the copy of the slot
    } else {
      slots->wait_for_copy(0, device.inline_stream());  // holds back only the work on the batch
      batch.emplace(hand_out(slots, 0, stream));
    }
    if (kind == 1) stream.launch([&gate] { block_on(gate); });
    if (kind == 2) {
      batch->also_used_on(second);
      second.launch([&gate] { block_on(gate); });
    }
    if (kind == 3) {  // recording the release fails too
      stream.launch([&gate] { block_on(gate); });
      device.fail_record(0);
    }
    std::thread owner{[&, last = std::move(batch), owned = std::move(slots)]() mutable {
      last.reset();
      owned.reset();
    }};
    CAPTURE(kind);
    device.wait_until_reached();
    CHECK(device.seen->frees == 0);
    gate.store(1);
    device.open_copies();
    owner.join();
  }
  CHECK(device.seen->frees == 1);
}
