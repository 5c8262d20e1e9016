// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/budget.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "memory/machine.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/rejection.hpp"

namespace ps = penstock;

namespace {

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t mebi = 1 << 20;

/// Returns the exception that `budget` throws because it cannot grant `demand`.
ps::pinned_budget_exceeded rejection(const ps::memory_budget& budget,
                                     const ps::detail::slot_demand& demand) {
  return test::error_of<ps::pinned_budget_exceeded>([&] { (void)budget.reserve(demand); });
}

}  // namespace

TEST_CASE("bytes are formatted with units", "[memory]") {
  CHECK(ps::detail::readable_bytes(0) == "0 bytes");
  CHECK(ps::detail::readable_bytes(1023) == "1023 bytes");
  CHECK(ps::detail::readable_bytes(1024) == "1.0 KiB");
  CHECK(ps::detail::readable_bytes(1536) == "1.5 KiB");
  CHECK(ps::detail::readable_bytes(1048575) == "1.0 MiB");
  CHECK(ps::detail::readable_bytes(273 * mebi) == "273.0 MiB");
  CHECK(ps::detail::readable_bytes(3277 * mebi) == "3.2 GiB");
  CHECK(ps::detail::readable_bytes(std::uint64_t{5} << 40) == "5.0 TiB");
  CHECK(ps::detail::readable_bytes(std::uint64_t{5} << 50) == "5.0 PiB");
  CHECK(ps::detail::readable_bytes(unlimited) == "16.0 EiB");
}

TEST_CASE("a budget is a number of bytes, or a share of the available memory", "[memory]") {
  CHECK(ps::memory_budget::bytes(12'345).limit() == 12'345);
  test::machine it;
  it.free_mib(1000);
  CHECK(ps::memory_budget::share(0.25, it.root()).limit() == 250 * mebi);
  CHECK(ps::memory_budget::share(1.0, it.root()).limit() == 1000 * mebi);
  it.file("/proc/self/cgroup", "0::/box\n").file("/sys/fs/cgroup/box/memory.max", "1048576\n");
  CHECK(ps::memory_budget::share(0.5, it.root()).limit() == mebi / 2);  // the smaller limit applies
  CHECK(ps::memory_budget::share(0.5).limit() > 0);
}

TEST_CASE("a share of an unknown memory size is a share of the largest number", "[memory]") {
  const test::machine silent;
  CHECK(ps::memory_budget::share(1.0, silent.root()).limit() == unlimited);
  CHECK(ps::memory_budget::share(0.5, silent.root()).limit() == std::uint64_t{1} << 63);
  CHECK(ps::memory_budget::share(0x1.fffffffffffffp-1, silent.root()).limit() == unlimited - 2047);
}

TEST_CASE("an invalid share is rejected by its option name", "[memory]") {
  for (const double bad : {0.0, -0.5, 1.0000001, 25.0, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    INFO(bad);
    CHECK(test::rejection_of([&] { (void)ps::memory_budget::share(bad); }).option ==
          "budget share");
  }
}

TEST_CASE("slots may fill the budget to the last byte and no further", "[memory]") {
  const ps::detail::slot_demand twelve{.slot_count = 12, .min = 12, .slot_bytes = 100};
  const auto whole = ps::memory_budget::bytes(1200).reserve(twelve);
  CHECK(whole.slot_count() == 12);
  CHECK(whole.requested() == 12);
  CHECK(whole.bytes() == 1200);
  CHECK_THROWS_AS(static_cast<void>(ps::memory_budget::bytes(1199).reserve(twelve)),
                  ps::pinned_budget_exceeded);
}

TEST_CASE("a caller that accepts fewer slots gets as many as fit, down to its minimum",
          "[memory]") {
  const ps::detail::slot_demand flexible{.slot_count = 12, .min = 2, .slot_bytes = 100};
  const auto granted = [&](std::uint64_t limit) {
    const auto budget = ps::memory_budget::bytes(limit);
    const auto part = budget.reserve(flexible);
    CHECK(part.requested() == 12);
    CHECK(part.bytes() == 100 * part.slot_count());
    CHECK(budget.used() == part.bytes());
    return part.slot_count();
  };
  CHECK(granted(unlimited) == 12);
  CHECK(granted(1199) == 11);
  CHECK(granted(299) == 2);
  CHECK(granted(200) == 2);
  const auto problem = rejection(ps::memory_budget::bytes(199), flexible);
  CHECK(problem.need() == 200);
  CHECK(problem.limit() == 199);
}

TEST_CASE("a reservation ends once, may outlive the budget, and moves", "[memory]") {
  const ps::detail::slot_demand one{.slot_count = 1, .min = 1, .slot_bytes = 100};
  std::optional<ps::memory_budget> budget = ps::memory_budget::bytes(250);
  const ps::memory_budget copy = *budget;
  {
    ps::detail::memory_reservation first = budget->reserve(one);
    const ps::detail::memory_reservation second = copy.reserve(one);
    CHECK(budget->used() == 200);  // copies of a budget share one account
    CHECK(rejection(copy, one).used() == 200);
    const ps::detail::memory_reservation last = std::move(first);
    CHECK(copy.used() == 200);
    CHECK(last.bytes() == 100);
  }
  CHECK(copy.used() == 0);
  budget.reset();
  const auto outlives = [&] {
    const ps::memory_budget gone = ps::memory_budget::bytes(100);
    return gone.reserve(one);
  }();
  CHECK(outlives.bytes() == 100);
}

TEST_CASE("threads that share a budget never exceed it", "[memory][promise:bounded-3]") {
  constexpr std::uint64_t limit = 1000;
  const auto budget = ps::memory_budget::bytes(limit);
  std::atomic<std::uint64_t> held{0};
  std::atomic<std::size_t> granted{0};
  std::atomic<bool> too_much{false};
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (int turn = 0; turn < 5000; ++turn) {
          try {
            const auto part =
                budget.reserve({.slot_count = 5, .min = 2, .slot_bytes = 70 + thread});
            if (held.fetch_add(part.bytes()) + part.bytes() > limit) too_much = true;
            if (budget.used() > limit) too_much = true;
            ++granted;
            held.fetch_sub(part.bytes());
          } catch (const ps::pinned_budget_exceeded&) {
            // The other threads have reserved the whole budget.
          }
        }
      });
    }
  }
  CHECK_FALSE(too_much);
  CHECK(granted > 0);
  CHECK(budget.used() == 0);
}

TEST_CASE("the error for an exceeded budget names the need, the limit and the option to lower",
          "[memory]") {
  const auto budget = ps::memory_budget::bytes(std::uint64_t{2} << 30);
  const auto alone = rejection(budget, {.slot_count = 12, .min = 12, .slot_bytes = 273 * mebi});
  CHECK(std::string{alone.what()} ==
        "pinned_budget_exceeded: 3.2 GiB needed for 12 slots of 273.0 MiB, limit 2.0 GiB: lower "
        "prefetch or batch_size, raise memory.budget, or choose budget_action::fewer_slots");
  CHECK(alone.need() == 12 * 273 * mebi);
  CHECK(alone.limit() == std::uint64_t{2} << 30);
  CHECK(alone.used() == 0);

  const auto other = budget.reserve({.slot_count = 2, .min = 2, .slot_bytes = 900 * mebi});
  const auto shared = rejection(budget, {.slot_count = 12, .min = 1, .slot_bytes = 273 * mebi});
  CHECK(std::string{shared.what()} ==
        "pinned_budget_exceeded: 273.0 MiB needed for at least 1 slot of 273.0 MiB, limit 2.0 GiB, "
        "of which 1.8 GiB are already in use: lower batch_size, or raise memory.budget");
  CHECK(shared.need() == 273 * mebi);
  CHECK(shared.used() == other.bytes());
  CHECK(std::is_base_of_v<ps::error, ps::pinned_budget_exceeded>);
}

TEST_CASE("a need beyond 64 bits saturates and does not wrap", "[memory]") {
  constexpr std::uint64_t huge = std::uint64_t{1} << 40;
  CHECK(rejection(ps::memory_budget::bytes(1000),
                  {.slot_count = huge, .min = huge, .slot_bytes = huge})
            .need() == unlimited);
  const auto all = ps::memory_budget::bytes(unlimited);
  CHECK(rejection(all, {.slot_count = huge, .min = huge, .slot_bytes = huge}).need() == unlimited);
  CHECK(all.used() == 0);
  CHECK(all.reserve({.slot_count = huge, .min = 1, .slot_bytes = huge}).slot_count() ==
        (1 << 24) - 1);
}
