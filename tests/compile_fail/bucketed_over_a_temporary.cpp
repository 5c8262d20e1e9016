// SPDX-License-Identifier: BSL-1.0
#include <cstdint>
#include <span>
#include <vector>

#include <penstock_ext/samplers/bucketed.hpp>

namespace ps = penstock;

void use(const std::vector<std::uint32_t>& kept) {
  ps::bucketed good{kept, {.batch_size = 2}};
  ps::bucketed view{std::span{kept}, {.batch_size = 2}};
  ps::bucketed bad{std::vector<std::uint32_t>(3), {.batch_size = 2}};  // expected-error: a temporary array is destroyed
}
