// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The treatment of documents that are longer than a row.
enum class long_documents {
  split,  ///< split into whole rows and a remainder, which is packed as a document
  refuse  ///< throw `document_error` at construction
};

/// The options of `pack_documents`.
struct packing_options {
  /// Tokens per row; 1 to 2^31 - 2.
  std::size_t length = 2048;
  /// Together with the lengths, determines the packing. Another seed gives another packing and
  /// order of rows; change it to repack for an epoch.
  std::uint64_t seed = 0;
  /// Documents per window, 1 to 2^24; an incomplete last window is merged with the one before.
  /// Larger windows fill rows better and take more memory and time at once.
  std::size_t window = 4096;
  /// The maximum number of documents or parts in a row; 0: length / 8, at least 1. Determines the
  /// extent of "cu_seqlens".
  std::size_t most_documents = 0;
  /// The treatment of documents that are longer than a row.
  long_documents longer = long_documents::split;
  /// The padding token.
  std::uint32_t padding = 0;
  /// The label of tokens without a successor: the default `ignore_index` of PyTorch's
  /// cross_entropy.
  std::int32_t no_label = -100;
  /// Packed windows in memory, at least 1, at about 20 bytes per document; with fewer than workers
  /// that read different ones, these wait for each other.
  std::size_t kept_windows = 16;
};

namespace detail {

/// The options with defaults filled in. Throws `option_error` for invalid values.
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
