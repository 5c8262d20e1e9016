// SPDX-License-Identifier: BSL-1.0
// Tests how the number of prefetch threads grows, and how many allocations a request makes.
// stored_blobs_test.cpp tests the choice of blobs and the limit in bytes.
#include <penstock_ext/blob/stored_blobs.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/exit_while.hpp"
#include "support/in_child.hpp"
#include "support/threads.hpp"

namespace ps = penstock;

namespace {

/// A clock that advances only when the test requests it.
struct played_clock {
  using duration = std::chrono::milliseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<played_clock>;
  [[maybe_unused]] static constexpr bool is_steady = true;

  [[nodiscard]] static time_point now() noexcept { return time_point{duration{at.load()}}; }
  static inline std::atomic<rep> at{0};
};

/// A simulated source whose calls read nothing and take a given number of milliseconds. Calls end
/// when the test releases them, in the order in which they began.
struct played_reads {
  void operator()(std::span<const std::uint64_t>, std::span<const std::span<std::byte>>) const {
    std::unique_lock lock{mutex};
    const std::size_t number = ++begun;
    changed.notify_all();
    changed.wait(lock, [&] { return number <= let_go; });
    played_clock::at += milliseconds;
  }
  /// Returns true if `calls` calls begin. The call waits for a minute before returning false.
  [[nodiscard]] bool begins(std::size_t calls) const {
    std::unique_lock lock{mutex};
    return changed.wait_for(lock, std::chrono::minutes{1}, [&] { return begun >= calls; });
  }
  void let(std::size_t calls) {
    const std::lock_guard lock{mutex};
    let_go = calls;
    changed.notify_all();
  }

  played_clock::rep milliseconds = 0;
  std::size_t let_go = 0;
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  mutable std::size_t begun = 0;
};

/// A state in which two threads have started to read and many more blobs are requested.
struct two_that_read {
  two_that_read(std::size_t max_threads, played_clock::rep milliseconds) {
    reads.milliseconds = milliseconds;
    ahead = std::make_unique<read_ahead>(reads, 10 * 2000, max_threads);
    for (std::uint64_t i = 0; i < 1000; ++i) ahead->want(i, 10);
    CHECK(reads.begins(2));
  }
  ~two_that_read() { reads.let(static_cast<std::size_t>(-1)); }
  two_that_read(two_that_read&&) = delete;

  [[nodiscard]] bool has_threads(std::size_t count) const {
    return threads_added_become(before, count);
  }

  using read_ahead = ps::detail::blob_read_ahead<played_reads, played_clock>;
  std::vector<long> before = present_threads();
  played_reads reads;
  std::unique_ptr<read_ahead> ahead;
};

}  // namespace

TEST_CASE("long calls get one more thread, up to the limit", "[blob][promise:bounded-10]") {
  two_that_read of{3, 2};
  of.reads.let(2);
  CHECK(of.reads.begins(5));  // both threads call again, and a new thread calls too
  CHECK(of.has_threads(3));
  of.reads.let(5);
  CHECK(of.reads.begins(8));
  CHECK(of.has_threads(3));
}

TEST_CASE("short calls get no more threads", "[blob][promise:bounded-10]") {
  two_that_read of{16, 0};
  of.reads.let(2);
  CHECK(of.reads.begins(4));  // otherwise, a thread would have been added earlier
  CHECK(of.has_threads(2));
}

TEST_CASE("a source that ends during a call adds no thread", "[blob][promise:bounded-10]") {
  two_that_read of{3, 2};
  sleeper end{[&] { of.ahead.reset(); }};
  end.wait_until_it_sleeps();  // waits for the two threads
  of.reads.let(2);
  end.join();
  CHECK(of.reads.begun == 2);
}

TEST_CASE("queued blobs are seldom moved to new memory", "[blob]") {
  two_that_read of{2, 0};
  const std::size_t before = test::allocations.load();
  for (std::uint64_t i = 1000; i < 2000; ++i) of.ahead->want(i, 10);
  // Each blob adds one node to each of two tables. The tables and the request queue rarely grow.
  const std::size_t allocations = test::allocations.load() - before;
  CHECK(allocations >= 2 * 1000);
  CHECK(allocations < 2 * 1000 + 20);
}

TEST_CASE("exit() on a thread that reads ahead releases a thread that waits for the blob",
          "[blob][fault:hangs-8]") {
  using read_function =
      std::function<void(std::span<const std::uint64_t>, std::span<const std::span<std::byte>>)>;
  static std::optional<ps::detail::blob_read_ahead<read_function>> ahead;
  static const read_function read = [](auto, auto) {
    test::exit_while([] {
      ps::blob_buffer buffer;
      if (ahead->take(3, buffer)) ::_exit(2);  // blob 3 was never read
    });
  };
  CHECK(test::in_child([]() -> int {
          ahead.emplace(read, 100, 1);
          ahead->want(3, 10);
          for (;;) ::pause();
        }) == 7);
}
