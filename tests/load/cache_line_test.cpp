// SPDX-License-Identifier: BSL-1.0
// Tests the cache lines of the loader's fields. Fields that every worker reads for each chunk must
// not share a cache line with fields that are written for each batch. The opener, the consumer and
// threads that release slots write such fields.
#include <penstock/threads/support/atomics.hpp>

#include <cstddef>
#include <cstdint>
#include <tuple>

#include <penstock/device/cpu_device.hpp>
#include <penstock/load/detail/loader_core.hpp>
#include <penstock/load/detail/schedule.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/delivery.hpp>
#include <penstock/memory/support/host_slots.hpp>
#include <penstock/order/sampler.hpp>

#include "support/catch.hpp"
#include "support/members.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

using ps::detail::delivery;
using ps::detail::schedule;
using slots = ps::detail::host_slots<ps::cpu_device>;
using core = ps::detail::loader_core<ps::cpu_device>;

}  // namespace

struct in_schedule {};
constexpr auto members_of(in_schedule);
struct in_delivery {};
constexpr auto members_of(in_delivery);
struct in_slots {};
constexpr auto members_of(in_slots);
struct in_core {};
constexpr auto members_of(in_core);

template struct opened<in_schedule, &schedule::plan_, &schedule::cancelled_, &schedule::mutex_,
                       &schedule::end_, &schedule::next_, &schedule::demand_>;
template struct opened<in_delivery, &delivery::phase_, &delivery::in_order_, &delivery::announced_,
                       &delivery::finished_, &delivery::failed_mutex_, &delivery::failed_>;
template struct opened<in_slots, &slots::layout_, &slots::memory_, &slots::returned_, &slots::free_,
                       &slots::leased_, &slots::starving_>;
template struct opened<in_core, &core::options_, &core::schedule_, &core::layout_, &core::slots_,
                       &core::work_, &core::delivery_, &core::cursor_, &core::ordered_for_,
                       &core::idle_slot_, &core::next_>;

namespace {

/// The cache lines that an object occupies.
struct lines {
  template <class T>
  explicit lines(const T& object)
      : first(reinterpret_cast<std::uintptr_t>(&object) / ps::detail::cache_line),
        last((reinterpret_cast<std::uintptr_t>(&object) + sizeof object - 1) /
             ps::detail::cache_line) {}
  [[nodiscard]] bool share_one_with(const lines& other) const {
    return first <= other.last && other.first <= last;
  }
  std::uintptr_t first;
  std::uintptr_t last;
};

/// Returns the number of `others` that share a cache line with `one`.
template <class T, class... Others>
int neighbours(const T& one, const Others&... others) {
  return (0 + ... + int{lines{one}.share_one_with(lines{others})});
}

}  // namespace

TEST_CASE(
    "the schedule's fields that chunks read share no cache line with fields that batches "
    "write",
    "[load]") {
  const schedule one{{100, 10, ps::last_batch::keep}};
  const auto [plan, cancelled, mutex, end, next, demand] = members_of(in_schedule{});
  CHECK(neighbours(one.*plan, one.*mutex, one.*end, one.*next, one.*demand) == 0);
  CHECK(neighbours(one.*cancelled, one.*mutex, one.*end, one.*next, one.*demand) == 0);
}

TEST_CASE("the failure flag of a delivery has its own cache line", "[load]") {
  const delivery one{4, true};
  const auto [failed, in_order, announced, finished, mutex, error] = members_of(in_delivery{});
  CHECK(neighbours(one.*failed, one.*in_order, one.*announced, one.*finished, one.*mutex,
                   one.*error) == 0);
}

TEST_CASE("the counters of the host slots have a cache line each", "[load]") {
  const slots one{
      {}, ps::batch_layout<numbered::record_type>{{}, 16}, 2, ps::detail::memory_kind::pageable};
  const auto [layout, memory, returned, free, leased, starving] = members_of(in_slots{});
  CHECK(neighbours(one.*free, one.*layout, one.*memory, one.*returned, one.*leased,
                   one.*starving) == 0);
  CHECK(neighbours(one.*leased, one.*layout, one.*memory, one.*returned, one.*starving) == 0);
  CHECK(neighbours(one.*starving, one.*layout, one.*memory, one.*returned) == 0);
}

TEST_CASE("the core's fields that chunks read share no cache line with fields that batches write",
          "[load]") {
  const auto flow = ps::detail::make_flow<numbered>(
      numbered{100}, ps::sequential{}, ps::cpu_device{}, {.batch_size = 10, .workers = 2});
  const core& one = flow->core();
  const auto [options, order, layout, ring, work, finished, cursor, binder, spare, taken] =
      members_of(in_core{});
  CHECK(neighbours(one.*cursor, one.*options, one.*order, one.*layout, one.*ring, one.*work,
                   one.*finished) == 0);
  CHECK(neighbours(one.*spare, one.*options, one.*order, one.*layout, one.*ring, one.*work,
                   one.*finished) == 0);
  CHECK(neighbours(one.*order, one.*options, one.*layout, one.*ring, one.*work, one.*finished,
                   one.*cursor, one.*binder) == 0);
  CHECK(neighbours(one.*taken, one.*options, one.*order, one.*layout, one.*ring, one.*work,
                   one.*finished) == 0);
}
