// SPDX-License-Identifier: BSL-1.0
#include <csignal>
#include <thread>

#include <penstock_ext/signals/stop_on_signal.hpp>

#include "signals.hpp"

static_assert(PENSTOCK_COMPILED);

bool parts::is_in_use(int number) {
  try {
    const penstock::stop_on_signal second{number};
  } catch (const penstock::signal_in_use& rejected) {
    return rejected.number() == number;
  }
  return false;
}

bool parts::gets(int number) {
  const penstock::stop_on_signal own{number};
  ::raise(number);
  while (!own.token().stop_requested()) std::this_thread::yield();
  return own.received() == number;
}
