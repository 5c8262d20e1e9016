// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <penstock/core/name.hpp>
#include <penstock/core/record.hpp>
#include <penstock_ext/narrow/detail/narrow_record.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// How a field gets from a narrow batch into the wide one.
enum class widening {
  none,       ///< as it is
  values,     ///< each element becomes a float
  by_field,   ///< bytes of one scale
  by_sample,  ///< bytes of a scale for each sample
};

/// The batches that become of those of record `In` when the fields called `Names` are floats again.
template <record_type In, name... Names>
class widened_batch {
  static constexpr std::size_t names = sizeof...(Names);

  static consteval std::size_t place_of(const name& key) {
    constexpr name keys[] = {Names...};
    std::size_t place = 0;
    while (place < names && !(keys[place] == key)) ++place;
    return place;
  }

  template <name Name>
  static consteval bool has_scales() {
    if constexpr (has_room_for_suffix(Name)) {
      return In::template has_field<scale_of(Name)> && In::template has_field<zero_of(Name)>;
    } else {
      return false;
    }
  }
  template <class Field>
  static consteval widening way_of() {
    if constexpr (place_of(Field::key) == names) {
      return widening::none;
    } else if constexpr (!std::is_same_v<typename Field::value_type, std::int8_t>) {
      return widening::values;
    } else {
      return has_scales<Field::key>() ? widening::by_sample : widening::by_field;
    }
  }
  template <name Name>
  static consteval bool is_narrow_field() {
    if constexpr (In::template has_field<Name>) {
      return is_narrow<typename In::template field_at<In::template index_of<Name>()>::value_type>;
    } else {
      return false;
    }
  }
  static_assert((In::template has_field<Names> && ...),
                "penstock::widen: the record has no such field");
  static_assert((is_narrow_field<Names>() && ...),
                "penstock::widen: a field's elements must be half, bfloat16 or std::int8_t");

  /// Whether the field called `key` is the scale, or the zero, of a field that is widened.
  static consteval bool is_scale(const name& key) {
    const auto is_of = [&]<name Name>() {
      if constexpr (In::template has_field<Name>) {
        using of = typename In::template field_at<In::template index_of<Name>()>;
        if constexpr (way_of<of>() == widening::by_sample) {
          return key == scale_of(Name) || key == zero_of(Name);
        }
      }
      return false;
    };
    return (is_of.template operator()<Names>() || ...);
  }

  template <std::size_t... Is>
  static consteval auto list_kept(std::index_sequence<Is...>) {
    constexpr bool stays[] = {!is_scale(In::template field_at<Is>::key)...};
    std::array<std::size_t, (std::size_t{0} + ... + (stays[Is] ? 1U : 0U))> list{};
    std::size_t next = 0;
    for (std::size_t i = 0; i < In::size; ++i) {
      if (stays[i]) list[next++] = i;
    }
    return list;
  }
  static constexpr auto kept = list_kept(std::make_index_sequence<In::size>{});

  template <std::size_t Index>
  struct field_of {
    using below = typename In::template field_at<kept[Index]>;
    using type =
        typename std::conditional_t<way_of<below>() == widening::none, std::type_identity<below>,
                                    retyped_field<below, float>>::type;
  };
  template <class Indices>
  struct record_of;
  template <std::size_t... Is>
  struct record_of<std::index_sequence<Is...>> {
    using type = record<typename field_of<Is>::type...>;
  };
  using places = std::make_index_sequence<kept.size()>;

 public:
  /// The record of what comes out.
  using type = typename record_of<places>::type;

  /// The place in `In` of the field that becomes the one at place `Index`.
  template <std::size_t Index>
  static constexpr std::size_t place = kept[Index];
  /// How the field at place `Index` of the result is made.
  template <std::size_t Index>
  static constexpr widening way = way_of<typename In::template field_at<kept[Index]>>();
  /// How many fields are bytes of one scale each.
  static constexpr std::size_t fixed =
      (std::size_t{0} + ... +
       (way_of<typename In::template field_at<In::template index_of<Names>()>>() ==
                widening::by_field
            ? 1U
            : 0U));
  /// Which of those scales, in the order of `Names`, is that of the field at place `Index`.
  template <std::size_t Index>
  [[nodiscard]] static consteval std::size_t fixed_place() {
    constexpr bool is_fixed[] = {
        way_of<typename In::template field_at<In::template index_of<Names>()>>() ==
        widening::by_field...};
    std::size_t before = 0;
    for (std::size_t i = 0; i < place_of(In::template field_at<kept[Index]>::key); ++i) {
      before += is_fixed[i] ? 1U : 0U;
    }
    return before;
  }

  /// The extents of what comes out.
  [[nodiscard]] static record_extents<type> extents(const record_extents<In>& lengths) {
    return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      return record_extents<type>{lengths.template at<kept[Is]>()...};
    }
    (places{});
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
