// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The values that an `option_search` chooses from, for each option of a loop; without values an
/// option stays as it is. Where 0 has a meaning of its own (`workers`, `run`, `prefetch`) it may be
/// among them. At most 65,536 combinations.
struct search_space {
  /// `loader_options::workers`.
  std::vector<std::size_t> workers = {};
  /// `loader_options::run`.
  std::vector<std::size_t> run = {};
  /// `loader_options::prefetch`.
  std::vector<std::size_t> prefetch = {};
  /// `transfer_options::depth`, each at least 1.
  std::vector<std::size_t> depth = {};
  /// `loader_options::pinned`, 0 and 1.
  std::vector<std::size_t> pinned = {};
  /// `loader_options::batch_size`, each at least 1. It changes what is computed: the cost then has
  /// to be that of a sample, or of what training needs to get somewhere.
  std::vector<std::size_t> batch_size = {};
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
