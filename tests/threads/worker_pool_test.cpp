// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/worker_pool.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include <penstock/threads/support/waitable_counter.hpp>

#include "support/catch.hpp"
#include "support/no_more_threads.hpp"
#include "support/sanitized.hpp"

namespace ps = penstock;

namespace {

/// The state shared by the workers of a test.
struct shared {
  std::array<std::atomic<int>, 8> runs{};
  ps::detail::waitable_counter begun;   // incremented by each worker that starts
  ps::detail::waitable_counter signal;  // the work blocks on this counter, and `wake` increments it
  std::atomic<int> wakes{0};
  std::atomic<int> ended{0};
};

struct wake {
  shared* state;
  void operator()() const noexcept {
    ++state->wakes;
    state->signal.advance();
  }
};

/// A worker function that blocks on the signal until a stop is requested.
struct block_until_stopped {
  shared* state;
  void operator()(const std::stop_token& stop, std::size_t worker) const {
    ++state->runs[worker];
    state->begun.advance();
    while (!stop.stop_requested()) {
      const auto seen = state->signal.load();
      if (stop.stop_requested()) break;
      state->signal.wait([seen](std::uint32_t now) { return now != seen; });
    }
    ++state->ended;
  }
};

/// Captures the lines written to stderr during its lifetime. The pipe can hold only a few lines.
class stderr_lines {
 public:
  stderr_lines() : before_(::dup(STDERR_FILENO)) {
    REQUIRE(::pipe(ends_.data()) == 0);
    REQUIRE(::dup2(ends_[1], STDERR_FILENO) == STDERR_FILENO);
    ::close(ends_[1]);
  }
  stderr_lines(stderr_lines&&) = delete;
  ~stderr_lines() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    ::close(ends_[0]);
  }
  /// Returns all captured lines and stops capturing.
  [[nodiscard]] std::string all() const {
    ::dup2(before_, STDERR_FILENO);
    std::array<char, 1000> text{};
    const ::ssize_t bytes = ::read(ends_[0], text.data(), text.size());
    return {text.data(), static_cast<std::size_t>(bytes)};
  }

 private:
  int before_;
  std::array<int, 2> ends_{};
};

static_assert(!std::is_move_constructible_v<ps::worker_pool<block_until_stopped, wake>>);

void wait_for(const ps::detail::waitable_counter& begun, std::uint32_t count) {
  begun.wait([count](std::uint32_t now) { return now >= count; });
}

std::string message_of(const std::exception_ptr& error) {
  if (!error) return "none";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& problem) {
    return problem.what();
  }
}

}  // namespace

TEST_CASE("every worker runs the work once, with its own number, at the same time as the others",
          "[load]") {
  shared state;
  {
    const ps::worker_pool pool{5, block_until_stopped{&state}, wake{&state}};
    CHECK(pool.size() == 5);
    wait_for(state.begun, 5);  // all five run at the same time
    CHECK(state.ended == 0);
  }
  for (std::size_t worker = 0; worker < 8; ++worker) {
    CHECK(state.runs[worker] == (worker < 5 ? 1 : 0));
  }
}

TEST_CASE("destroying a pool wakes work that blocks, and waits for it", "[load]") {
  shared state;
  std::optional<ps::worker_pool<block_until_stopped, wake>> pool;
  pool.emplace(3U, block_until_stopped{&state}, wake{&state});
  wait_for(state.begun, 3);
  pool.reset();
  CHECK(state.wakes >= 1);
  CHECK(state.ended == 3);
}

TEST_CASE("stopping a pool waits for its work and may be done again", "[load]") {
  shared state;
  ps::worker_pool pool{3, block_until_stopped{&state}, wake{&state}};
  wait_for(state.begun, 3);
  {
    const std::jthread other{[&pool] { pool.stop(); }};  // no thread is joined twice
    pool.stop();
  }
  CHECK(state.ended == 3);
  pool.stop();
  pool.request_stop();
  pool.detach(0);  // the thread has been joined
  CHECK(state.ended == 3);
  CHECK(pool.size() == 3);
  CHECK(message_of(pool.exception()) == "none");
}

TEST_CASE("a stop request does not wait, and comes from any thread", "[load]") {
  shared state;
  ps::detail::waitable_counter gate;
  ps::worker_pool pool{1,
                       [&](const std::stop_token& stop, std::size_t) {
                         state.begun.advance();
                         gate.wait([](std::uint32_t open) { return open != 0; });
                         if (stop.stop_requested()) ++state.ended;
                       },
                       wake{&state}};
  wait_for(state.begun, 1);
  std::thread other{[&pool] { pool.request_stop(); }};
  other.join();  // would hang if the call waited for the work
  CHECK(state.ended == 0);
  CHECK(state.wakes == 1);
  gate.store(1);
  pool.stop();
  CHECK(state.ended == 1);
}

TEST_CASE("a pool of no workers ends at once", "[load]") {
  shared state;
  ps::worker_pool pool{0, block_until_stopped{&state}, wake{&state}};
  CHECK(pool.size() == 0);
  pool.stop();
  CHECK(state.begun.load() == 0);
  CHECK(message_of(pool.exception()) == "none");
}

TEST_CASE("a worker's exception is stored, and the other workers are stopped and woken",
          "[load][fault:memory-6]") {
  shared state;
  const block_until_stopped block{&state};
  ps::worker_pool pool{4,
                       [&](const std::stop_token& stop, std::size_t worker) {
                         if (worker == 2) {
                           wait_for(state.begun, 3);  // the other workers block
                           throw std::out_of_range{"worker 2 failed"};
                         }
                         block(stop, worker);
                       },
                       wake{&state}};
  // Nothing else requests a stop, so the test would hang if the exception did not.
  while (state.ended < 3) std::this_thread::yield();
  pool.stop();
  CHECK(message_of(pool.exception()) == "worker 2 failed");
  CHECK_THROWS_AS(std::rethrow_exception(pool.exception()), std::out_of_range);
}

TEST_CASE("a worker's exception is rethrown to the caller that retrieves it", "[load]") {
  shared state;
  const bool is_std = GENERATE(false, true);
  ps::worker_pool pool{1,
                       [&](const std::stop_token&, std::size_t) {
                         if (is_std) throw std::out_of_range{"no more"};
                         throw 7;
                       },
                       wake{&state}};
  pool.stop();
  if (is_std) {
    CHECK_THROWS_AS(pool.rethrow(), std::out_of_range);
  } else {
    CHECK_THROWS_AS(pool.rethrow(), int);
  }
  ps::worker_pool idle{0, block_until_stopped{&state}, wake{&state}};
  idle.rethrow();
}

TEST_CASE("the destructor of a pool prints an exception that was never retrieved", "[load]") {
  shared state;
  const auto reported = [&](auto work, bool asks) {
    const stderr_lines lines;
    {
      ps::worker_pool pool{1, work, wake{&state}};
      // The exception is null until a worker throws, so the check retrieves nothing.
      CHECK(message_of(pool.exception()) != "");
      pool.stop();
      if (asks) (void)pool.exception();
    }
    return lines.all();
  };
  const auto late = [](auto thrown) {
    return [thrown](const std::stop_token& stop, std::size_t) {
      while (!stop.stop_requested()) std::this_thread::yield();
      throw thrown;
    };
  };
  CHECK(reported(late(std::runtime_error{"disk full"}), false) ==
        "penstock: worker_pool: a worker's exception, never retrieved: disk full\n");
  CHECK(reported(late(7), false) ==
        "penstock: worker_pool: a worker's exception, never retrieved: not a std::exception\n");
  CHECK(reported(late(std::runtime_error{"disk full"}), true).empty());
  CHECK(reported([](const std::stop_token&, std::size_t) {}, false).empty());
}

TEST_CASE("the first of several exceptions is stored", "[load]") {
  shared state;
  ps::worker_pool pool{3,
                       [&](const std::stop_token& stop, std::size_t worker) {
                         if (worker == 1) throw std::runtime_error{"first"};
                         while (!stop.stop_requested()) std::this_thread::yield();
                         ++state.ended;
                         throw std::runtime_error{"later"};
                       },
                       wake{&state}};
  while (state.ended < 2) std::this_thread::yield();  // only worker 1 requests a stop
  pool.stop();
  CHECK(message_of(pool.exception()) == "first");
}

TEST_CASE("work that returns by itself leaves the others running", "[load]") {
  shared state;
  const block_until_stopped block{&state};
  ps::worker_pool pool{2,
                       [&](const std::stop_token& stop, std::size_t worker) {
                         if (worker == 0) return state.begun.advance();
                         block(stop, worker);
                       },
                       wake{&state}};
  wait_for(state.begun, 2);
  CHECK(state.ended == 0);
  CHECK(state.wakes == 0);
  pool.stop();
  CHECK(state.ended == 1);
}

TEST_CASE("a pool keeps its work alive until its threads are gone", "[load]") {
  const auto owned = std::make_shared<int>(7);
  std::atomic<int> sum{0};
  {
    shared state;
    ps::worker_pool pool{3, [owned, &sum](const std::stop_token&, std::size_t) { sum += *owned; },
                         wake{&state}};
    CHECK(owned.use_count() == 2);  // all workers share one work object
  }
  CHECK(sum == 21);
  CHECK(owned.use_count() == 1);
}

TEST_CASE("work that needs no wake-up observes only the stop token", "[load]") {
  std::atomic<int> ended{0};
  ps::worker_pool pool{2, [&](const std::stop_token& stop, std::size_t) {
                         while (!stop.stop_requested()) std::this_thread::yield();
                         ++ended;
                       }};
  CHECK_FALSE(pool.is_worker());
  pool.stop();
  CHECK(ended == 2);
}

TEST_CASE("a worker that stops its pool waits for the others and is detached", "[load]") {
  // Static, because the detached thread may still run at the end of the test.
  static shared state;
  static std::optional<ps::worker_pool<std::function<void(std::stop_token, std::size_t)>, wake>>
      pool;
  const auto work = [](const std::stop_token& stop, std::size_t worker) {
    if (worker != 0) return block_until_stopped{&state}(stop, worker);
    wait_for(state.begun, 3);  // waits for the other workers and for the end of the constructor
    state.runs[0] = pool->is_worker() ? 1 : 0;
    pool->stop();
    state.begun.advance();
  };
  pool.emplace(3U, work, wake{&state});
  state.begun.advance();
  wait_for(state.begun, 4);
  CHECK(state.ended == 2);
  CHECK(state.runs[0] == 1);
  pool->stop();
}

TEST_CASE("a detached worker is not waited for, and may be detached again", "[load]") {
  static shared state;  // the thread may still run at the end of the test
  static std::optional<ps::worker_pool<block_until_stopped, wake>> pool;
  pool.emplace(1U, block_until_stopped{&state}, wake{&state});
  wait_for(state.begun, 1);
  pool->detach(0);
  pool->detach(0);
  pool->stop();
  while (state.ended < 1) std::this_thread::yield();
}

TEST_CASE(
    "a thread that cannot be started is reported with the option to lower, and the others "
    "stop",
    "[load][fault:memory-6]") {
  enum outcome { reported = 0, not_reported = 1, not_stopped = 2, cannot_lower = 3 };
  const ::pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const ::rlimit few{3, 3};
    // The limit does not apply to root, so the child switches to the user nobody.
    if (::setrlimit(RLIMIT_NPROC, &few) != 0 || (::geteuid() == 0 && ::setuid(65534) != 0)) {
      ::_exit(cannot_lower);
    }
    shared state;
    try {
      const ps::worker_pool pool{8, block_until_stopped{&state}, wake{&state}};
      ::_exit(cannot_lower);
    } catch (const std::system_error& error) {
      const std::string text = error.what();
      const bool says = text.starts_with("worker_pool: thread ") &&
                        text.find(" of 8 cannot be started: lower workers") != std::string::npos &&
                        text.find("address space (ulimit -v)") != std::string::npos &&
                        error.code() == std::errc::resource_unavailable_try_again;
      if (!says) ::_exit(not_reported);
    }
    int begun = 0;
    for (const auto& runs : state.runs) begun += runs.load();
    ::_exit(state.ended.load() == begun && state.wakes.load() != 0 ? reported : not_stopped);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == cannot_lower) {
    WARN("not tested: the process may not give up its right to start threads");
    return;
  }
  CHECK(WEXITSTATUS(status) == reported);
}

TEST_CASE("a thread whose stack does not fit the address space is reported with that limit",
          "[load]") {
  if (test::sanitized) return;  // a sanitizer needs address space itself
  enum outcome { reported = 0, not_reported = 1, cannot_lower = 3 };
  const ::pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (!test::allow_no_more_threads()) ::_exit(cannot_lower);
    shared state;
    try {
      const ps::worker_pool pool{2, block_until_stopped{&state}, wake{&state}};
      ::_exit(cannot_lower);
    } catch (const std::system_error& error) {
      const std::string text = error.what();
      const bool says = text.starts_with("worker_pool: thread 1 of 2 cannot be started") &&
                        text.find("address space (ulimit -v)") != std::string::npos;
      ::_exit(says ? reported : not_reported);
    }
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == cannot_lower) {
    WARN("not tested: address space is not limited here, as by qemu");
    return;
  }
  CHECK(WEXITSTATUS(status) == reported);
}
