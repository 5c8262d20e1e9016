// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

/// Resets the fake CUDA runtime for a test. Declare it first: its destructor runs after all other
/// objects of the test are destroyed, and checks that no objects and no findings remain.
class clean_fake {
 public:
  explicit clean_fake(const fake_cuda::config& how = {}) { fake_cuda::reset(how); }
  clean_fake(clean_fake&&) = delete;
  ~clean_fake() { CHECK(fake_cuda::expect_clean()); }
};
