// SPDX-License-Identifier: BSL-1.0
#include <cstdint>

#include <penstock/data/adaptors/concat.hpp>

namespace ps = penstock;
using row = ps::record<ps::field<"x", int, ps::dyn>>;

struct bad {
  using record_type = row;
  std::uint64_t size() const { return 1; }
  void read(std::uint64_t, ps::sample<row>) const {}
};

void use() {
  (void)ps::concat(bad{}, bad{});  // expected-error: a dataset with dyn extents needs
}
