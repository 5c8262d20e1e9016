// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string_view>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What was done about a sample whose read has failed.
enum class read_outcome {
  retrying,     ///< nothing yet: a retry is to come
  recovered,    ///< a retry has read it
  substituted,  ///< another sample stands in its place
  skipped,      ///< its batch is shorter
  propagated,   ///< the exception went to the consumer
};

/// An outcome as a word for a log.
[[nodiscard]] constexpr std::string_view name_of(read_outcome outcome) noexcept {
  switch (outcome) {
    case read_outcome::retrying:
      return "retrying";
    case read_outcome::recovered:
      return "recovered";
    case read_outcome::substituted:
      return "substituted";
    case read_outcome::skipped:
      return "skipped";
    case read_outcome::propagated:
      break;
  }
  return "propagated";
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
