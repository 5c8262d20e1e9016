// SPDX-License-Identifier: BSL-1.0
#include <cstdint>

#include <penstock_ext/adaptors/filter.hpp>

namespace ps = penstock;
using number = ps::record<ps::field<"x", int>>;

struct source {
  using record_type = number;
  std::uint64_t size() const { return 1; }
  void read(std::uint64_t, ps::sample<number>) const {}
};

void use() {
  (void)(source{} | ps::filter([](ps::const_sample<number>) { return true; }));
  (void)(source{} | ps::filter([](int*) { return true; }));  // expected-error: only the index
  auto count = [n = 0](std::uint64_t) mutable { return ++n > 1; };
  (void)(source{} | ps::filter(count));  // expected-error: remove mutable from the lambda
}
