// SPDX-License-Identifier: BSL-1.0
// The second translation unit, so that everything in the headers must be inline.
#include "sums.hpp"

std::uint64_t sum_of(const penstock::host_batch<number, penstock::cpu_device>& batch) {
  std::uint64_t sum = 0;
  for (const std::uint64_t x : penstock::get<"x">(batch).flat()) sum += x;
  return sum;
}
