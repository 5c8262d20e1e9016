// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/extents.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/support/field_extents.hpp>
#include <penstock_ext/table/detail/arrow_type.hpp>
#include <penstock_ext/table/detail/column_plan.hpp>
#include <penstock_ext/table/detail/column_rows.hpp>
#include <penstock_ext/table/detail/table_columns.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Whether T, of two bytes, is a half as Arrow has it, and not a bfloat16: by the bits of its 1. A
/// type that no float makes is taken at its word.
template <class T>
[[nodiscard]] bool is_half_float() noexcept {
  if constexpr (sizeof(T) != 2) {
    return false;
  } else if constexpr (std::is_constructible_v<T, float> && !std::is_aggregate_v<T>) {
    return std::bit_cast<std::uint16_t>(static_cast<T>(1.0F)) == 0x3c00;
  } else {
    return true;
  }
}

/// Whether a column's elements of this type are elements of T, bit by bit or, of bool, by value.
template <class T>
[[nodiscard]] bool takes_elements(const arrow_type& type) noexcept {
  const bool is_half = type.kind == arrow_kind::floating && type.size == 2;
  if constexpr (std::same_as<T, bool>) {
    return type.kind == arrow_kind::boolean;
  } else if constexpr (std::integral<T>) {
    if (std::same_as<T, std::uint8_t> && type.kind == arrow_kind::boolean) return true;
    if (std::same_as<T, std::uint16_t> && is_half) return true;
    constexpr auto kind =
        std::is_signed_v<T> ? arrow_kind::signed_integer : arrow_kind::unsigned_integer;
    return type.size == sizeof(T) && type.kind == kind;
  } else if constexpr (std::same_as<T, std::byte>) {
    return type.kind == arrow_kind::unsigned_integer && type.size == 1;
  } else if constexpr (std::floating_point<T>) {
    return type.kind == arrow_kind::floating && type.size == sizeof(T) &&
           (sizeof(T) != 2 || is_half_float<T>());
  } else {
    return is_half && is_half_float<T>();  // __half and the like
  }
}

/// The name of a column's type whose elements are elements of T.
template <class T>
[[nodiscard]] std::string element_words() {
  const std::string bits = std::to_string(8 * sizeof(T));
  if constexpr (std::same_as<T, bool>) {
    return "bool";
  } else if constexpr (std::same_as<T, std::byte>) {
    return "uint8";
  } else if constexpr (std::integral<T>) {
    return (std::is_signed_v<T> ? "int" : "uint") + bits;
  } else if constexpr (std::floating_point<T> || sizeof(T) == 2) {
    return "float" + bits;
  } else {
    return "fixed_size_binary(" + std::to_string(sizeof(T)) + ")";
  }
}

/// What a field of type T and these extents asks of a column called `name`.
template <class T, std::size_t... Extents>
[[nodiscard]] column_wish wish_of(std::string name, std::type_identity<extents<Extents...>>) {
  static constexpr std::array<std::size_t, sizeof...(Extents)> lengths{Extents...};
  return {std::move(name), element_words<T>(), sizeof(T), &takes_elements<T>, lengths};
}

/// What each field of a record asks of the column that is called as it.
template <class... Fields>
[[nodiscard]] std::vector<column_wish> wishes_of(std::type_identity<record<Fields...>>) {
  return {wish_of<typename Fields::value_type>(
      Fields::key.str(), std::type_identity<typename Fields::extents_type>{})...};
}

/// The extents of the record's fields, those that the columns have. Throws
/// `column_shape_mismatch`, see `table_columns::extents`.
template <class Record>
[[nodiscard]] record_extents<Record> extents_of_columns(table_columns& columns) {
  return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    return record_extents<Record>{extents_in<typename Record::template field_at<Is>::extents_type>(
        std::span<const std::size_t>{columns.extents(Is)})...};
  }
  (std::make_index_sequence<Record::size>{});
}

/// Copies samples of one batch, which are columns of `columns`, to their places in `out`: column by
/// column, so that what a column is is asked once. `first_row` is the batch's first sample.
template <class Record>
void gather_rows(const column_rows* columns, std::uint64_t first_row,
                 std::span<const std::uint64_t> indices, batch_view<Record> out,
                 const batch_layout<Record>& layout) noexcept {
  const auto place = out[0];
  [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    (columns[Is].gather(indices, first_row, place.address(Is), layout.template sample_bytes<Is>()),
     ...);
  }
  (std::make_index_sequence<Record::size>{});
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
