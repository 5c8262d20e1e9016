// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/detail/lookahead_thread.hpp>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/asleep.hpp"
#include "support/catch.hpp"

using penstock::detail::plan_ledger;

TEST_CASE("announced bytes occupy room until their batch is read, in any order",
          "[load][promise:bounded-12]") {
  plan_ledger ledger{100};
  CHECK(ledger.record_announced(3, 20));
  CHECK(ledger.record_announced(3, 10));
  CHECK(ledger.record_announced(4, 30));
  CHECK(ledger.record_announced(6, 40));  // batch 5 has no announced samples
  CHECK(ledger.room() == 0);
  ledger.record_opened(3);
  ledger.record_opened(4);
  ledger.record_read(4);
  CHECK(ledger.room() == 30);
  ledger.record_read(5);
  ledger.record_read(3);
  ledger.record_read(3);
  CHECK(ledger.bytes() == 40);
  CHECK(ledger.room() == 60);
}

TEST_CASE("an opened batch is no longer announced", "[load][promise:bounded-12]") {
  plan_ledger ledger{100};
  CHECK(ledger.record_announced(0, 10));
  ledger.record_opened(1);
  CHECK_FALSE(ledger.record_announced(1, 10));
  CHECK(ledger.bytes() == 10);
  CHECK(ledger.record_announced(2, 10));
  ledger.void_from(2);  // keeps the plan of batch 0, which is being read
  CHECK(ledger.bytes() == 10);
  ledger.record_read(0);
  CHECK(ledger.bytes() == 0);
}

TEST_CASE("the announcing thread sleeps until something changes, and ends permanently", "[load]") {
  plan_ledger ledger{100};
  CHECK(ledger.wait_until_silent(std::chrono::milliseconds{0}));
  ledger.record_opened(0);
  REQUIRE(ledger.wait());  // returns at once, because a batch was opened
  CHECK_FALSE(ledger.wait_until_silent(std::chrono::milliseconds{0}));
  std::atomic<long> number = 0;
  std::atomic<int> rounds = 0;
  std::thread telling{[&] {
    number = this_thread_number();
    while (ledger.wait()) ++rounds;
  }};
  while (number == 0) std::this_thread::yield();
  wait_until_asleep(number);
  CHECK(rounds == 0);
  REQUIRE(ledger.record_announced(1, 10));
  ledger.record_read(1);
  while (rounds == 0) std::this_thread::yield();
  ledger.end();
  telling.join();
  CHECK(ledger.room() == 0);
  CHECK_FALSE(ledger.record_announced(7, 1));
  CHECK(ledger.wait_until_silent(std::chrono::milliseconds{0}));
}

TEST_CASE("stopping the announcing thread waits up to its limit", "[load][fault:hangs-5]") {
  plan_ledger ledger{100};
  ledger.record_opened(0);
  REQUIRE(ledger.wait());  // from now, the thread counts as announcing
  std::atomic<long> number = 0;
  std::atomic<bool> has_returned = false;
  bool is_silent = false;
  std::thread ending{[&] {
    number = this_thread_number();
    is_silent = ledger.wait_until_silent((std::chrono::milliseconds::max)());
    has_returned = true;
  }};
  while (number == 0) std::this_thread::yield();
  while (!is_asleep(number) && !has_returned) std::this_thread::yield();
  CHECK_FALSE(has_returned);
  ledger.end();
  CHECK_FALSE(ledger.wait());
  ending.join();
  CHECK(is_silent);
}
