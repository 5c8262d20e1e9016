// SPDX-License-Identifier: BSL-1.0
#include "parts.hpp"

std::uint64_t parts::sum(loader::batch_type& batch) {
  std::uint64_t all = 0;
  for (const std::uint64_t x : penstock::get<"x">(batch).flat()) all += x;
  return all;
}
