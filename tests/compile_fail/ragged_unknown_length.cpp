// SPDX-License-Identifier: BSL-1.0
#include <cstdint>

#include <penstock/data/adaptors/map.hpp>
#include <penstock_ext/adaptors/with_index.hpp>

namespace ps = penstock;
using in = ps::record<ps::field<"x", int, ps::ragged>, ps::field<"y", int, 3>>;
using same = ps::record<ps::field<"x", float, ps::ragged>>;
using other = ps::record<ps::field<"y", int, ps::ragged>>;

struct texts {
  using record_type = in;
  std::uint64_t size() const { return 1; }
  ps::record_extents<in> extents() const { return {{.longest = 1}, {}}; }
  std::uint64_t length(std::uint64_t) const { return 1; }
  void read(std::uint64_t, ps::sample<in>) const {}
};

void use(const texts& data) {
  (void)(data | ps::map<same>([](auto, auto) {}, {{.longest = 1}}));
  (void)(data | ps::map<other>([](auto, auto) {}, {{.longest = 1}}));  // expected-error: each ragged field of the new record must have the name
  (void)(data | ps::with_index());  // expected-error: with_index: it does not support ragged fields
}
