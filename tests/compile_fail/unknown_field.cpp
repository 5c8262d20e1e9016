// SPDX-License-Identifier: BSL-1.0
#include <cstdint>

#include <penstock/core/batch.hpp>

namespace ps = penstock;
using image = ps::field<"image", std::uint8_t, 28, 28>;
using label = ps::field<"label", std::uint8_t>;
using digit = ps::record<image, label>;

void of_a_sample(ps::sample<digit> out) {
  ps::get<"label">(out) = 1;
  ps::get<"lable">(out);  // expected-error: penstock::get: the record has no such field
}
