// SPDX-License-Identifier: BSL-1.0
#include <vector>

#include <penstock/data/memory_dataset.hpp>

namespace ps = penstock;
using number = ps::record<ps::field<"x", float>>;

void use(const std::vector<float>& kept) {
  ps::memory_dataset<number> good{kept};
  ps::memory_dataset<number> bad{std::vector<float>(3)};  // expected-error: a temporary array is destroyed
}
