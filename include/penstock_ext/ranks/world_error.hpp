// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The environment does not say which rank of how many this process is: half of a launcher's
/// variables, two launchers that contradict each other, a value that can't be. The message names
/// the variables and their values, and says what to do.
class [[gnu::visibility("default")]] world_error : public error {
 public:
  using error::error;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
