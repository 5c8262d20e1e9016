// SPDX-License-Identifier: BSL-1.0
#include <cstdint>

#include <penstock/data/adaptors/map.hpp>

namespace ps = penstock;
using number = ps::record<ps::field<"x", int>>;
using wrong = ps::record<ps::field<"y", float>>;

struct source {
  using record_type = number;
  std::uint64_t size() const { return 1; }
  void read(std::uint64_t, ps::sample<number>) const {}
};

void use() {
  (void)(source{} | ps::map([](ps::sample<number>, ps::sample_generator&) {}));
  (void)(source{} | ps::map([](ps::sample<wrong>) {}));  // expected-error: take (sample<Record>)
  (void)(source{} | ps::map<wrong>([](int) {}));  // expected-error: take (const_sample<In>
}
