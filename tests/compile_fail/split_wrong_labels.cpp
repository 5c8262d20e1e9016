// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/adaptors/map_batch.hpp>
#include <penstock/data/adaptors/random_split.hpp>
#include <penstock/data/memory_dataset.hpp>

namespace ps = penstock;
using record = ps::record<ps::field<"x", float>, ps::field<"pair", int, 2>, ps::field<"y", int>>;

void use(const ps::memory_dataset<record>& data) {
  (void)ps::random_split(data, {0.5, 0.5}, 1, ps::stratified<"y">());
  (void)ps::random_split(data, {0.5, 0.5}, 1, ps::stratified<"z">());  // expected-error: the record has no field of that name
  (void)ps::random_split(data, {0.5, 0.5}, 1, ps::stratified<"x">());  // expected-error: the field must be a single integer
  (void)ps::random_split(data, {0.5, 0.5}, 1, ps::stratified<"pair">());  // expected-error: the field must be a single integer
  const auto batch = [](ps::batch_view<record>) {};
  (void)ps::random_split(data | ps::map_batch(batch), {0.5, 0.5}, 1);  // expected-error: it must be the last adaptor
}
