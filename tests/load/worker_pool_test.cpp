// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/worker_pool.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>

#include <penstock/core/sequence.hpp>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

/// What the workers of a test share.
struct shared {
  std::array<std::atomic<int>, 8> runs{};
  ps::sequence begun;   // moves with every worker that begins
  ps::sequence signal;  // what work blocks on; `wake` moves it
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

static_assert(!std::is_move_constructible_v<ps::worker_pool<block_until_stopped, wake>>);

void wait_for(const ps::sequence& begun, std::uint32_t count) {
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
  ps::sequence gate;
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

TEST_CASE("a pool of no workers is nothing to wait for", "[load]") {
  shared state;
  ps::worker_pool pool{0, block_until_stopped{&state}, wake{&state}};
  CHECK(pool.size() == 0);
  pool.stop();
  CHECK(state.begun.load() == 0);
  CHECK(message_of(pool.exception()) == "none");
}

TEST_CASE("what a worker throws is kept, and the others are stopped and woken", "[load]") {
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
