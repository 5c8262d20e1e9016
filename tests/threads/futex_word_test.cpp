// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/support/atomics.hpp>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "support/asleep.hpp"
#include "support/catch.hpp"

using penstock::detail::futex_word;

namespace {

/// Threads that wait until a word differs from 0. The constructor returns when all threads are
/// asleep.
struct sleepers {
  explicit sleepers(std::size_t count) : numbers(count) {
    for (auto& number : numbers) {
      threads.emplace_back([&] {
        number = this_thread_number();
        word.wait(0, std::memory_order_acquire);
        ++awake;
      });
    }
    // Checks twice, because under an emulator such as qemu a thread may first sleep on a lock.
    for (int time = 0; time < 2; ++time) {
      for (auto& number : numbers) {
        while (number == 0) std::this_thread::yield();
        wait_until_asleep(number);
      }
    }
  }
  ~sleepers() {
    for (auto& thread : threads) thread.join();
  }

  futex_word word{0};
  std::atomic<int> awake{0};
  std::vector<std::atomic<long>> numbers;
  std::vector<std::thread> threads;
};

}  // namespace

TEST_CASE("a wait for a value that already differs does not sleep", "[core]") {
  const futex_word word{7};
  word.wait(6, std::memory_order_acquire);
  CHECK(word.load() == 7);
}

TEST_CASE("a notification wakes one or all sleeping threads of a word", "[core]") {
  sleepers all{3};
  all.word.store(1);
  CHECK(all.awake == 0);  // a new value without a notification wakes no thread
  all.word.notify(1);
  while (all.awake < 1) std::this_thread::yield();
  SECTION("then the others at once") { all.word.notify_all(); }
  SECTION("then the others one by one") {
    all.word.notify(1);
    all.word.notify(1);
  }
  while (all.awake < 3) std::this_thread::yield();
}

TEST_CASE("one call wakes the given number of sleepers", "[core]") {
  sleepers all{3};
  all.word.store(1);
  all.word.notify(0);  // the kernel would wake one thread for a count of 0
  all.word.notify(2);
  while (all.awake < 2) std::this_thread::yield();
  for (int turn = 0; turn < 100; ++turn) std::this_thread::yield();
  CHECK(all.awake == 2);
  all.word.notify(~std::uint32_t{0});  // more than an int of the kernel can hold
  while (all.awake < 3) std::this_thread::yield();
}

TEST_CASE("a thread that is woken spuriously sleeps again", "[core]") {
  sleepers one{1};
  one.word.notify_all();
  wait_until_asleep(one.numbers[0]);
  CHECK(one.awake == 0);
  one.word.store(1);
  one.word.notify_all();
}
