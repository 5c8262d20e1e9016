// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/detail/claim_cursor.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/threads/support/atomics.hpp>

#include "support/catch.hpp"
#include "support/sleepy_atomics.hpp"

namespace ps = penstock;
using kind = ps::detail::claim::kind;

static_assert(alignof(ps::detail::claim_cursor<>) == ps::detail::cache_line &&
                  sizeof(ps::detail::claim_cursor<>) == 3 * ps::detail::cache_line,
              "three lines: what never changes, what claims write, and what waiters look at");

namespace {

bool is(const ps::detail::claim& got, kind what, std::uint32_t batch, std::uint32_t slot,
        std::uint32_t run) {
  return got.what == what && got.batch == batch && got.slot == slot && got.chunk == run;
}

/// Atomics that call functions of the test: `on_write` before each write to a 32-bit word, and
/// `on_pause` and `on_yield` while a thread waits. The functions simulate the actions of other
/// threads at that moment.
struct staged {
  static inline std::function<void()> on_write;
  static inline std::function<void()> on_pause;
  static inline std::function<void()> on_yield;

  template <class T>
  struct atomic : std::atomic<T> {
    using std::atomic<T>::atomic;
    void store(T value, std::memory_order order) noexcept {
      write();
      std::atomic<T>::store(value, order);
    }
    T fetch_add(T value, std::memory_order order) noexcept {
      write();
      return std::atomic<T>::fetch_add(value, order);
    }
    void notify(std::uint32_t) noexcept { std::atomic<T>::notify_all(); }

   private:
    static void write() {
      if constexpr (std::is_same_v<T, std::uint32_t>) {
        if (const auto act = std::exchange(on_write, nullptr)) act();
      }
    }
  };

  using word = atomic<std::uint32_t>;

  static void pause() noexcept {
    if (on_pause) on_pause();
  }
  static void yield() noexcept {
    if (on_yield) on_yield();
  }
  static void reset() { on_write = on_pause = on_yield = nullptr; }
};

}  // namespace

TEST_CASE("the first claim opens batch 0, and later claims wait", "[load]") {
  ps::detail::claim_cursor cursor{3};
  CHECK(cursor.next().what == kind::open);
  CHECK(cursor.next().what == kind::wait);
  CHECK(cursor.next().what == kind::wait);
}

TEST_CASE("each chunk of a batch is claimed once, and then one claim opens the next batch",
          "[load]") {
  ps::detail::claim_cursor cursor{4};
  CHECK(cursor.next().what == kind::open);
  cursor.publish(0, 7);  // the opener claims chunk 0 itself
  CHECK(is(cursor.next(), kind::work, 0, 7, 1));
  CHECK(is(cursor.next(), kind::work, 0, 7, 2));
  CHECK(is(cursor.next(), kind::work, 0, 7, 3));
  CHECK(cursor.next().what == kind::open);
  CHECK(is(cursor.next(), kind::wait, 0, 7, 5));
  cursor.publish(1, 2);
  CHECK(is(cursor.next(), kind::work, 1, 2, 1));
}

TEST_CASE("a batch of fewer chunks starts at a higher chunk number and ends at the same number",
          "[load]") {
  ps::detail::claim_cursor cursor{4};
  CHECK(cursor.next().what == kind::open);
  cursor.publish(0, 7, 2);  // chunks 2 and 3; the opener claims chunk 2 itself
  CHECK(is(cursor.next(), kind::work, 0, 7, 3));
  CHECK(cursor.next().what == kind::open);
  CHECK(cursor.next().what == kind::wait);
  cursor.publish(1, 2, 3);  // a single chunk
  CHECK(cursor.next().what == kind::open);
  cursor.publish(2, 5);
  CHECK(is(cursor.next(), kind::work, 2, 5, 1));
}

TEST_CASE("a batch of one chunk belongs to its opener", "[load]") {
  ps::detail::claim_cursor cursor{1};
  for (std::uint32_t batch = 0; batch < 5; ++batch) {
    CHECK(cursor.next().what == kind::open);
    CHECK(cursor.next().what == kind::wait);
    cursor.publish(batch, batch % 3);
  }
}

TEST_CASE("the largest slot, chunk and batch numbers fit into one word", "[load]") {
  using cursor_type = ps::detail::claim_cursor<>;
  cursor_type cursor{ps::detail::max_chunks};
  CHECK(cursor.next().what == kind::open);
  constexpr std::uint32_t last = ~std::uint32_t{0};
  cursor.publish(last, ps::detail::max_slots - 1);
  bool right = true;
  for (std::uint32_t run = 1; run < ps::detail::max_chunks; ++run) {
    right = right && is(cursor.next(), kind::work, last, ps::detail::max_slots - 1, run);
  }
  CHECK(right);
  CHECK(cursor.next().what == kind::open);
  for (int i = 0; i < 4096; ++i) right = right && cursor.next().what == kind::wait;
  CHECK(right);  // up to 4096 workers may wait at the same time
  cursor.publish(0, 0);
  CHECK(is(cursor.next(), kind::work, 0, 0, 1));
}

TEST_CASE("waiting for the next batch ends when it is published, and not before", "[load]") {
  sleepy_atomics::reset();
  ps::detail::claim_cursor<sleepy_atomics> cursor{1};
  CHECK(cursor.next().what == kind::open);
  const auto waiting = cursor.next();
  REQUIRE(waiting.what == kind::wait);
  std::thread waiter{[&] { cursor.wait_past(waiting.batch); }};
  sleepy_atomics::wait_for_sleeps(1);
  cursor.publish(0, 0);
  waiter.join();
  CHECK(cursor.next().what == kind::open);
}

TEST_CASE("a batch wakes one worker per chunk, and the end wakes all", "[load]") {
  sleepy_atomics::reset();
  ps::detail::claim_cursor<sleepy_atomics> cursor{2};
  CHECK(cursor.next().what == kind::open);
  const auto waiting = cursor.next();
  std::atomic<std::uint32_t> back{0};
  std::vector<std::thread> waiters;
  for (std::uint32_t i = 0; i < 6; ++i) {
    waiters.emplace_back([&] {
      cursor.wait_past(waiting.batch);
      ++back;
    });
    sleepy_atomics::wait_for_sleeps(i + 1);
  }
  cursor.publish(0, 0);
  // a single call wakes one waiter for chunk 1 and one to open batch 1.
  CHECK(sleepy_atomics::wakes == 1);
  waiters[0].join();  // wakes the two waiters that slept first
  waiters[1].join();
  CHECK(back == 2);
  CHECK(cursor.next().what == kind::work);
  CHECK(cursor.next().what == kind::open);
  cursor.wake();
  for (std::size_t i = 2; i < waiters.size(); ++i) waiters[i].join();
  CHECK(sleepy_atomics::wakes == 2);
}

TEST_CASE("waiting for a batch that is already open returns immediately", "[load]") {
  ps::detail::claim_cursor cursor{1};
  CHECK(cursor.next().what == kind::open);
  const auto waiting = cursor.next();
  cursor.publish(0, 0);
  cursor.wait_past(waiting.batch);
  cursor.publish(1, 0);
  cursor.wait_past(waiting.batch);
  SUCCEED();
}

TEST_CASE("waking ends all waiting", "[load]") {
  sleepy_atomics::reset();
  ps::detail::claim_cursor<sleepy_atomics> cursor{1};
  CHECK(cursor.next().what == kind::open);
  const auto waiting = cursor.next();
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) waiters.emplace_back([&] { cursor.wait_past(waiting.batch); });
  sleepy_atomics::wait_for_sleeps(3);
  cursor.wake();
  for (auto& waiter : waiters) waiter.join();
  cursor.wait_past(waiting.batch);
  SUCCEED();
}

TEST_CASE("waking ends waiting permanently, for batches published later too", "[load]") {
  // An opener may publish another batch after the wake if it checked for a stop before the wake.
  staged::reset();
  ps::detail::claim_cursor<staged> cursor{1};
  CHECK(cursor.next().what == kind::open);
  cursor.wake();
  cursor.publish(0, 0);
  CHECK(cursor.next().what == kind::open);
  const auto waiting = cursor.next();
  REQUIRE(is(waiting, kind::wait, 0, 0, 2));
  bool stuck = false;
  staged::on_yield = [&] {
    stuck = true;
    staged::on_yield = nullptr;
    cursor.wake();  // unblocks the waiters
  };
  cursor.wait_past(waiting.batch);
  CHECK_FALSE(stuck);
  staged::reset();
}

TEST_CASE("while an opener is held up inside publish, waiters claim nothing", "[load]") {
  // Batch 0 is published. Before its opener wakes the waiters, batch 1 is opened, published and
  // fully claimed. A worker that waits for batch 2 must sleep, because repeated claims would
  // overflow the chunk number into the slot bits.
  staged::reset();
  ps::detail::claim_cursor<staged> cursor{1};
  CHECK(cursor.next().what == kind::open);
  bool came_between = false;
  staged::on_write = [&] {
    const auto other = cursor.next();
    if (other.what != kind::open) return;
    came_between = true;
    cursor.publish(1, 1);
  };
  cursor.publish(0, 0);
  if (came_between) {
    CHECK(cursor.next().what == kind::open);
    const auto waiting = cursor.next();
    REQUIRE(is(waiting, kind::wait, 1, 1, 2));
    bool waited = false;
    staged::on_pause = [&] {
      waited = true;
      staged::on_pause = nullptr;
      cursor.publish(2, 2);
    };
    cursor.wait_past(waiting.batch);
    CHECK(waited);
  }
  CHECK(came_between);
  staged::reset();
}

TEST_CASE("a worker whose claims keep failing waits without yielding",
          "[load][promise:bounded-8]") {
  constexpr auto patience = ps::detail::claim_cursor<>::patience;
  for (const std::uint32_t idle_spins : {0U, patience - 1, patience, patience + 1}) {
    sleepy_atomics::reset();
    ps::detail::claim_cursor<sleepy_atomics> cursor{1};
    CHECK(cursor.next().what == kind::open);
    const auto waiting = cursor.next();
    std::thread waiter{[&] { cursor.wait_past(waiting.batch, idle_spins); }};
    sleepy_atomics::wait_for_sleeps(1);
    CHECK((sleepy_atomics::yields == 0) == (idle_spins >= patience));
    cursor.publish(0, 0);
    waiter.join();
  }
}

TEST_CASE(
    "waiters help a batch that was opened while the previous opener is delayed inside "
    "publish",
    "[load]") {
  staged::reset();
  ps::detail::claim_cursor<staged> cursor{1};
  CHECK(cursor.next().what == kind::open);
  const auto waiting = cursor.next();
  CHECK(waiting.what == kind::wait);
  ps::detail::claim late{};
  staged::on_write = [&] {
    CHECK(cursor.next().what == kind::open);
    late = cursor.next();  // the worker must wait for batch 1
    cursor.publish(1, 1);
  };
  cursor.publish(0, 0);
  REQUIRE(is(late, kind::wait, 0, 0, 2));
  bool slept = false;
  staged::on_pause = [&] {
    slept = true;
    staged::on_pause = nullptr;
    cursor.wake();  // unblocks the waiters
  };
  cursor.wait_past(waiting.batch);
  cursor.wait_past(late.batch);  // batch 1 is open
  CHECK_FALSE(slept);
  staged::reset();
}

TEST_CASE("many workers claim each chunk of each batch once, with its slot",
          "[load][promise:race-free-6]") {
  constexpr std::uint32_t workers = 4;
  const auto runs = GENERATE(1U, 2U, 5U, 16U);
  constexpr std::uint32_t batches = 3000;
  constexpr std::uint32_t slots = 7;
  ps::detail::claim_cursor cursor{runs};
  std::vector<std::atomic<std::uint8_t>> claimed(std::size_t{batches} * runs);
  // Not atomic: `publish` and `next` order the accesses.
  std::vector<std::uint32_t> slot_of(batches);
  std::uint32_t opened = 0;  // only the opener uses it
  std::atomic<bool> done{false};
  std::atomic<std::uint32_t> wrong{0};
  std::atomic<std::uint32_t> openers{0};
  std::vector<std::thread> threads;
  for (std::uint32_t worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&] {
      while (!done) {
        auto got = cursor.next();
        if (got.what == kind::wait) {
          cursor.wait_past(got.batch);
          continue;
        }
        if (got.what == kind::open) {
          if (++openers != 1) ++wrong;
          if (opened == batches) {
            done = true;
            cursor.wake();
            return;
          }
          const std::uint32_t batch = opened++;
          slot_of[batch] = batch * 3 % slots;
          got = {kind::work, batch, slot_of[batch], 0};
          --openers;
          cursor.publish(batch, got.slot);
        }
        if (got.batch >= batches || got.chunk >= runs || got.slot != slot_of[got.batch]) {
          ++wrong;
          continue;
        }
        ++claimed[std::size_t{got.batch} * runs + got.chunk];
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  std::size_t once = 0;
  for (const auto& times : claimed) once += times == 1;
  CHECK(once == std::size_t{batches} * runs);
}
