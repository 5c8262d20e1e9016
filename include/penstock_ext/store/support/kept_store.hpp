// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <span>
#include <type_traits>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/byte_store.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// How a store is kept that was given as `Store`: an lvalue is referred to, an rvalue is moved in.
template <class Store>
using kept_store =
    std::conditional_t<std::is_lvalue_reference_v<Store>, const std::remove_cvref_t<Store>&,
                       std::remove_cvref_t<Store>>;

/// Reads all of `ranges`: side by side where `store` can, else one after the other.
template <byte_store Store>
void read_ranges(const Store& store, std::span<const byte_range> ranges) {
  if constexpr (batching_store<Store>) {
    store.read_many(ranges);
  } else {
    for (const byte_range& range : ranges) store.read(range);
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
