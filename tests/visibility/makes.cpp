// SPDX-License-Identifier: BSL-1.0
#include "parts.hpp"

parts::loader parts::make(std::uint64_t count, std::size_t batch_size) {
  return {
      numbers{count}, penstock::sequential{}, penstock::cpu_device{}, {.batch_size = batch_size}};
}

void parts::throw_index_error() { throw penstock::index_error{"parts", 7, 5}; }
