// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What is done with a document that is longer than a row.
enum class long_documents {
  split,  ///< it fills whole rows, and its rest is packed as a document of its own
  refuse  ///< `document_error` at the construction
};

/// How documents are packed into rows.
struct packing_options {
  /// Tokens of a row; 1 to 2^31 - 2.
  std::size_t length = 2048;
  /// Together with the lengths, determines the packing. Another seed is another packing, and
  /// another order of rows: take a new one for an epoch that is to be packed anew.
  std::uint64_t seed = 0;
  /// Documents that are packed together, 1 to 2^24; the last ones of all are packed with the window
  /// before theirs. More fill rows better, and take more memory and time at once.
  std::size_t window = 4096;
  /// Documents, or parts of them, that a row may have; 0 is length / 8, at least 1. Fixes the
  /// extent of "cu_seqlens".
  std::size_t most_documents = 0;
  /// Documents that are longer than a row.
  long_documents longer = long_documents::split;
  /// The token where a row has none left.
  std::uint32_t padding = 0;
  /// The label of what has no next token: what PyTorch's cross_entropy leaves out.
  std::int32_t no_label = -100;
  /// Windows that are kept packed for reading, at least 1: some 20 bytes a document each.
  std::size_t kept_windows = 16;
};

namespace detail {

/// The options, with what 0 stands for put in. Throws `option_error` for what can't work.
[[nodiscard]] inline packing_options resolved_packing(packing_options options) {
  const auto require = [](const char* option, std::size_t value, std::size_t most) {
    if (value >= 1 && value <= most) return;
    throw option_error(option,
                       "must be 1 to " + std::to_string(most) + ", is " + std::to_string(value));
  };
  constexpr std::size_t longest = (std::size_t{1} << 31U) - 2;  // positions and their end are int32
  require("length", options.length, longest);
  require("window", options.window, std::size_t{1} << 24U);
  if (options.most_documents == 0) {
    options.most_documents = options.length < 8 ? 1 : options.length / 8;
  }
  require("most_documents", options.most_documents, options.length);
  require("kept_windows", options.kept_windows, std::size_t{1} << 20U);
  return options;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
