// SPDX-License-Identifier: BSL-1.0
// A second translation unit, which links only if everything in the headers is inline.
#include "sums.hpp"

std::uint64_t sum_of(const penstock::host_batch<number, penstock::cpu_device>& batch) {
  std::uint64_t sum = 0;
  for (const std::uint64_t x : penstock::get<"x">(batch).flat()) sum += x;
  return sum;
}
