// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

/// The double as new for a test, declared first: at the end, when all else of the test is gone,
/// nothing may be left on it, and nothing wrong found.
class clean_double {
 public:
  explicit clean_double(const fake_cuda::config& how = {}) { fake_cuda::reset(how); }
  clean_double(clean_double&&) = delete;
  ~clean_double() { CHECK(fake_cuda::expect_clean()); }
};
