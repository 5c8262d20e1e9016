// SPDX-License-Identifier: BSL-1.0
// An unchecked translation unit that calls a function compiled with checks. Linking must fail.
#include <penstock/core/batch.hpp>

float first_of(penstock::tensor_view<const float, 4> x);

int main() {
  const float values[4] = {};
  return static_cast<int>(first_of({values, {}}));
}
