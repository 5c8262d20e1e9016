// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/signals/support/signals_blocked.hpp>

#include <csignal>
#include <thread>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

bool is_blocked_here(int signal) {
  ::sigset_t mask;
  CHECK(::pthread_sigmask(SIG_BLOCK, nullptr, &mask) == 0);
  return ::sigismember(&mask, signal) == 1;
}

}  // namespace

TEST_CASE("signals are blocked for a scope and the threads that start in it, and then as before",
          "[signals]") {
  bool was_other_blocked = false;
  std::thread{[&] {  // uses a thread with its own signal mask
    ::sigset_t before;
    ::sigemptyset(&before);
    ::sigaddset(&before, SIGUSR1);
    REQUIRE(::pthread_sigmask(SIG_SETMASK, &before, nullptr) == 0);
    {
      const ps::detail::signals_blocked scope;
      CHECK(is_blocked_here(SIGTERM));
      CHECK(is_blocked_here(SIGUSR1));
      std::thread{[&] { was_other_blocked = is_blocked_here(SIGTERM); }}.join();
    }
    CHECK_FALSE(is_blocked_here(SIGTERM));
    CHECK(is_blocked_here(SIGUSR1));
  }}
      .join();
  CHECK(was_other_blocked);
}
