// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/place_sample.hpp>
#include <penstock/core/record.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The place among `In`'s ragged fields of the one that is called as field `Index` of `Out`, which
/// is ragged; `In::ragged_fields` if there is none.
template <class Out, class In, std::size_t Index>
consteval std::size_t ragged_namesake() {
  constexpr name key = Out::template field_at<Index>::key;
  if constexpr (In::template has_field<key>) {
    constexpr std::size_t place = In::template index_of<key>();
    if constexpr (In::template field_at<place>::is_ragged) {
      return In::template ragged_index<place>();
    }
  }
  return In::ragged_fields;
}

/// Whether each ragged field of `Out` has a namesake in `In`, which is as long.
template <class Out, class In>
inline constexpr bool lengths_are_known = []<std::size_t... Is>(std::index_sequence<Is...>) {
  const auto is_known = [&]<std::size_t Index>() {
    if constexpr (Out::template field_at<Index>::is_ragged) {
      return ragged_namesake<Out, In, Index>() != In::ragged_fields;
    }
    return true;
  };
  return (is_known.template operator()<Is>() && ...);
}
(std::make_index_sequence<Out::size>{});

/// The lengths of a sample of `Out` that is made of one of `In` with the lengths `below`.
template <record_type Out, record_type In>
[[nodiscard]] constexpr sample_lengths<Out> same_lengths(const sample_lengths<In>& below) noexcept {
  sample_lengths<Out> found{};
  const auto take = [&]<std::size_t Index>() {
    if constexpr (Out::template field_at<Index>::is_ragged) {
      found[Out::template ragged_index<Index>()] = below[ragged_namesake<Out, In, Index>()];
    }
  };
  [&]<std::size_t... Is>(std::index_sequence<Is...>) { (take.template operator()<Is>(), ...); }
  (std::make_index_sequence<Out::size>{});
  return found;
}

/// Gives the only sample of a batch its place. Throws `layout_error` where it is longer than the
/// longest: a loader has not asked for lengths that its own record does not have.
template <record_type Record>
void place_alone(const batch_view<Record>& one, const sample_lengths<Record>& lengths) {
  if (place_sample(one, 0, lengths) == Record::size) return;
  throw layout_error(
      "map: the sample has more values of a ragged field than the dataset's extents() say that the "
      "longest has: raise longest there");
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
