// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/adaptors/with_index.hpp>
#include <penstock_ext/adaptors/zip.hpp>
#include <penstock/data/memory_dataset.hpp>

namespace ps = penstock;
using a = ps::memory_dataset<ps::record<ps::field<"x", float>, ps::field<"y", float>>>;
using b = ps::memory_dataset<ps::record<ps::field<"y", double>>>;
using c = ps::memory_dataset<ps::record<ps::field<"index", int>>>;

void use(const a& first, const b& second, const c& third) {
  (void)ps::zip(first, third);
  (void)ps::zip(first, second);  // expected-error: a field of the first dataset and a field of the second have the same name
  (void)(first | ps::with_index());
  (void)(third | ps::with_index<"row">());
  (void)(third | ps::with_index());  // expected-error: the record already has a field of that name
}
