// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/worker_pool.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <exception>
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

/// What the workers of a test share.
struct shared {
  std::array<std::atomic<int>, 8> runs{};
  ps::detail::waitable_counter begun;   // moves with every worker that begins
  ps::detail::waitable_counter signal;  // what work blocks on; `wake` moves it
  ps::detail::waitable_counter hung;    // what work waits for, whatever is asked for
  ps::detail::waitable_counter gone;    // moves with a pool that is destroyed
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

/// Blocks on the signal until the token says stop.
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

/// What is written to stderr while it lives: a few lines.
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
  /// All of it; nothing is written any more.
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
    wait_for(state.begun, 5);  // all five are inside at once
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
  pool.stop();
  CHECK(state.ended == 3);
  pool.stop();
  pool.request_stop();
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
  other.join();  // a hang if it waited for the work
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

TEST_CASE("a worker's exception is kept, and the others are stopped and woken",
          "[load][fault:memory-6]") {
  shared state;
  const block_until_stopped block{&state};
  ps::worker_pool pool{4,
                       [&](const std::stop_token& stop, std::size_t worker) {
                         if (worker == 2) {
                           wait_for(state.begun, 3);  // the others block
                           throw std::out_of_range{"worker 2 failed"};
                         }
                         block(stop, worker);
                       },
                       wake{&state}};
  // Nobody else asks for a stop: a hang if the exception did not.
  while (state.ended < 3) std::this_thread::yield();
  pool.stop();
  CHECK(message_of(pool.exception()) == "worker 2 failed");
  CHECK_THROWS_AS(std::rethrow_exception(pool.exception()), std::out_of_range);
}

TEST_CASE("a worker's exception is thrown to who asks for it", "[load]") {
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

TEST_CASE("an exception that nobody asks for is told in a line when the pool goes", "[load]") {
  shared state;
  const auto told = [&](auto work, bool asks) {
    const stderr_lines lines;
    {
      ps::worker_pool pool{1, work, wake{&state}};
      CHECK(message_of(pool.exception()) != "");  // too early to be an answer, or an answer
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
  CHECK(told(late(std::runtime_error{"disk full"}), false) ==
        "penstock: worker_pool: a worker's exception, not asked for: disk full\n");
  CHECK(told(late(7), false) ==
        "penstock: worker_pool: a worker's exception, not asked for: no std::exception\n");
  CHECK(told(late(std::runtime_error{"disk full"}), true).empty());
  CHECK(told([](const std::stop_token&, std::size_t) {}, false).empty());
  const stderr_lines lines;
  const auto got = std::make_exception_ptr(std::runtime_error{"disk full"});
  for (const auto& thrown : {got, std::make_exception_ptr(std::runtime_error{"another one"})}) {
    const auto throws = [&](const std::stop_token&, std::size_t) {
      std::rethrow_exception(thrown);
    };
    ps::worker_pool pool{1, throws, wake{&state}};
    pool.stop();
    pool.note_told(nullptr);
    pool.note_told(got);
  }
  CHECK(lines.all() == "penstock: worker_pool: a worker's exception, not asked for: another one\n");
}

TEST_CASE("of several exceptions the first is kept", "[load]") {
  shared state;
  ps::worker_pool pool{3,
                       [&](const std::stop_token& stop, std::size_t worker) {
                         if (worker == 1) throw std::runtime_error{"first"};
                         while (!stop.stop_requested()) std::this_thread::yield();
                         throw std::runtime_error{"later"};
                       },
                       wake{&state}};
  pool.stop();
  const auto message = message_of(pool.exception());
  CHECK((message == "first" || message == "later"));
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
    CHECK(owned.use_count() == 2);  // one work object, shared by all workers
  }
  CHECK(sum == 21);
  CHECK(owned.use_count() == 1);
}

TEST_CASE("a thread that can't be started names what to lower, and the others are stopped",
          "[load][fault:memory-6]") {
  enum outcome { told = 0, not_told = 1, not_stopped = 2, cannot_lower = 3 };
  const ::pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const ::rlimit few{3, 3};
    // The limit does not bind the superuser: the child becomes nobody.
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
                        text.find(" of 8 can't be started: lower workers") != std::string::npos &&
                        text.find("address space (ulimit -v)") != std::string::npos &&
                        error.code() == std::errc::resource_unavailable_try_again;
      if (!says) ::_exit(not_told);
    }
    int begun = 0;
    for (const auto& runs : state.runs) begun += runs.load();
    ::_exit(state.ended.load() == begun && state.wakes.load() != 0 ? told : not_stopped);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == cannot_lower) {
    WARN("not tested: the process may not give up its right to start threads");
    return;
  }
  CHECK(WEXITSTATUS(status) == told);
}

TEST_CASE("a thread whose stack finds no address space is told with that limit", "[load]") {
  if (test::sanitized) return;  // a sanitizer needs address space of its own
  enum outcome { told = 0, not_told = 1, cannot_lower = 3 };
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
      const bool says = text.starts_with("worker_pool: thread 1 of 2 can't be started") &&
                        text.find("address space (ulimit -v)") != std::string::npos;
      ::_exit(says ? told : not_told);
    }
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == cannot_lower) {
    WARN("not tested: address space is not limited here, as by qemu");
    return;
  }
  CHECK(WEXITSTATUS(status) == told);
}

namespace {

/// Work of which one worker hangs until it is let go on.
struct hang {
  shared* state;
  std::size_t hanging;
  void operator()(const std::stop_token& stop, std::size_t worker) const {
    if (worker != hanging) return block_until_stopped{state}(stop, worker);
    state->begun.advance();
    state->hung.wait([](std::uint32_t let_go) { return let_go != 0; });
    ++state->ended;
  }
};

/// A pool with what it uses, as a shared state.
struct pool_on_the_heap {
  explicit pool_on_the_heap(std::shared_ptr<shared> state)
      : all(std::move(state)), pool{3, hang{all.get(), 1}, wake{all.get()}} {}
  ~pool_on_the_heap() { all->gone.advance(); }
  std::shared_ptr<shared> all;
  ps::worker_pool<hang, wake> pool;
};

}  // namespace

TEST_CASE("a stop detaches a lost worker, which keeps its state alive until it returns", "[load]") {
  const auto state = std::make_shared<shared>();
  auto heap = std::make_shared<pool_on_the_heap>(state);
  wait_for(state->begun, 3);
  std::atomic<bool> is_lost{false};
  std::thread other{[&, pool = &heap->pool] {
    while (state->ended < 2) std::this_thread::yield();
    is_lost = true;
    pool->look_again();
  }};
  const auto lost = [&](std::size_t worker) { return worker == 1 && is_lost; };
  CHECK(heap->pool.stop(lost, heap) == 1);
  other.join();
  CHECK(state->ended == 2);
  heap.reset();
  CHECK(state->gone.load() == 0);
  state->hung.store(1);
  wait_for(state->gone, 1);
  CHECK(state->ended == 3);
}

TEST_CASE("a stop without a state leaves a lost worker to a later one", "[load]") {
  shared state;
  {
    ps::worker_pool<hang, wake> pool{3, hang{&state, 0}, wake{&state}};
    wait_for(state.begun, 3);
    CHECK(pool.stop([](std::size_t worker) { return worker == 0; }, nullptr) == 0);
    CHECK(state.ended == 2);
    state.hung.store(1);
  }
  CHECK(state.ended == 3);
}

TEST_CASE("a lost worker that has returned by now is joined", "[load]") {
  const auto state = std::make_shared<shared>();
  auto heap = std::make_shared<pool_on_the_heap>(state);
  wait_for(state->begun, 3);
  state->hung.store(1);
  while (state->ended < 1) std::this_thread::yield();
  // Asked for the workers that have not ended: the second is past its work, and ends.
  CHECK(heap->pool.stop([](std::size_t) { return false; }, heap) == 0);
  CHECK(state->ended == 3);
  CHECK(heap.use_count() == 1);
}
