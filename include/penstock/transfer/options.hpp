// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string>

#include <penstock/core/error.hpp>
#include <penstock/load/options.hpp>
#include <penstock/observe/trace_recorder.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The options of a `transfer`. Bad values throw `option_error` at construction.
struct transfer_options {
  /// Device slots: the batch that the consumer works on, and those whose copies run ahead under it.
  /// At least 1, which overlaps nothing.
  std::size_t depth = 3;

  /// What happens when the consumer asks for a batch while it, or threads that it has moved leases
  /// to, hold every device slot. Nothing is taken from the source before there is a slot for it.
  /// `wait` is for leases that end on other threads; a stop request of the source's ends the wait.
  penstock::when_held when_held = penstock::when_held::fail;

  /// Records what each batch goes through, see `trace_recorder`; that of the source's options makes
  /// one picture of both. Null: nothing is recorded. It is the program's, and should outlive the
  /// loop.
  trace_recorder* trace = nullptr;
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

}  // namespace PENSTOCK_ABI
}  // namespace penstock
