// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/intake/support/consumer_signal.hpp>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "support/catch.hpp"

namespace {

/// A clock that advances by one nanosecond per query, so its time is the number of queries. The
/// times are far in the past of the real clock, so sleeping until one of them returns immediately.
struct looked_at_clock {
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::steady_clock::time_point;
  static inline std::atomic<int> looks{0};
  static time_point now() noexcept { return at(++looks); }
  static time_point at(int look) noexcept { return time_point{duration{look}}; }
};

using looked_at_signal = penstock::detail::consumer_signal<looked_at_clock>;

}  // namespace

TEST_CASE("a thread reads the clock only for the end of its wait", "[intake][promise:honest-14]") {
  std::mutex mutex;
  std::unique_lock lock{mutex};
  for (const int spin : {0, 100}) {
    looked_at_signal changed{std::chrono::nanoseconds{spin}};
    for (const int turn : {1, 2}) {  // a second wait spins as well
      INFO("spin " << spin << ", turn " << turn);
      looked_at_clock::looks = 500;
      changed.wait_until(lock, looked_at_clock::at(1'000));
      CHECK(lock.owns_lock());
      CHECK(looked_at_clock::looks <=
            501);  // the thread sleeps until the end of the wait or the start of `spin`
      looked_at_clock::looks = 950;
      changed.wait_until(lock, looked_at_clock::at(1'000));
      CHECK(lock.owns_lock());
      CHECK(looked_at_clock::looks == (spin == 0 ? 950 : 1'000));
    }
  }
}

TEST_CASE("a thread sleeps up to the time for which it spins, and no longer", "[intake]") {
  std::mutex mutex;
  std::unique_lock lock{mutex};
  const std::chrono::hours spin{1};
  penstock::detail::consumer_signal<> changed{spin};
  const auto awake = std::chrono::steady_clock::now() + std::chrono::milliseconds{1};
  while (std::chrono::steady_clock::now() < awake) {
    changed.wait_until(lock, awake + spin);  // would hang if the thread slept until the end
  }
  CHECK(lock.owns_lock());
}

TEST_CASE("a spinning thread releases the mutex and sees notifications",
          "[intake][promise:honest-14]") {
  const bool are_all = GENERATE(false, true);
  std::mutex mutex;
  looked_at_signal changed{std::chrono::hours{1}};
  bool is_ready = false;
  const auto never = looked_at_clock::at(2'000'000'000);
  looked_at_clock::looks = 0;
  std::thread waiting{[&] {
    std::unique_lock lock{mutex};
    while (!is_ready) changed.wait_until(lock, never);
  }};
  while (looked_at_clock::looks < 1'000) std::this_thread::yield();  // waits until the thread spins
  {
    std::unique_lock lock{mutex};
    is_ready = true;
    are_all ? changed.notify_all() : changed.notify_one(lock);
  }
  waiting.join();
  CHECK(looked_at_clock::looks < 2'000'000'000);
}
