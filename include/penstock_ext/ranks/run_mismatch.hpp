// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The ranks of a world would not train as one: other data, seeds, orders or batch sizes, another
/// checkpoint, or loaders that are not sharded. Thrown on all ranks alike; the message names what
/// differs, and which ranks have which value.
class [[gnu::visibility("default")]] run_mismatch : public error {
 public:
  using error::error;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
