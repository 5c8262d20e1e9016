// SPDX-License-Identifier: BSL-1.0
#include <penstock/data/adaptors/map.hpp>

namespace ps = penstock;

void use() {
  (void)(42 | ps::map([](int) {}));  // expected-error: a dataset needs `using record_type
}
