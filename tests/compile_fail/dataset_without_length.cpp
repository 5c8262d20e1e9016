// SPDX-License-Identifier: BSL-1.0
#include <cstdint>

#include <penstock/data/adaptors/concat.hpp>

namespace ps = penstock;
using row = ps::record<ps::field<"x", int, ps::ragged>>;

struct bad {
  using record_type = row;
  std::uint64_t size() const { return 1; }
  ps::record_extents<row> extents() const { return {{.longest = 1}}; }
  void read(std::uint64_t, ps::sample<row>) const {}
};

struct good : bad {
  std::uint64_t length(std::uint64_t) const { return 1; }
};

void use() {
  (void)ps::concat(good{}, good{});
  (void)ps::concat(bad{}, bad{});  // expected-error: a dataset with a ragged field needs `std::uint64_t length
}
