// SPDX-License-Identifier: BSL-1.0
#include <cstdint>

#include <penstock/data/adaptors/subset.hpp>

namespace ps = penstock;
using number = ps::record<ps::field<"x", int>>;

struct good {
  using record_type = number;
  std::uint64_t size() const { return 1; }
  void read(std::uint64_t, ps::sample<number>) const {}
};

struct bad {
  using record_type = number;
  std::uint64_t size() const { return 1; }
  void read(std::uint64_t, ps::sample<number>) {}
};

void use() {
  (void)(good{} | ps::subset(0, 1));
  (void)(bad{} | ps::subset(0, 1));  // expected-error: which must be const
}
