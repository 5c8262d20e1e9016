// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <penstock/core/extents.hpp>
#include <penstock/core/name.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/support/joined_record.hpp>
#include <penstock_ext/narrow/bfloat16.hpp>
#include <penstock_ext/narrow/half.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Whether a float may be stored as one.
template <class T>
inline constexpr bool is_narrow =
    std::is_same_v<T, half> || std::is_same_v<T, bfloat16> || std::is_same_v<T, std::int8_t>;

/// The name `of` with `suffix` after it; both together have `name::max_size` characters at most.
template <std::size_t Size>
[[nodiscard]] constexpr name with_suffix(const name& of, const char (&suffix)[Size]) noexcept {
  std::uint64_t words[4] = {of.word0, of.word1, of.word2, of.word3};
  std::size_t end = of.size();
  for (std::size_t i = 0; i + 1 < Size; ++i, ++end) {
    words[end / 8] |= static_cast<std::uint64_t>(static_cast<unsigned char>(suffix[i]))
                      << (8 * (end % 8));
  }
  return {words[0], words[1], words[2], words[3]};
}

/// Whether the fields beside one of this name can be named after it.
[[nodiscard]] constexpr bool has_room_for_suffix(const name& of) {
  return of.size() + 6 <= name::max_size;
}
/// The name of the field with the steps of the samples of field `of`.
[[nodiscard]] constexpr name scale_of(const name& of) { return with_suffix(of, "_scale"); }
/// The name of the field with what their zeros stand for.
[[nodiscard]] constexpr name zero_of(const name& of) { return with_suffix(of, "_zero"); }

/// `Field` with elements of type T.
template <class Field, class T, class Lengths = typename Field::extents_type>
struct retyped_field;
template <class Field, class T, std::size_t... Extents>
struct retyped_field<Field, T, extents<Extents...>> {
  // The name is written anew: nvcc 13.0 hands one out of a type on as one that is not known.
  using type = field<name{Field::key.word0, Field::key.word1, Field::key.word2, Field::key.word3},
                     T, Extents...>;
};

/// A record whose field called `Name` has elements of type T.
template <class Record, name Name, class T>
struct retyped_record;
template <class... Fields, name Name, class T>
struct retyped_record<record<Fields...>, Name, T> {
  template <class Field>
  using field_of = typename std::conditional_t<Field::key == Name, retyped_field<Field, T>,
                                               std::type_identity<Field>>::type;
  using type = record<field_of<Fields>...>;
};

/// The extents of a record with the same fields but for the types of their elements.
template <record_type Out, record_type In>
[[nodiscard]] record_extents<Out> same_extents(const record_extents<In>& lengths) {
  return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    return record_extents<Out>{lengths.template at<Is>()...};
  }
  (std::make_index_sequence<In::size>{});
}

/// What a batch has beside bytes with a scale for each sample.
template <name Name>
using scale_record = record<field<scale_of(Name), float>, field<zero_of(Name), float>>;

/// What becomes of `In` when its field called `Name` is stored as T.
template <record_type In, name Name, class T, bool IsScaled>
struct narrow_record {
  using type = typename retyped_record<In, Name, T>::type;
  [[nodiscard]] static record_extents<type> extents(const record_extents<In>& lengths) {
    return same_extents<type, In>(lengths);
  }
};
/// Bytes with a scale for each sample.
template <record_type In, name Name, class T>
struct narrow_record<In, Name, T, true> {
  using same = typename retyped_record<In, Name, T>::type;
  using type = joined_record_t<same, scale_record<Name>>;
  [[nodiscard]] static record_extents<type> extents(const record_extents<In>& lengths) {
    return joined_extents<same, scale_record<Name>>(same_extents<same, In>(lengths), {});
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
