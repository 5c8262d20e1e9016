// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/eventcount.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/catch.hpp"
#include "support/sleepy_atomics.hpp"

namespace ps = penstock;

TEST_CASE("a counter holds the number that was stored last", "[core]") {
  ps::detail::waitable_counter word;
  CHECK(word.load() == 0);
  word.store(7);
  CHECK(word.load() == 7);
  word.advance();
  CHECK(word.load() == 8);
  CHECK(ps::detail::waitable_counter{5}.load() == 5);
}

TEST_CASE("a counter wraps around after 2^32 - 1", "[core]") {
  ps::detail::waitable_counter word{std::numeric_limits<std::uint32_t>::max()};
  word.advance();
  CHECK(word.load() == 0);
}

TEST_CASE("waiting for a condition that already holds returns at once", "[core]") {
  sleepy_atomics::reset();
  const ps::detail::basic_waitable_counter<sleepy_atomics> word{3};
  CHECK(word.wait([](std::uint32_t now) { return now == 3; }) == 3);
  CHECK(sleepy_atomics::pauses == 0);
  CHECK(sleepy_atomics::sleeps == 0);
}

TEST_CASE("a waiter spins and yields a bounded number of times, then sleeps until it is woken",
          "[core][promise:bounded-8]") {
  sleepy_atomics::reset();
  ps::detail::basic_waitable_counter<sleepy_atomics> word;
  std::thread waiter{[&] { word.wait([](std::uint32_t now) { return now == 2; }); }};
  sleepy_atomics::wait_for_sleeps(1);
  CHECK(sleepy_atomics::pauses == 32);
  CHECK(sleepy_atomics::yields == 8);
  word.store(1);  // not the expected value
  word.store(2);
  waiter.join();
  CHECK(sleepy_atomics::wakes >= 1);
  CHECK(sleepy_atomics::pauses == 32);
}

TEST_CASE("a waiter that expects a long wait spins and sleeps, without yielding", "[core]") {
  sleepy_atomics::reset();
  ps::detail::basic_waitable_counter<sleepy_atomics> word;
  std::thread waiter{[&] { word.wait([](std::uint32_t now) { return now == 1; }, false); }};
  sleepy_atomics::wait_for_sleeps(1);
  CHECK(sleepy_atomics::pauses == 32);
  CHECK(sleepy_atomics::yields == 0);
  word.store(1);
  waiter.join();
}

TEST_CASE("a write makes no system call while no thread sleeps", "[core]") {
  sleepy_atomics::reset();
  ps::detail::basic_waitable_counter<sleepy_atomics> word;
  word.store(1);
  word.advance();
  CHECK(sleepy_atomics::wakes == 0);
  // A write makes no system call after a sleeping thread has woken, either.
  std::thread waiter{[&] { word.wait([](std::uint32_t now) { return now == 3; }); }};
  sleepy_atomics::wait_for_sleeps(1);
  word.store(3);
  waiter.join();
  const std::uint32_t wakes = sleepy_atomics::wakes;
  word.store(4);
  word.advance();
  CHECK(sleepy_atomics::wakes == wakes);
}

TEST_CASE("a quiet step is visible, and wakes no thread until requested", "[core]") {
  sleepy_atomics::reset();
  ps::detail::basic_waitable_counter<sleepy_atomics> word;
  std::thread waiter{[&] { word.wait([](std::uint32_t now) { return now == 1; }); }};
  sleepy_atomics::wait_for_sleeps(1);
  word.advance_quietly();
  CHECK(word.load() == 1);
  CHECK(sleepy_atomics::wakes == 0);
  word.wake();
  waiter.join();
  CHECK(word.wait([](std::uint32_t now) { return now == 1; }) == 1);
  const std::uint32_t wakes = sleepy_atomics::wakes;
  word.wake();  // no thread sleeps
  CHECK(sleepy_atomics::wakes == wakes);
}

TEST_CASE("one write wakes all waiters", "[core]") {
  sleepy_atomics::reset();
  ps::detail::basic_waitable_counter<sleepy_atomics> word;
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&] { word.wait([](std::uint32_t now) { return now != 0; }); });
  }
  sleepy_atomics::wait_for_sleeps(4);
  word.advance();
  for (auto& waiter : waiters) waiter.join();
  CHECK(word.load() == 1);
}

TEST_CASE("a step wakes the requested number of waiters, and the others keep sleeping", "[core]") {
  sleepy_atomics::reset();
  ps::detail::basic_waitable_counter<sleepy_atomics> word;
  std::atomic<std::uint32_t> woken{0};
  std::vector<std::thread> waiters;
  for (std::uint32_t i = 0; i < 5; ++i) {
    waiters.emplace_back([&] {
      word.wait([](std::uint32_t now) { return now != 0; });
      ++woken;
    });
    sleepy_atomics::wait_for_sleeps(i + 1);
  }
  word.advance_waking(0);
  CHECK(sleepy_atomics::wakes == 0);
  word.advance_waking(2);
  CHECK(sleepy_atomics::wakes == 1);  // a single system call
  waiters[0].join();                  // wakes the threads that fell asleep first
  waiters[1].join();
  CHECK(woken == 2);
  CHECK(word.load() == 2);
  word.advance_waking(3);
  CHECK(sleepy_atomics::wakes == 2);  // a second system call wakes all other threads
  for (std::size_t i = 2; i < waiters.size(); ++i) waiters[i].join();
  word.advance_waking(1);  // no thread sleeps
  CHECK(sleepy_atomics::wakes == 2);
  CHECK(word.load() == 4);
}

TEST_CASE("advancing from several threads loses no step", "[core]") {
  ps::detail::waitable_counter word;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 10'000; ++k) word.advance();
    });
  }
  CHECK(word.wait([](std::uint32_t now) { return now == 40'000; }) == 40'000);
  for (auto& thread : threads) thread.join();
}

TEST_CASE("writes before a store are visible to its waiters, and no wake-up is lost",
          "[core][promise:race-free-6]") {
  ps::detail::waitable_counter ping;
  ps::detail::waitable_counter pong;
  std::uint32_t message = 0;  // not atomic, because the counters order the accesses
  constexpr std::uint32_t rounds = 20'000;
  std::thread other{[&] {
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      ping.wait([round](std::uint32_t now) { return now == round; });
      message += round;
      pong.store(round);
    }
  }};
  std::uint32_t wrong = 0;
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    message = round;
    ping.store(round);
    pong.wait([round](std::uint32_t now) { return now == round; });
    wrong += message != 2 * round;
  }
  other.join();
  CHECK(wrong == 0);
}

TEST_CASE("an eventcount's waiter polls a bounded number of times, then sleeps until notified",
          "[core][promise:bounded-8]") {
  sleepy_atomics::reset();
  ps::detail::basic_eventcount<sleepy_atomics> eventcount;
  std::atomic<int> value{0};
  int looks = 0;
  std::thread waiter{[&] {
    eventcount.wait([&] {
      ++looks;
      return value == 2;
    });
  }};
  sleepy_atomics::wait_for_sleeps(1);
  CHECK(sleepy_atomics::pauses == 48);
  CHECK(sleepy_atomics::yields == 12);
  CHECK(looks == 15);
  value = 1;  // not the expected value
  eventcount.notify();
  sleepy_atomics::wait_for_sleeps(2);
  value = 2;
  eventcount.notify();
  waiter.join();
  CHECK(sleepy_atomics::wakes == 2);
  CHECK(sleepy_atomics::pauses == 48);
}

TEST_CASE("a notify makes no system call while no thread sleeps, and one for all that do",
          "[core]") {
  sleepy_atomics::reset();
  ps::detail::basic_eventcount<sleepy_atomics> eventcount;
  eventcount.notify();
  CHECK(sleepy_atomics::wakes == 0);
  std::atomic<bool> open{false};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&] { eventcount.wait([&] { return open.load(); }); });
  }
  sleepy_atomics::wait_for_sleeps(4);
  open = true;
  eventcount.notify();
  eventcount.notify();  // the waiters may not have returned yet
  for (auto& waiter : waiters) waiter.join();
  eventcount.notify();
  CHECK(sleepy_atomics::wakes == 1);
}

TEST_CASE("an announced change wakes no thread until requested", "[core]") {
  sleepy_atomics::reset();
  ps::detail::basic_eventcount<sleepy_atomics> eventcount;
  std::atomic<bool> open{false};
  std::thread waiter{[&] { eventcount.wait([&] { return open.load(); }); }};
  sleepy_atomics::wait_for_sleeps(1);
  open = true;
  eventcount.announce();
  CHECK(sleepy_atomics::wakes == 0);
  eventcount.wake();
  waiter.join();
  CHECK(sleepy_atomics::wakes == 1);
  eventcount.wake();  // no thread is asleep
  CHECK(sleepy_atomics::wakes == 1);
}

TEST_CASE("no notify is lost between two threads that wait for each other", "[core]") {
  ps::detail::basic_eventcount<> eventcount;
  ps::detail::basic_eventcount<> answer;
  std::atomic<std::uint32_t> requested{0};
  std::atomic<std::uint32_t> answered{0};
  constexpr std::uint32_t rounds = 20'000;
  // Relaxed ordering suffices, because the eventcount alone makes the change visible to a woken
  // thread.
  const auto wait_for = [](auto& rings, const auto& word, std::uint32_t value) {
    rings.wait([&] { return word.load(std::memory_order_relaxed) == value; });
  };
  std::thread other{[&] {
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      wait_for(eventcount, requested, round);
      answered.store(round, std::memory_order_relaxed);
      answer.notify();
    }
  }};
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    requested.store(round, std::memory_order_relaxed);
    eventcount.notify();
    wait_for(answer, answered, round);
  }
  other.join();
  CHECK(answered == rounds);
}

TEST_CASE("threads sleep on four bytes directly in the kernel", "[core][promise:bounded-8]") {
  CHECK(sizeof(ps::detail::waitable_counter) == 8);  // the value and the number of sleeping threads
  CHECK(sizeof(ps::detail::basic_eventcount<>) ==
        8);  // the number of wake-ups and a flag for sleeping threads
  CHECK_FALSE(std::is_copy_constructible_v<ps::detail::waitable_counter>);
  CHECK((ps::detail::cache_line == 64 || ps::detail::cache_line == 128));
}
