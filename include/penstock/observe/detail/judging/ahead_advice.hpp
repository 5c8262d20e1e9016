// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include <penstock/observe/stage_stats.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What a loop whose reads wait may do with `loader_options::read_ahead`.
struct ahead_advice {
  std::uint64_t bytes = 0;  ///< of the option; 0: none is better
  std::string sentence;     ///< "": nothing to be said
};

/// What follows from what a dataset was told. What it would gain is not known: the disk or the
/// network may be as busy as it can be.
[[nodiscard]] inline ahead_advice advice_on(const ahead_stats& ahead) {
  constexpr std::uint64_t most = (std::numeric_limits<std::uint64_t>::max)();
  if (ahead.source_bytes == 0) return {};  // it can't
  if (ahead.most_bytes == 0) {
    const std::uint64_t bytes = std::min<std::uint64_t>(ahead.source_bytes, 64U << 20U);
    return {bytes, "Or .read_ahead = " + std::to_string(bytes) +
                       ": the source can fetch before workers ask; the gain is not known."};
  }
  if (ahead.samples == 0 && ahead.failed != 0) {
    return {0, "The source throws when it is told what comes: see stats().ahead.failed."};
  }
  if (ahead.late <= ahead.samples / 8) return {};
  const std::string late = std::to_string(ahead.late) + " samples were told too late";
  if (ahead.most_bytes >= ahead.source_bytes) {
    return {0, late + ": let the source keep more ahead than its " +
                   std::to_string(ahead.source_bytes) + " bytes; the gain is not known."};
  }
  const std::uint64_t twice = ahead.most_bytes > most / 2 ? most : 2 * ahead.most_bytes;
  const std::uint64_t bytes = (std::min)(twice, ahead.source_bytes);
  return {bytes, late + ": .read_ahead = " + std::to_string(bytes) + "; the gain is not known."};
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
