// SPDX-License-Identifier: BSL-1.0
// A checked build that was not asked to explain faults installs no handler of SIGSEGV.
#include <csignal>
#include <cstdio>

#include "ramps.hpp"

static_assert(PENSTOCK_CHECKED == 1);

int main() {
  struct ::sigaction before {};
  struct ::sigaction after {};
  ::sigaction(SIGSEGV, nullptr, &before);
  auto loader = checked_tests::make_loader(1);
  for (auto& batch : loader.epochs(0, 2)) static_cast<void>(batch.size());
  ::sigaction(SIGSEGV, nullptr, &after);
  const bool is_same = before.sa_flags == after.sa_flags && before.sa_handler == after.sa_handler;
  std::puts(is_same ? "no handler" : "a handler that nobody asked for");
  return is_same ? 0 : 1;
}
