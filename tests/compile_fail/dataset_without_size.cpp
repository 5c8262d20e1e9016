// SPDX-License-Identifier: BSL-1.0
#include <cstdint>

#include <penstock/data/adaptors/subset.hpp>

namespace ps = penstock;
using number = ps::record<ps::field<"x", int>>;

struct bad {
  using record_type = number;
  void read(std::uint64_t, ps::sample<number>) const {}
};

void use() {
  (void)(bad{} | ps::subset(0, 1));  // expected-error: a dataset needs `std::uint64_t size() const`
}
