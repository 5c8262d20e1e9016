// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <stdexcept>

namespace stress {

/// A difference between the library and the model.
class mismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void require(bool holds, const char* what) {
  if (!holds) throw mismatch(what);
}

}  // namespace stress
