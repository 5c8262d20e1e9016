// SPDX-License-Identifier: BSL-1.0
#include <cstdint>

#include <penstock/core/batch.hpp>

namespace ps = penstock;
using image = ps::field<"image", std::uint8_t, 28, 28>;
using label = ps::field<"label", std::uint8_t>;
using digit = ps::record<image, label>;

void of_a_batch(ps::batch_view<digit> batch) {
  batch.get<"image">()(0, 0, 0) = 1;
  batch.get<"imgae">();  // expected-error: penstock::get: the record has no such field
}
