// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <vector>

#include <penstock/data/dataset.hpp>
#include <penstock/load/detail/faults/guarded_reader.hpp>
#include <penstock/load/detail/faults/read_guard.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The readers of `count` threads for runs of at most `most` samples; without threads the
/// consumer's.
template <dataset D>
[[nodiscard]] std::vector<guarded_reader<D>> make_readers(const D& data, read_guard& guard,
                                                          std::size_t count, std::size_t most) {
  std::vector<guarded_reader<D>> all;
  do {
    all.push_back({data, guard, all.size(), most});
  } while (all.size() < count);
  return all;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
