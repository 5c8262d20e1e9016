// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string>

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Datasets that can't be joined: their extents differ, or together they have more samples than 64
/// bits count. `part()` is the first one that does not fit, counted from 0.
class [[gnu::visibility("default")]] concat_mismatch : public error {
 public:
  concat_mismatch(std::size_t part, const std::string& problem)
      : error("concat: part " + std::to_string(part) + ": " + problem), part_(part) {}
  /// Which part does not fit; numbers count from 0.
  [[nodiscard]] std::size_t part() const noexcept { return part_; }

 private:
  std::size_t part_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
