// SPDX-License-Identifier: BSL-1.0
// A checked build allocates memory for each lease. If this allocation fails, the consumer receives
// std::bad_alloc.
#include <cstdio>

#include "flow/out_of_memory.hpp"
#include "support/counting_new.hpp"

int main() {
  static_assert(penstock::detail::checked);
  const std::size_t failed = out_of_memory::sweep_life() + out_of_memory::sweep_ranges() +
                             out_of_memory::sweep_skipping() + out_of_memory::sweep_stop() +
                             out_of_memory::sweep_timeout();
  std::printf("%zu allocations have failed, one by one\n", failed);
  return failed > 100 ? 0 : 1;
}
