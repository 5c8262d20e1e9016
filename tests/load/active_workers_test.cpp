// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/detail/active_workers.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include <penstock/load/detail/loader_core.hpp>
#include <penstock/penstock.hpp>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/members.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;
using ps::detail::active_workers;
using core_type = ps::detail::loader_core<ps::cpu_device>;

struct parts_of_core {};
constexpr auto members_of(parts_of_core);
template struct opened<parts_of_core, &core_type::schedule_, &core_type::delivery_,
                       &core_type::active_workers_, &core_type::slots_, &core_type::work_>;

namespace {

/// One thread per worker. Each thread waits in `active_workers` and counts the times it becomes
/// active.
struct sitters {
  explicit sitters(active_workers& where, std::size_t count) : sat(count), numbers(count) {
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back([this, &where, i] {
        numbers[i] = this_thread_number();
        where.wait(i);
        sat[i] = true;
      });
    }
  }
  ~sitters() {
    for (auto& thread : threads) thread.join();
  }
  void wait_until_asleep(std::size_t which) {
    while (numbers[which] == 0) std::this_thread::yield();
    ::wait_until_asleep(numbers[which]);
  }

  std::vector<std::atomic<bool>> sat;
  std::vector<std::atomic<long>> numbers;
  std::vector<std::thread> threads;
};

}  // namespace

TEST_CASE("workers become active by number, and an active worker does not wait", "[load]") {
  active_workers all{4, 2};
  CHECK(all.is_active(0));
  CHECK(all.is_active(1));
  CHECK_FALSE(all.is_active(2));
  all.wait(1);
  all.open(4);
  all.wait(3);
  all.open(1);
  CHECK(all.is_active(0));
  CHECK_FALSE(all.is_active(1));
}

TEST_CASE("an inactive worker sleeps until it becomes active, and no other worker is woken",
          "[load][promise:bounded-4]") {
  active_workers all{3, 0};
  sitters waiting{all, 3};
  for (std::size_t i = 0; i < 3; ++i) waiting.wait_until_asleep(i);
  all.open(2);
  waiting.threads[0].join();
  waiting.threads[1].join();
  waiting.threads[0] = std::thread{[] {}};
  waiting.threads[1] = std::thread{[] {}};
  waiting.wait_until_asleep(2);
  CHECK_FALSE(waiting.sat[2]);
  all.open(1);
  all.open(3);
}

TEST_CASE("the end wakes all workers, and none sleeps again", "[load]") {
  active_workers all{3, 0};
  {
    sitters waiting{all, 3};
    for (std::size_t i = 0; i < 3; ++i) waiting.wait_until_asleep(i);
    all.close();
  }
  all.open(1);
  all.wait(2);
}

TEST_CASE("batches are delivered in order while workers become active and inactive",
          "[load][promise:bounded-4]") {
  constexpr std::uint64_t batches = 3000;
  const auto flow = ps::detail::make_flow<numbered>(
      numbered{batches * 6}, ps::sequential{}, ps::cpu_device{},
      {.batch_size = 6,
       .workers = ps::automatic,  // the test is the consumer, so no tuner runs
       .prefetch = 2,
       .tuning = {.max_workers = 4, .chunk = 1}});
  const auto [to_schedule, to_delivery, to_seats, to_slots, to_work] = members_of(parts_of_core{});
  auto& core = flow->core();
  auto& schedule = core.*to_schedule;
  auto& delivery = core.*to_delivery;
  std::minstd_rand random{7};
  REQUIRE(schedule.begin({0, 0}, 1) == batches);
  for (std::uint64_t k = 0; k < batches; ++k) {
    if (random() % 2 == 0) (core.*to_seats).open(1 + random() % 4);
    if (random() % 8 == 0) schedule.allow(k + 1 + random() % 3, random() % 2 == 0);
    schedule.allow(k + 2, true);
    const auto slot = delivery.wait(k);
    REQUIRE(slot);
    REQUIRE((core.*to_work)[*slot].info.batch == k);
    (core.*to_slots)->release(*slot);
  }
}
