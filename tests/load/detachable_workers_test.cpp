// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/detail/detachable_workers.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include <penstock/threads/support/waitable_counter.hpp>

#include "support/catch.hpp"
#include "support/last_words.hpp"

namespace ps = penstock;

namespace {

/// Shared state of three workers, one of which hangs.
struct hanging_state {
  ps::detail::waitable_counter begun;     // number of workers that have started
  ps::detail::waitable_counter stopping;  // incremented on a stop request
  ps::detail::waitable_counter resumed;   // releases the hanging worker
  ps::detail::waitable_counter gone;      // incremented when the owner is destroyed
  std::atomic<int> ended{0};
};

/// A worker function. One worker hangs until `resumed` is incremented; the others wait for a stop.
struct hanging_work {
  hanging_state* state;
  std::size_t hanging;
  void operator()(const std::stop_token&, std::size_t worker) const {
    state->begun.advance();
    const auto& until = worker == hanging ? state->resumed : state->stopping;
    until.wait([](std::uint32_t value) { return value != 0; });
    ++state->ended;
  }
};

struct wake_hanging {
  hanging_state* state;
  void operator()() const noexcept { state->stopping.advance(); }
};

using hanging_workers = ps::detail::detachable_workers<hanging_work, wake_hanging>;

/// An object that a detached worker keeps alive.
struct owner_of_workers {
  explicit owner_of_workers(std::shared_ptr<hanging_state> state)
      : all(std::move(state)), workers{3, hanging_work{all.get(), 1}, wake_hanging{all.get()}} {}
  ~owner_of_workers() { all->gone.advance(); }
  std::shared_ptr<hanging_state> all;
  hanging_workers workers;
};

void wait_until_begun(const hanging_state& state) {
  state.begun.wait([](std::uint32_t begun) { return begun == 3; });
}

}  // namespace

TEST_CASE("a stop detaches a lost worker, which keeps its owner alive until it returns", "[load]") {
  const auto state = std::make_shared<hanging_state>();
  auto owner = std::make_shared<owner_of_workers>(state);
  wait_until_begun(*state);
  std::atomic<bool> is_lost{false};
  std::thread other{[&, workers = &owner->workers] {
    while (state->ended < 2) std::this_thread::yield();
    is_lost = true;
    workers->recheck_lost();
  }};
  const auto lost = [&](std::size_t worker) { return worker == 1 && is_lost; };
  CHECK(owner->workers.stop(lost, owner) == 1);
  other.join();
  CHECK(state->ended == 2);
  CHECK(owner->workers.stop(lost, owner) == 0);  // the worker is already detached
  owner->workers.stop();
  owner.reset();
  CHECK(state->gone.load() == 0);
  state->resumed.store(1);
  state->gone.wait([](std::uint32_t gone) { return gone != 0; });
  CHECK(state->ended == 3);
}

TEST_CASE("a stop without an owner leaves a lost worker to a later stop", "[load]") {
  hanging_state state;
  {
    hanging_workers workers{3, hanging_work{&state, 0}, wake_hanging{&state}};
    wait_until_begun(state);
    CHECK(workers.stop([](std::size_t worker) { return worker == 0; }, nullptr) == 0);
    CHECK(state.ended == 2);
    state.resumed.store(1);
  }
  CHECK(state.ended == 3);
}

TEST_CASE("a worker that has returned is not detached", "[load]") {
  const auto state = std::make_shared<hanging_state>();
  const auto owner = std::make_shared<owner_of_workers>(state);
  wait_until_begun(*state);
  state->resumed.store(1);
  while (state->ended < 1) std::this_thread::yield();
  CHECK(owner->workers.stop([](std::size_t) { return false; }, owner) == 0);
  CHECK(state->ended == 3);
  CHECK(owner.use_count() == 1);
}

TEST_CASE("a stop does not wait for an exempt worker", "[load]") {
  struct exempt_owner {
    explicit exempt_owner(std::shared_ptr<hanging_state> state)
        : all(std::move(state)),
          workers{1,
                  [this](const std::stop_token&, std::size_t) {
                    all->begun.advance();
                    all->stopping.wait([](std::uint32_t value) { return value != 0; });
                    workers.exempt_caller();  // behaves like exit() while another thread waits
                    all->resumed.wait([](std::uint32_t value) { return value != 0; });
                  },
                  wake_hanging{all.get()}} {}
    ~exempt_owner() { all->gone.advance(); }
    std::shared_ptr<hanging_state> all;
    ps::detail::detachable_workers<std::function<void(std::stop_token, std::size_t)>, wake_hanging>
        workers;
  };
  const auto state = std::make_shared<hanging_state>();
  auto owner = std::make_shared<exempt_owner>(state);
  state->begun.wait([](std::uint32_t begun) { return begun == 1; });
  CHECK(owner->workers.stop([](std::size_t) { return false; }, owner) == 1);
  owner.reset();
  CHECK(state->gone.load() == 0);
  state->resumed.store(1);
  state->gone.wait([](std::uint32_t gone) { return gone != 0; });
}

TEST_CASE("a worker in exit() is not waited for, by itself or by another thread", "[load]") {
  using any_work = std::function<void(std::stop_token, std::size_t)>;
  struct in_exit {
    hanging_state state;
    std::optional<ps::detail::detachable_workers<any_work, wake_hanging>> workers;
  };
  // Static, because the detached worker may still be returning when the test has ended.
  static std::array<in_exit, 2> all;
  const auto wait = [](const ps::detail::waitable_counter& counter, std::uint32_t min) {
    counter.wait([min](std::uint32_t value) { return value >= min; });
  };
  const bool stops = GENERATE(false, true);
  in_exit& its = all[stops ? 1 : 0];
  const auto work = [&its, wait, stops](const std::stop_token&, std::size_t worker) {
    its.state.begun.advance();
    wait(its.state.begun, 3);  // waits for both workers and for the end of the constructor
    if (worker == 1) return wait(its.state.stopping, 1);
    stops ? its.workers->stop() : its.workers->exempt_caller();
    its.state.gone.advance();
    wait(its.state.resumed, 1);
    ++its.state.ended;
  };
  its.workers.emplace(2U, any_work{work}, wake_hanging{&its.state});
  its.state.begun.advance();
  wait(its.state.gone, 1);
  its.workers->stop();
  CHECK(its.state.ended == 0);
  its.state.resumed.store(1);
  while (its.state.ended < 1) std::this_thread::yield();
}

TEST_CASE("an exception of a worker stops the others", "[load]") {
  hanging_state state;
  const auto thrown = std::make_exception_ptr(std::runtime_error{"disk full"});
  const auto work = [&](const std::stop_token&, std::size_t worker) {
    if (worker == 0) std::rethrow_exception(thrown);
    state.stopping.wait([](std::uint32_t value) { return value != 0; });
    ++state.ended;
  };
  ps::detail::detachable_workers workers{2, work, wake_hanging{&state}};
  while (state.ended < 1) std::this_thread::yield();  // no other thread requests a stop
  workers.stop();
  workers.mark_retrieved(thrown);
}

TEST_CASE("the destructor prints the exception of a worker unless it was retrieved", "[load]") {
  for (const bool is_retrieved : {false, true}) {
    const std::string printed = last_words([is_retrieved] {
      {
        const auto thrown = std::make_exception_ptr(std::runtime_error{"disk full"});
        const auto work = [&](const std::stop_token&, std::size_t) {
          std::rethrow_exception(thrown);
        };
        ps::detail::detachable_workers workers{1, work, [] {}};
        workers.stop();
        workers.mark_retrieved(nullptr);
        workers.mark_retrieved(std::make_exception_ptr(std::runtime_error{"another one"}));
        if (is_retrieved) workers.mark_retrieved(thrown);
      }
      std::fputs("gone", stderr);
      std::abort();
    });
    CHECK(printed ==
          (is_retrieved
               ? "gone"
               : "penstock: worker_pool: a worker's exception, never retrieved: disk full\ngone"));
  }
}
