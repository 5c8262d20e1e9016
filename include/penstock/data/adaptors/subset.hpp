// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/adaptors/detail/subset_dataset.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// What `subset(...)` returns: `data | subset(0, 50'000)`.
template <class Selection>
using subset_adaptor = holding_adaptor<subset_dataset, Selection>;

}  // namespace detail

/// Selects samples by index, in that order: `data | subset({3, 1, 3})`. The list is moved in.
/// Applying it to a dataset throws `index_error` if an index is out of range.
[[nodiscard]] inline detail::subset_adaptor<detail::index_list> subset(
    std::vector<std::uint64_t> indices) {
  return detail::subset_adaptor<detail::index_list>{detail::index_list{std::move(indices)}};
}

/// Selects the samples [first, last): `data | subset(0, 50'000)`. Applying it to a dataset throws
/// `index_error` if the range exceeds the dataset.
[[nodiscard]] inline detail::subset_adaptor<detail::index_range> subset(std::uint64_t first,
                                                                        std::uint64_t last) {
  return detail::subset_adaptor<detail::index_range>{
      detail::index_range{.first = first, .last = last}};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
