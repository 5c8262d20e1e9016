// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// True if the extents of a field that is not ragged are known only at run time.
template <class>
inline constexpr bool has_dyn_field = false;
template <class... Fields>
inline constexpr bool has_dyn_field<record<Fields...>> =
    ((Fields::extents_type::dynamic_rank > 0 && !Fields::is_ragged) || ...);

/// Returns the names of all fields.
template <record_type Record>
[[nodiscard]] const std::array<std::string, Record::size>& field_names() {
  static const auto names = []<std::size_t... Is>(std::index_sequence<Is...>) {
    return std::array<std::string, Record::size>{Record::template field_at<Is>::key.str()...};
  }(std::make_index_sequence<Record::size>{});
  return names;
}

/// Returns `given`, or bounds ragged fields: `longest.operator()<Field>()` returns the maximum
/// number of values. Throws std::bad_optional_access for a record with dyn extents without `given`.
template <record_type Record, class Longest>
[[nodiscard]] record_extents<Record> given_or_bounded(
    const std::optional<record_extents<Record>>& given, const Longest& longest) {
  if constexpr (has_dyn_field<Record>) {
    return given.value();
  } else {
    if (given) return *given;
    const auto of_field = [&]<std::size_t Index>() {
      using field = typename Record::template field_at<Index>;
      typename field::extents_type lengths{};
      if constexpr (field::is_ragged) {
        const std::uint64_t values = longest.template operator()<field>();
        lengths.longest = static_cast<std::size_t>(std::max<std::uint64_t>(values, 1));
      }
      return lengths;
    };
    return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      return record_extents<Record> { of_field.template operator()<Is>()... };
    }(std::make_index_sequence<Record::size>{});
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
