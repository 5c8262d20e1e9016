// SPDX-License-Identifier: BSL-1.0
#include <cstdint>
#include <vector>

#include <penstock/data/memory_dataset.hpp>
#include <penstock_ext/narrow/narrowed.hpp>

namespace ps = penstock;
using row = ps::record<ps::field<"x", double, 4>>;

void use(const ps::memory_dataset<row>& rows) {
  (void)(rows | ps::narrowed<"x", ps::half>());  // expected-error: elements must be float
}
