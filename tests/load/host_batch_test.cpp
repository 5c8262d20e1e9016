// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/host_batch.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>

#include <penstock/memory/support/host_slots.hpp>
#include <penstock/memory/support/slab.hpp>

#include "support/catch.hpp"
#include "support/freeing_device.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

using record = numbered::record_type;
using ring = ps::detail::host_slots<freeing_device>;
using lease = ps::host_batch<record, freeing_device>;
static_assert(std::movable<lease> && !std::copyable<lease>);
static_assert(std::is_nothrow_move_constructible_v<lease> &&
              std::is_nothrow_move_assignable_v<lease>);
// A batch does not convert to a batch of another record, even if both are leases of the same slots.
using others = ps::host_batch<ps::record<ps::field<"other", int>>, freeing_device>;
static_assert(!std::is_constructible_v<lease, others> && !std::is_assignable_v<lease&, others>);

const ps::batch_layout<record> layout{{{}, {}}, 10};

std::shared_ptr<ring> make_ring(const freeing_device& device, std::size_t count) {
  return std::make_shared<ring>(device, layout, count, ps::detail::memory_kind::pinned);
}

lease take(const std::shared_ptr<ring>& slots, std::uint64_t index = 0) {
  const auto slot = slots->acquire();
  REQUIRE(slot.has_value());
  return lease{slots, *slot, {.epoch = 3, .batch = index, .size = 10, .valid_size = 9}};
}

}  // namespace

TEST_CASE("a lease describes its batch and provides views of its memory", "[load]") {
  const auto slots = make_ring({}, 2);
  auto batch = take(slots, 7);
  CHECK(batch);
  CHECK(batch.epoch() == 3);
  CHECK(batch.number() == 7);
  CHECK(batch.size() == 10);
  CHECK(batch.valid() == 9);
  CHECK(batch.info().batch == 7);
  CHECK(batch.data() == slots->data(static_cast<std::uint32_t>(batch.slot())));
  ps::get<"label">(batch)[4] = 44;
  const auto& constant = batch;
  CHECK(constant.get<"label">()(4) == 44);
  CHECK(constant.view().size() == 10);
  CHECK(constant.data() == batch.data());
  static_assert(std::is_same_v<decltype(ps::get<"label">(batch).data()), std::uint64_t*>);
  static_assert(std::is_same_v<decltype(ps::get<"label">(constant).data()), const std::uint64_t*>);
  static_assert(std::is_same_v<decltype(constant.data()), const std::byte*>);
}

TEST_CASE("destroying a lease releases its slot once", "[load]") {
  const auto slots = make_ring({}, 2);
  {
    const auto one = take(slots);
    const auto two = take(slots);
    CHECK(slots->leased() == 2);
    CHECK_FALSE(slots->try_acquire().has_value());
  }
  CHECK(slots->leased() == 0);
  CHECK(slots->try_acquire().has_value());
  CHECK(slots->try_acquire().has_value());
  CHECK_FALSE(slots->try_acquire().has_value());
}

TEST_CASE("a moved lease releases its slot once, by its new owner", "[load]") {
  const auto slots = make_ring({}, 2);
  std::optional first{take(slots)};
  const auto slot = first->slot();
  std::optional second{std::move(*first)};
  CHECK_FALSE(*first);
  first.reset();
  CHECK(slots->leased() == 1);
  CHECK(second->slot() == slot);
  second.reset();
  CHECK(slots->leased() == 0);
  CHECK(slots->try_acquire().has_value());
  CHECK(slots->try_acquire().has_value());
  CHECK_FALSE(slots->try_acquire().has_value());
}

TEST_CASE("assigning to a lease releases its slot", "[load]") {
  const auto slots = make_ring({}, 2);
  auto target = take(slots, 1);
  auto source = take(slots, 2);
  const auto freed = target.slot();
  target = std::move(source);
  CHECK(target.number() == 2);
  CHECK_FALSE(source);
  CHECK(slots->leased() == 1);
  CHECK(slots->try_acquire() == freed);
  CHECK_FALSE(slots->try_acquire().has_value());
  auto& itself = target;
  target = std::move(itself);
  CHECK(target);
  CHECK(target.number() == 2);
  target = lease{};
  CHECK_FALSE(target);
  CHECK(slots->leased() == 0);
}

TEST_CASE("a lease may be destroyed on another thread", "[load]") {
  const auto slots = make_ring({}, 1);
  auto batch = take(slots);
  ps::get<"label">(batch)[0] = 1;
  std::thread other{[moved = std::move(batch)]() mutable { ps::get<"label">(moved)[0] = 2; }};
  const auto slot = slots->acquire();  // waits for the slot, then reads the new value or poison
  const std::uint64_t expected = ps::detail::checked ? ~std::uint64_t{0} : 2;
  CHECK(*reinterpret_cast<std::uint64_t*>(slots->data(*slot) + layout.offset<1>()) == expected);
  other.join();
}

TEST_CASE("leases outlive the ring's owner, the memory goes with the last of them", "[load]") {
  const freeing_device device;
  auto slots = make_ring(device, 2);
  auto one = take(slots, 1);
  auto two = take(slots, 2);
  slots.reset();
  one = lease{};
  CHECK(device.seen->frees == 0);
  ps::get<"label">(two)[9] = 5;
  CHECK(ps::get<"label">(two)[9] == 5);
  two = lease{};
  CHECK(device.seen->frees == 1);
}
