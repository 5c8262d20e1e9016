// SPDX-License-Identifier: BSL-1.0
#include <cstdint>
#include <vector>

#include <penstock/data/memory_dataset.hpp>
#include <penstock_ext/narrow/narrowed.hpp>

namespace ps = penstock;
constexpr ps::name key{"abcdefghijklmnopqrstuvwxyz0"};
using row = ps::record<ps::field<key, float, 4>>;

void use(const ps::memory_dataset<row>& rows) {
  (void)(rows | ps::narrowed<key, ps::half>());
  (void)(rows | ps::narrowed<key, std::int8_t>());  // expected-error: at most 26 characters
}
