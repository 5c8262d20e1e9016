#pragma once

#include <cstddef>
#include <string>

#include <penstock/core/error.hpp>

namespace penstock::inline PENSTOCK_ABI {

/// The options of a `transfer`. Bad values throw `option_error` at construction.
struct transfer_options {
  /// Device slots: the batch that the consumer works on, and those whose copies run ahead under it.
  /// At least 1, which overlaps nothing.
  std::size_t depth = 3;
};

namespace detail {

inline std::size_t checked_depth(const transfer_options& options) {
  constexpr std::size_t most = 1024;
  if (options.depth == 0 || options.depth > most) {
    throw option_error("depth",
                       std::to_string(options.depth) + " is not in 1.." + std::to_string(most));
  }
  return options.depth;
}

}  // namespace detail

}  // namespace penstock::inline PENSTOCK_ABI
