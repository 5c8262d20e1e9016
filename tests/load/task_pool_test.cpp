// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/task_pool.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <penstock/core/sequence.hpp>

#include "support/asleep.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

template <std::size_t Bytes>
struct task_of {
  std::array<std::byte, Bytes> data;
  void operator()() const noexcept {}
};
struct throwing {
  void operator()() const {}
};
struct owning {
  std::shared_ptr<int> owned;
  void operator()() const noexcept {}
};
static_assert(ps::pool_task<task_of<40>>);
static_assert(!ps::pool_task<task_of<41>>);
static_assert(!ps::pool_task<throwing>);
static_assert(!ps::pool_task<owning>);
static_assert(!std::is_move_constructible_v<ps::task_pool>);
static_assert(!std::is_move_constructible_v<ps::task_group>);

void wait_until(const ps::sequence& word, std::uint32_t value) {
  word.wait([value](std::uint32_t now) { return now == value; });
}

// Keeps the only worker of a pool busy until it is let go.
struct held_worker {
  ps::sequence inside;
  ps::sequence gate;

  explicit held_worker(ps::task_pool& pool) {
    pool.post([this]() noexcept {
      inside.advance();
      wait_until(gate, 1);
    });
    wait_until(inside, 1);
  }
  void let_go() { gate.store(1); }
};

}  // namespace

TEST_CASE("what is posted is run by a thread of the pool", "[load]") {
  ps::task_pool pool;
  CHECK(pool.size() == 1);
  ps::sequence ran;
  std::thread::id where;
  pool.post([&]() noexcept {
    where = std::this_thread::get_id();
    ran.advance();
  });
  wait_until(ran, 1);
  CHECK(where != std::this_thread::get_id());
}

TEST_CASE("tasks begin in the order in which they were posted", "[load]") {
  ps::task_pool pool{{.workers = 0, .capacity = 64}};
  std::vector<int> order;
  order.reserve(100);
  for (int round = 0; round < 3; ++round) {  // over the ring's end
    for (int i = 0; i < 30; ++i) pool.post([&order, i]() noexcept { order.push_back(i); });
    while (pool.help()) {
    }
  }
  REQUIRE(order.size() == 90);
  for (int i = 0; i < 90; ++i) CHECK(order[static_cast<std::size_t>(i)] == i % 30);
}

TEST_CASE("a task that finds no room is run by its poster at once", "[load]") {
  ps::task_pool pool{{.workers = 1, .capacity = 3}};  // room for 4
  held_worker worker{pool};
  std::array<std::thread::id, 6> where{};
  ps::task_group tasks{pool};
  for (auto& by : where) {
    tasks.post([&by]() noexcept { by = std::this_thread::get_id(); });
  }
  const auto here = std::this_thread::get_id();
  for (std::size_t i = 0; i < 4; ++i) CHECK(where[i] == std::thread::id{});
  CHECK(where[4] == here);
  CHECK(where[5] == here);
  worker.let_go();
  tasks.wait();
  for (std::size_t i = 0; i < 4; ++i) CHECK(where[i] != std::thread::id{});
}

TEST_CASE("who waits for a group helps", "[load]") {
  ps::task_pool pool;
  held_worker worker{pool};
  std::thread::id where;
  ps::task_group tasks{pool};
  tasks.post([&where]() noexcept { where = std::this_thread::get_id(); });
  tasks.wait();  // a hang if only the worker could run it
  CHECK(where == std::this_thread::get_id());
  worker.let_go();
}

TEST_CASE("waiting for a group ends when its last task has run, and not before", "[load]") {
  ps::task_pool pool;
  ps::sequence inside;
  ps::sequence gate;
  std::atomic<bool> ended{false};
  std::atomic<long> waiter_number{0};
  std::thread waiter{[&] {
    ps::task_group tasks{pool};
    tasks.post([&]() noexcept {
      inside.advance();
      wait_until(gate, 1);
    });
    wait_until(inside, 1);  // the worker has it
    waiter_number = this_thread_number();
    tasks.wait();
    ended = true;
  }};
  while (waiter_number == 0) std::this_thread::yield();
  wait_until_asleep(waiter_number);
  CHECK_FALSE(ended);
  gate.store(1);
  waiter.join();
  CHECK(ended);
}

TEST_CASE("a group without tasks is nothing to wait for, and a group may be used again", "[load]") {
  ps::task_pool pool{{.workers = 2}};
  ps::task_group tasks{pool};
  tasks.wait();
  int sum = 0;  // plain: the group orders
  for (int round = 1; round <= 100; ++round) {
    tasks.post([&sum, round]() noexcept { sum += round; });
    tasks.wait();
  }
  CHECK(sum == 5050);
}

TEST_CASE("a group's destructor waits for its tasks", "[load]") {
  ps::task_pool pool{{.workers = 2}};
  for (int round = 0; round < 2000;
       ++round) {  // groups live on the stack: none is touched too late
    std::array<int, 3> ran{};
    {
      ps::task_group tasks{pool};
      for (int& one : ran) tasks.post([&one]() noexcept { ++one; });
    }
    REQUIRE(ran == std::array<int, 3>{1, 1, 1});
  }
}

TEST_CASE("the largest task arrives unchanged", "[load]") {
  struct large {
    std::uint64_t parts[4];
    std::atomic<std::uint64_t>* sum;
    void operator()() const noexcept { *sum += parts[0] + parts[1] + parts[2] + parts[3]; }
  };
  static_assert(sizeof(large) == 40);
  ps::task_pool pool;
  std::atomic<std::uint64_t> sum{0};
  ps::task_group tasks{pool};
  tasks.post(large{{1, 20, 300, 4000}, &sum});
  tasks.wait();
  CHECK(sum == 4321);
}

TEST_CASE("destroying a pool runs what is left, with workers and without", "[load]") {
  const auto workers = GENERATE(0U, 1U, 3U);
  std::atomic<int> ran{0};
  {
    ps::task_pool pool{{.workers = workers, .capacity = 256}};
    for (int i = 0; i < 100; ++i) {
      pool.post([&ran, &pool]() noexcept {
        pool.post([&ran]() noexcept { ++ran; });
        ++ran;
      });
    }
  }
  CHECK(ran == 200);
}

TEST_CASE("a pool asleep wakes for a post", "[load]") {
  ps::task_pool pool;
  std::atomic<long> number{0};
  pool.post([&number]() noexcept { number = this_thread_number(); });
  while (number == 0) std::this_thread::yield();
  wait_until_asleep(number);
  ps::sequence ran;
  pool.post([&ran]() noexcept { ran.advance(); });
  wait_until(ran, 1);  // a hang if it slept on
  SUCCEED();
}

TEST_CASE("every task of many posters is run once, also over a ring that is often full", "[load]") {
  constexpr std::size_t posters = 3;
  constexpr std::size_t each = 5000;
  const auto capacity = GENERATE(1U, 8U, 1024U);
  std::vector<std::atomic<std::uint8_t>> ran(posters * each);
  {
    ps::task_pool pool{{.workers = 2, .capacity = capacity}};
    std::vector<std::thread> threads;
    for (std::size_t poster = 0; poster < posters; ++poster) {
      threads.emplace_back([&pool, &ran, poster] {
        ps::task_group tasks{pool};
        for (std::size_t i = 0; i < each; ++i) {
          tasks.post([&one = ran[poster * each + i]]() noexcept { ++one; });
          if (i % 1000 == 0) tasks.wait();
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  std::size_t once = 0;
  for (const auto& times : ran) once += times == 1;
  CHECK(once == posters * each);
}

TEST_CASE("tasks may have groups of their own", "[load]") {
  ps::task_pool pool{{.workers = 2, .capacity = 16}};
  std::atomic<int> leaves{0};
  ps::task_group outer{pool};
  for (int i = 0; i < 50; ++i) {
    outer.post([&pool, &leaves]() noexcept {
      ps::task_group inner{pool};
      for (int j = 0; j < 10; ++j) inner.post([&leaves]() noexcept { ++leaves; });
    });
  }
  outer.wait();
  CHECK(leaves == 500);
}

TEST_CASE("each index of a range is visited once, and the caller takes part", "[load]") {
  const auto workers = GENERATE(0U, 1U, 3U);
  const auto count =
      GENERATE(std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{1000});
  ps::task_pool pool{{.workers = workers}};
  std::vector<int> visits(count);  // plain: the end of the range orders
  for (int round = 0; round < 20; ++round) {
    ps::for_each_index(pool, count, [&visits](std::uint64_t i) noexcept { ++visits[i]; });
  }
  std::size_t right = 0;
  for (const int times : visits) right += times == 20;
  CHECK(right == count);
}

TEST_CASE("a range is shared with the threads of the pool", "[load]") {
  ps::task_pool pool{{.workers = 1}};
  ps::sequence met;
  ps::for_each_index(pool, 2, [&met](std::uint64_t) noexcept {
    met.advance();
    met.wait([](std::uint32_t now) { return now >= 2; });  // a hang unless two threads are inside
  });
  CHECK(met.load() == 2);
}

TEST_CASE("a pool without room, or with too much, is refused", "[load]") {
  CHECK_THROWS_AS(ps::task_pool({.workers = 0, .capacity = 0}), ps::option_error);
  CHECK_THROWS_AS(ps::task_pool({.workers = 0, .capacity = (std::size_t{1} << 20) + 1}),
                  ps::option_error);
  CHECK_THROWS_WITH(ps::task_pool({.workers = 0, .capacity = 0}),
                    "task_pool: capacity: 0 is not in 1..1048576");
}
