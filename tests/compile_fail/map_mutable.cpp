// SPDX-License-Identifier: BSL-1.0
#include <cstdint>

#include <penstock/data/adaptors/map.hpp>

namespace ps = penstock;
using number = ps::record<ps::field<"x", int>>;
using sample = ps::sample<number>;
using from = ps::const_sample<number>;

struct source {
  using record_type = number;
  std::uint64_t size() const { return 1; }
  void read(std::uint64_t, sample) const {}
};

void use() {
  (void)(source{} | ps::map([](sample) {}));
  (void)(source{} | ps::map([n = 0](sample) mutable { ++n; }));  // expected-error: from the lambda
  (void)(source{} | ps::map<number>([n = 0](from, sample) mutable {}));  // expected-error: from the lambda
}
