// SPDX-License-Identifier: BSL-1.0
#include <penstock/core/record.hpp>

namespace ps = penstock;

constexpr auto good = ps::record<ps::field<"x", int, ps::ragged>>::ragged_fields;
constexpr auto bad = ps::record<ps::field<"x", int, ps::ragged, 3>>::ragged_fields;  // expected-error: a ragged field must have exactly one dimension
