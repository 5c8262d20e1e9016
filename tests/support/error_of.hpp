// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <typeinfo>

#include "support/catch.hpp"

namespace test {

/// Returns the exception that `call` throws. The exception must have exactly type E, not a derived
/// type.
template <class E, class Call>
E error_of(const Call& call) {
  try {
    call();
  } catch (const E& problem) {
    INFO(problem.what());
    CHECK(typeid(problem) == typeid(E));
    return problem;
  }
  FAIL("nothing thrown");
  throw 0;
}

}  // namespace test
