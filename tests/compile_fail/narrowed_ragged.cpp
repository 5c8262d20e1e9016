// SPDX-License-Identifier: BSL-1.0
#include <cstdint>

#include <penstock_ext/adaptors/any_dataset.hpp>
#include <penstock_ext/narrow/narrowed.hpp>

namespace ps = penstock;
using row = ps::record<ps::field<"x", float, 4>, ps::field<"tokens", std::uint16_t, ps::ragged>>;

void use(const ps::any_dataset<row>& rows) {
  (void)(rows | ps::narrowed<"x", ps::half>());  // expected-error: it does not support ragged fields
}
