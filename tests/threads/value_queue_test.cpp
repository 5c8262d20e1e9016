// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/value_queue.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/sleepy_atomics.hpp"

namespace ps = penstock;

namespace {

struct throws_when_moved {
  throws_when_moved(throws_when_moved&&) {}
};
static_assert(ps::queue_value<std::unique_ptr<int>> && ps::queue_value<std::string>);
static_assert(!ps::queue_value<throws_when_moved> && !ps::queue_value<int&>);
static_assert(!std::is_move_constructible_v<ps::value_queue<int>>);

using owner = std::shared_ptr<const int>;
using pointer = std::unique_ptr<std::uint32_t>;

/// Counts how many of its kind there are.
struct counted {
  static inline int living = 0;
  counted() { ++living; }
  counted(counted&&) noexcept { ++living; }
  counted& operator=(counted&&) noexcept = default;
  ~counted() { --living; }
};

}  // namespace

TEST_CASE("owners leave a queue in the order they came, each once", "[load]") {
  const auto capacity = GENERATE(std::size_t{1}, std::size_t{3}, std::size_t{64});
  ps::value_queue<pointer> queue{capacity};
  CHECK(queue.capacity() == capacity);
  for (std::uint32_t round = 0; round < 3; ++round) {
    CHECK(queue.was_empty());
    for (std::uint32_t i = 0; i < capacity; ++i) {
      pointer value = std::make_unique<std::uint32_t>(i);
      CHECK(queue.try_push(std::move(value)));
      CHECK(value == nullptr);
    }
    pointer late = std::make_unique<std::uint32_t>(99U);
    CHECK_FALSE(queue.try_push(std::move(late)));
    REQUIRE(late != nullptr);  // still the caller's
    for (std::uint32_t i = 0; i < capacity; ++i) CHECK(**queue.try_pop() == i);
    CHECK_FALSE(queue.try_pop().has_value());
  }
}

TEST_CASE("a queue of values refuses a capacity as one of tickets does", "[load]") {
  CHECK_THROWS_AS(ps::value_queue<owner>{0}, ps::option_error);
  CHECK_THROWS_AS(ps::value_queue<owner>{1048577}, ps::option_error);
}

TEST_CASE("what is left in a queue is destroyed with it, once", "[load]") {
  const owner watched = std::make_shared<const int>(1);
  {
    ps::value_queue<owner> queue{4};
    for (int i = 0; i < 3; ++i) CHECK(queue.push(owner{watched}));
    CHECK(watched.use_count() == 4);
    CHECK(queue.pop() == watched);
    CHECK(watched.use_count() == 3);  // its place holds it no longer
    if (GENERATE(false, true)) queue.close();
  }
  CHECK(watched.use_count() == 1);
  {
    ps::value_queue<counted> queue{2};
    for (int i = 0; i < 5; ++i) {
      CHECK(queue.push(counted{}));
      CHECK(counted::living == 1);
      CHECK(queue.pop().has_value());
      CHECK(counted::living == 0);  // nor is one that was moved from left in its place
    }
    queue.close();
    CHECK_FALSE(queue.push(counted{}));
  }
  CHECK(counted::living == 0);
}

TEST_CASE("a value whose push fails stays with the caller", "[load][promise:race-free-7]") {
  using namespace std::chrono_literals;
  ps::value_queue<pointer> queue{1};
  CHECK(queue.push(std::make_unique<std::uint32_t>(1U)));
  pointer value = std::make_unique<std::uint32_t>(2U);
  CHECK(queue.push_for(std::move(value), 1us).timed_out());
  REQUIRE(value != nullptr);
  CHECK(queue.pop_for(1us));
  CHECK(queue.pop_for(1us).timed_out());
  queue.close();
  queue.close();
  CHECK(queue.was_closed());
  CHECK_FALSE(queue.try_push(std::move(value)));
  CHECK_FALSE(queue.push(std::move(value)));
  CHECK(queue.push_for(std::move(value), 1h).closed());
  CHECK(queue.push_until(std::move(value), std::chrono::steady_clock::now() + 1h).closed());
  REQUIRE(value != nullptr);
  CHECK(*value == 2);
  CHECK_FALSE(queue.pop().has_value());
  CHECK(queue.pop_for(1h).closed());
}

TEST_CASE("closing ends every wait for room or for a value, and what is left comes", "[load]") {
  sleepy_atomics::reset();
  ps::value_queue<pointer, sleepy_atomics> queue{1};
  std::optional<pointer> got;
  std::thread consumer{[&] { got = queue.pop(); }};
  sleepy_atomics::wait_for_sleeps(1);
  CHECK(queue.push(std::make_unique<std::uint32_t>(1U)));
  consumer.join();
  REQUIRE(got.has_value());
  CHECK(**got == 1);

  CHECK(queue.push(std::make_unique<std::uint32_t>(2U)));
  sleepy_atomics::reset();
  pointer kept = std::make_unique<std::uint32_t>(3U);
  bool is_in = true;
  std::thread producer{[&] { is_in = queue.push(std::move(kept)); }};
  sleepy_atomics::wait_for_sleeps(1);
  queue.close();
  producer.join();
  CHECK_FALSE(is_in);
  REQUIRE(kept != nullptr);
  CHECK(**queue.pop() == 2);
  CHECK_FALSE(queue.pop().has_value());
}

TEST_CASE("no value is lost or doubled among many threads, one of which closes the queue",
          "[load][promise:race-free-7]") {
  constexpr std::uint32_t producers = 3;
  constexpr std::uint32_t each = 5'000;
  const auto capacity = GENERATE(std::size_t{1}, std::size_t{5});
  const bool is_early = GENERATE(false, true);  // closed while all push
  std::vector<std::atomic<std::uint8_t>> seen(producers * each);
  std::atomic<std::uint32_t> refused{0};
  std::atomic<std::uint32_t> popped{0};
  {
    ps::value_queue<pointer> queue{capacity};
    std::vector<std::thread> givers;
    std::vector<std::thread> takers;
    for (std::uint32_t p = 0; p < producers; ++p) {
      givers.emplace_back([&, p] {
        for (std::uint32_t i = 0; i < each; ++i) {
          pointer value = std::make_unique<std::uint32_t>(p * each + i);
          if (!queue.push(std::move(value))) {
            ++seen[*value];  // still here
            ++refused;
          }
        }
      });
    }
    for (int c = 0; c < 3; ++c) {
      takers.emplace_back([&] {
        while (const auto value = queue.pop()) {
          ++seen[**value];
          if (++popped == each && is_early) queue.close();
        }
      });
    }
    for (auto& giver : givers) giver.join();
    queue.close();
    for (auto& taker : takers) taker.join();
    while (const auto value = queue.try_pop()) ++seen[**value];
  }
  std::size_t once = 0;
  for (const auto& times : seen) once += times == 1;
  CHECK(once == producers * each);
  CHECK((refused != 0) == is_early);
}
