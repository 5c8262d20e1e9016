// SPDX-License-Identifier: BSL-1.0
#include <penstock/data/adaptors/map.hpp>
#include <penstock_ext/adaptors/map_batch.hpp>
#include <penstock_ext/adaptors/any_dataset.hpp>
#include <penstock/data/memory_dataset.hpp>

namespace ps = penstock;
using record = ps::record<ps::field<"x", float>>;
using other = ps::record<ps::field<"y", float>>;

void use(const ps::memory_dataset<record>& data) {
  const auto batch = [](ps::batch_view<record>) {};
  const auto sample = [](ps::sample<record>) {};
  (void)(data | ps::map(sample) | ps::map_batch(batch) | ps::map_batch(batch));
  (void)(data | ps::map_batch(batch) | ps::map(sample));  // expected-error: it must be the last adaptor
  (void)(data | ps::map_batch(sample));  // expected-error: the function must take (batch_view<Record>)
  const ps::any_dataset<record> erased = data;
  (void)(erased | ps::map_batch(batch));
  const ps::any_dataset<other> wrong = data;  // expected-error: the dataset has a different record
}
