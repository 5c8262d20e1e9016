// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/store/byte_store.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// By which tables of objects find a name without a copy of it.
struct name_hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const noexcept {
    return std::hash<std::string_view>{}(name);
  }
};

/// Throws `file_truncated` for a range that reaches beyond the `size` bytes of its object, whose
/// path is `path()`.
template <class Path>
void require_inside(const byte_range& range, std::uint64_t size, const Path& path) {
  if (range.offset <= size && range.out.size() <= size - range.offset) return;
  throw file_truncated(path(), range.offset,
                       std::to_string(range.out.size()) + " bytes from there on",
                       "an object of " + std::to_string(size) + " bytes");
}

/// Deletes what has threads of its own, such as a `blob_read_ahead`, but not in a child made by
/// fork(): there are none to be joined.
struct delete_unless_forked {
  template <class T>
  void operator()(T* one) const noexcept {
    if (!one->is_in_child()) delete one;
  }
};

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
