// SPDX-License-Identifier: BSL-1.0
#include <vector>

#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/memory_dataset.hpp>

namespace ps = penstock;
using a = ps::memory_dataset<ps::record<ps::field<"x", float>>>;
using b = ps::memory_dataset<ps::record<ps::field<"y", float>>>;

void use(const a& first, const b& second) {
  (void)ps::concat(first, first);
  (void)ps::concat(first, second);  // expected-error: all datasets must have the same record
}
