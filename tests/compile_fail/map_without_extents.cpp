// SPDX-License-Identifier: BSL-1.0
#include <cstdint>

#include <penstock/data/adaptors/map.hpp>

namespace ps = penstock;
using row = ps::record<ps::field<"x", float, ps::dyn>>;

void use() {
  (void)ps::map<row>([](auto, auto) {}, {{4}});
  (void)ps::map<row>([](auto, auto) {});  // expected-error: a record with dyn extents needs them
}
