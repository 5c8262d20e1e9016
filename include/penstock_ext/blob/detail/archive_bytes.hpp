// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// An archive's bytes by their place: `read_at(offset, out)` fills `out`, less only at the end.
template <class S>
concept archive_bytes = requires(const S& source, std::uint64_t offset, std::span<std::byte> out) {
  { source.read_at(offset, out) } -> std::same_as<std::size_t>;
  { source.size() } -> std::convertible_to<std::uint64_t>;
  { source.path() } -> std::convertible_to<const std::string&>;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
