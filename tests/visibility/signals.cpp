// SPDX-License-Identifier: BSL-1.0
// Tests a program without `PENSTOCK_COMPILED` that uses a library with `PENSTOCK_COMPILED`, which
// hides its symbols. Both must share one table of signals. Exits with 0 on success.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <penstock_ext/signals/stop_on_signal.hpp>

#include "signals.hpp"

static_assert(!PENSTOCK_COMPILED);

int main() {
  bool is_right = true;
  const auto check = [&](bool holds, const char* what) {
    if (holds) return;
    std::printf("failed: %s\n", what);
    is_right = false;
  };
  {
    const penstock::stop_on_signal first{SIGUSR1};
    check(parts::is_in_use(SIGUSR1), "the library is rejected a signal of the program's");
    check(parts::gets(SIGUSR2), "the library gets another one");
    check(!first.token().stop_requested(), "the program does not get that one");
    ::raise(SIGUSR1);
    while (!first.token().stop_requested()) std::this_thread::yield();
    check(first.received() == SIGUSR1, "the program gets its own, after the library has asked");
  }
  check(!parts::is_in_use(SIGUSR1), "the library may have it afterwards");
  return is_right ? EXIT_SUCCESS : EXIT_FAILURE;
}
