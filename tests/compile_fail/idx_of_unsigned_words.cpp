// SPDX-License-Identifier: BSL-1.0
#include <cstdint>

#include <penstock_ext/files/idx_dataset.hpp>

namespace ps = penstock;

void use(const ps::detail::idx_file& file) {
  (void)file.values<std::int32_t>();
  (void)file.values<std::uint32_t>();  // expected-error: IDX holds uint8_t, int8_t, int16_t,
}
