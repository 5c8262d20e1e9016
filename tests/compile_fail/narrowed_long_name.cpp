// SPDX-License-Identifier: BSL-1.0
#include <cstdint>
#include <vector>

#include <penstock/data/memory_dataset.hpp>
#include <penstock/data/narrow/narrowed.hpp>

namespace ps = penstock;
using row = ps::record<ps::field<"abcdefghijklmnopqrstuvwxyz0", float, 4>>;

void use(const ps::memory_dataset<row>& rows) {
  (void)(rows | ps::narrowed<"abcdefghijklmnopqrstuvwxyz0", ps::half>());
  (void)(rows | ps::narrowed<"abcdefghijklmnopqrstuvwxyz0", std::int8_t>());  // expected-error: more than 26
}
