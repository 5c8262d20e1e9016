// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/batch_queue.hpp>

#include <penstock_ext/lockfree/single_producer_single_consumer.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/catch.hpp"
#include "support/sleepy_atomics.hpp"

namespace ps = penstock;

namespace {

struct ticket {
  std::uint32_t slot;
  bool behind_copy;
};
static_assert(ps::detail::queue_ticket<ticket> && ps::detail::queue_ticket<std::uint64_t>);
static_assert(!ps::detail::queue_ticket<std::string>);
static_assert(!ps::detail::queue_ticket<std::unique_ptr<int>>);
static_assert(!ps::detail::queue_ticket<std::array<char, 65>>);
static_assert(!std::is_move_constructible_v<ps::batch_queue<int>>);
static_assert(alignof(ps::batch_queue<int>) == ps::detail::cache_line);

template <class Threads = ps::many_producers_many_consumers>
using queue_of_sleepers = ps::batch_queue<int, Threads, sleepy_atomics>;

}  // namespace

TEMPLATE_TEST_CASE("tickets leave a queue in order of arrival", "[load]",
                   ps::many_producers_many_consumers, ps::single_producer_single_consumer) {
  ps::batch_queue<ticket, TestType> queue{3};
  CHECK(queue.was_empty());
  for (std::uint32_t round = 0; round < 100; ++round) {
    for (std::uint32_t i = 0; i < 3; ++i) CHECK(queue.try_push({10 * round + i, i == 1}));
    CHECK_FALSE(queue.was_empty());
    for (std::uint32_t i = 0; i < 3; ++i) {
      const auto got = queue.try_pop();
      REQUIRE(got.has_value());
      CHECK(got->slot == 10 * round + i);
      CHECK(got->behind_copy == (i == 1));
    }
    CHECK_FALSE(queue.try_pop().has_value());
    CHECK(queue.was_empty());
  }
}

TEMPLATE_TEST_CASE("a queue holds exactly its capacity", "[load]",
                   ps::many_producers_many_consumers, ps::single_producer_single_consumer) {
  const auto capacity =
      GENERATE(std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{64}, std::size_t{65536});
  ps::batch_queue<std::uint32_t, TestType> queue{capacity};
  CHECK(queue.capacity() == capacity);
  bool all = true;
  for (std::uint32_t round = 0; round < 2; ++round) {
    for (std::uint32_t i = 0; i < capacity; ++i) all = all && queue.try_push(i);
    CHECK(all);
    CHECK_FALSE(queue.try_push(99));
    for (std::uint32_t i = 0; i < capacity; ++i) all = all && queue.try_pop() == i;
    CHECK(all);
    CHECK(queue.was_empty());
  }
}

TEST_CASE("a capacity of 0 or above the maximum is rejected by name", "[load]") {
  CHECK_THROWS_MATCHES(ps::batch_queue<int>{0}, ps::option_error,
                       Catch::Matchers::Message("batch_queue: capacity: 0 is not in 1..1048576"));
  CHECK_THROWS_MATCHES(
      ps::batch_queue<int>{1048577}, ps::option_error,
      Catch::Matchers::Message("batch_queue: capacity: 1048577 is not in 1..1048576"));
}

TEMPLATE_TEST_CASE("a pop waits for a push", "[load]", ps::many_producers_many_consumers,
                   ps::single_producer_single_consumer) {
  sleepy_atomics::reset();
  queue_of_sleepers<TestType> queue{2};
  std::optional<int> got;
  std::thread consumer{[&] { got = queue.pop(); }};
  sleepy_atomics::wait_for_sleeps(1);
  CHECK(queue.push(5));
  consumer.join();
  CHECK(got == 5);
}

TEMPLATE_TEST_CASE("a quiet push wakes no consumer until wake_poppers", "[load]",
                   ps::many_producers_many_consumers, ps::single_producer_single_consumer) {
  sleepy_atomics::reset();
  queue_of_sleepers<TestType> queue{2};
  std::optional<int> got;
  std::thread consumer{[&] { got = queue.pop(); }};
  sleepy_atomics::wait_for_sleeps(1);
  CHECK(queue.try_push_quietly(5));
  CHECK(sleepy_atomics::wakes == 0);
  queue.wake_poppers();
  consumer.join();
  CHECK(got == 5);
  // A consumer that is awake finds a ticket even without a wake-up.
  CHECK(queue.try_push_quietly(6));
  CHECK(queue.pop() == 6);
  CHECK(queue.try_push_quietly(7));
  CHECK(queue.try_push_quietly(8));
  CHECK_FALSE(queue.try_push_quietly(9));
  queue.close();
  CHECK_FALSE(queue.try_push_quietly(9));
  CHECK(queue.pop() == 7);
}

TEMPLATE_TEST_CASE("a push waits for room", "[load]", ps::many_producers_many_consumers,
                   ps::single_producer_single_consumer) {
  sleepy_atomics::reset();
  queue_of_sleepers<TestType> queue{1};
  CHECK(queue.push(1));
  bool taken = false;
  std::thread producer{[&] { taken = queue.push(2); }};
  sleepy_atomics::wait_for_sleeps(1);
  CHECK(queue.pop() == 1);
  producer.join();
  CHECK(taken);
  CHECK(queue.pop() == 2);
}

TEST_CASE("one producer and one consumer that sometimes sleep miss no ticket", "[load]") {
  constexpr std::uint64_t tickets = 20'000;
  const auto capacity = GENERATE(std::size_t{1}, std::size_t{3}, std::size_t{64});
  ps::batch_queue<std::uint64_t, ps::single_producer_single_consumer> there{capacity};
  ps::batch_queue<std::uint64_t, ps::single_producer_single_consumer> back{capacity};
  std::thread other{[&] {
    while (const auto got = there.pop()) back.push(*got);
    back.close();
  }};
  // Pushes in bursts, so that each side sometimes finds the other side asleep.
  std::uint64_t next = 0;
  bool all = true;
  for (std::uint64_t sent = 0; sent < tickets;) {
    const std::uint64_t gust = 1 + sent % capacity;
    for (std::uint64_t i = 0; i < gust; ++i) all = all && there.push(sent++);
    for (std::uint64_t i = 0; i < gust; ++i) all = all && back.pop() == next++;
  }
  there.close();
  CHECK_FALSE(back.pop().has_value());
  other.join();
  CHECK(all);
}

TEST_CASE("closing wakes every waiting pop", "[load]") {
  sleepy_atomics::reset();
  queue_of_sleepers<> queue{2};
  std::atomic<int> nothing{0};
  std::vector<std::thread> consumers;
  for (int i = 0; i < 3; ++i) {
    consumers.emplace_back([&] { nothing += queue.pop().has_value() ? 0 : 1; });
  }
  sleepy_atomics::wait_for_sleeps(3);
  queue.close();
  for (auto& consumer : consumers) consumer.join();
  CHECK(nothing == 3);
  CHECK(queue.was_closed());
}

TEST_CASE("closing wakes every waiting push, and its ticket is not in the queue", "[load]") {
  sleepy_atomics::reset();
  queue_of_sleepers<> queue{1};
  CHECK(queue.push(1));
  std::atomic<int> rejected{0};
  std::vector<std::thread> producers;
  for (int i = 0; i < 3; ++i) {
    producers.emplace_back([&] { rejected += queue.push(2) ? 0 : 1; });
  }
  sleepy_atomics::wait_for_sleeps(3);
  queue.close();
  for (auto& producer : producers) producer.join();
  CHECK(rejected == 3);
  CHECK(queue.pop() == 1);
  CHECK_FALSE(queue.pop().has_value());
}

TEMPLATE_TEST_CASE(
    "a closed queue delivers its remaining tickets, accepts nothing, and stays "
    "closed",
    "[load]", ps::many_producers_many_consumers, ps::single_producer_single_consumer) {
  ps::batch_queue<int, TestType> queue{4};
  for (int i = 0; i < 3; ++i) CHECK(queue.try_push(i));
  CHECK_FALSE(queue.was_closed());
  queue.close();
  queue.close();
  CHECK(queue.was_closed());
  CHECK_FALSE(queue.try_push(9));
  CHECK_FALSE(queue.push(9));
  CHECK(queue.pop() == 0);
  CHECK(queue.try_pop() == 1);
  CHECK(queue.pop() == 2);
  CHECK_FALSE(queue.pop().has_value());
  CHECK_FALSE(queue.try_pop().has_value());
}

TEST_CASE("no ticket is lost or duplicated among many producers and consumers",
          "[load][promise:race-free-6]") {
  constexpr std::uint32_t producers = 3;
  constexpr std::uint32_t consumers = 3;
  constexpr std::uint32_t each = 20'000;
  const auto capacity = GENERATE(std::size_t{1}, std::size_t{4}, std::size_t{1000});
  ps::batch_queue<std::uint32_t> queue{capacity};
  std::vector<std::atomic<std::uint8_t>> seen(producers * each);
  std::atomic<std::uint32_t> out_of_order{0};
  std::atomic<std::size_t> inside{0};
  std::atomic<std::size_t> max_inside{0};
  std::vector<std::thread> givers;
  std::vector<std::thread> takers;
  for (std::uint32_t p = 0; p < producers; ++p) {
    givers.emplace_back([&, p] {
      for (std::uint32_t i = 0; i < each; ++i) {
        queue.push(p * each + i);
        // The count is incremented after a push and decremented after a pop. The count exceeds the
        // queue size only by tickets that were popped but not yet subtracted.
        const std::size_t now = ++inside;
        for (std::size_t max = max_inside; now > max && now < producers * each;) {
          if (max_inside.compare_exchange_weak(max, now)) break;
        }
      }
    });
  }
  for (std::uint32_t c = 0; c < consumers; ++c) {
    takers.emplace_back([&] {
      std::array<std::int64_t, producers> last{-1, -1, -1};
      while (const auto got = queue.pop()) {
        --inside;
        ++seen[*got];
        const std::uint32_t p = *got / each;
        if (*got <= last[p]) ++out_of_order;  // each consumer sees each producer's order
        last[p] = *got;
      }
    });
  }
  for (auto& giver : givers) giver.join();
  queue.close();
  for (auto& taker : takers) taker.join();
  std::size_t once = 0;
  for (const auto& times : seen) once += times == 1;
  CHECK(once == producers * each);
  CHECK(out_of_order == 0);
  // Each consumer may have popped one ticket without having subtracted it yet.
  CHECK(max_inside <= capacity + consumers);
  CHECK(inside == 0);
}

TEMPLATE_TEST_CASE("writes before a push are visible after its pop", "[load]",
                   ps::many_producers_many_consumers, ps::single_producer_single_consumer) {
  constexpr std::uint32_t slots = 4;
  constexpr std::uint32_t rounds = 10'000;
  std::array<std::uint64_t, slots> memory{};  // not atomic, because the tickets order all accesses
  ps::batch_queue<std::uint32_t, TestType> free{slots};
  ps::batch_queue<std::uint32_t, TestType> full{slots};
  for (std::uint32_t i = 0; i < slots; ++i) CHECK(free.try_push(i));
  std::thread producer{[&] {
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      const auto slot = free.pop();
      memory[*slot] = round;
      full.push(*slot);
    }
    full.close();
  }};
  std::uint64_t sum = 0;
  while (const auto slot = full.pop()) {
    sum += memory[*slot];
    memory[*slot] = 0;
    free.push(*slot);
  }
  producer.join();
  CHECK(sum == std::uint64_t{rounds} * (rounds + 1) / 2);
}

TEMPLATE_TEST_CASE("a timed pop or push returns ready, closed or timeout",
                   "[load][promise:race-free-6]", ps::many_producers_many_consumers,
                   ps::single_producer_single_consumer) {
  using namespace std::chrono_literals;
  ps::batch_queue<int, TestType> queue{1};
  const auto end = std::chrono::steady_clock::now() + 1ms;
  const auto none = queue.pop_until(end);
  CHECK(std::chrono::steady_clock::now() >= end);  // the call has waited until the deadline
  CHECK_FALSE(none);
  CHECK(none.timed_out());
  CHECK_FALSE(none.closed());
  CHECK(queue.pop_for(-1h).timed_out());
  CHECK(queue.pop_for(0.5us).timed_out());
  CHECK(queue.push_for(7, std::chrono::hours::max()) == ps::wait_status::done);
  CHECK(queue.push_until(8, end) == ps::wait_status::timed_out);
  CHECK(queue.push_for(8, 1us) == ps::wait_status::timed_out);
  queue.close();
  CHECK(queue.push_for(9, 1h) == ps::wait_status::closed);
  const auto left = queue.pop_for(1h);
  REQUIRE(left);
  CHECK(*left == 7);
  CHECK(left.status() == ps::wait_status::done);
  CHECK(queue.pop_for(1h).closed());
  CHECK(queue.pop_until(std::chrono::steady_clock::time_point::max()).closed());
}

TEMPLATE_TEST_CASE("a timed wait ends with its event or its deadline", "[load]",
                   ps::many_producers_many_consumers, ps::single_producer_single_consumer) {
  using namespace std::chrono_literals;
  sleepy_atomics::reset();
  queue_of_sleepers<TestType> queue{1};
  ps::pop_result<int> got{ps::wait_status::timed_out};
  std::thread consumer{[&] { got = queue.pop_for(1h); }};
  sleepy_atomics::wait_for_sleeps(1);
  CHECK(queue.try_push(5));
  consumer.join();
  REQUIRE(got);
  CHECK(*got == 5);

  CHECK(queue.try_push(6));
  sleepy_atomics::reset();
  auto pushed = ps::wait_status::timed_out;
  std::thread producer{[&] { pushed = queue.push_for(7, 1h); }};
  sleepy_atomics::wait_for_sleeps(1);
  CHECK(queue.pop() == 6);
  producer.join();
  CHECK(pushed == ps::wait_status::done);

  sleepy_atomics::reset();
  std::thread rejected{[&] { pushed = queue.push_for(8, 1h); }};
  sleepy_atomics::wait_for_sleeps(1);
  queue.close();
  rejected.join();
  CHECK(pushed == ps::wait_status::closed);
  CHECK(queue.pop() == 7);
}

TEST_CASE("consumers that give up neither lose tickets nor consume the wake-ups of others",
          "[load][promise:race-free-6]") {
  using namespace std::chrono_literals;
  constexpr std::uint32_t tickets = 20'000;
  ps::batch_queue<std::uint32_t> queue{4};
  std::atomic<std::uint32_t> popped{0};
  std::vector<std::thread> takers;
  for (int i = 0; i < 2; ++i) {
    takers.emplace_back([&] {  // the deadline often passes before the next ticket
      for (auto got = queue.pop_for(1us); !got.closed(); got = queue.pop_for(1us)) {
        if (got) ++popped;
      }
    });
    takers.emplace_back([&] {
      while (queue.pop()) ++popped;
    });
  }
  for (std::uint32_t i = 0; i < tickets; ++i) {
    if (queue.push_for(i, 1us) != ps::wait_status::done) CHECK(queue.push(i));
  }
  queue.close();
  for (auto& taker : takers) taker.join();
  CHECK(popped == tickets);
}
