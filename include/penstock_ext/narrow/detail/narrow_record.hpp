// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/extents.hpp>
#include <penstock/core/record.hpp>
#include <penstock_ext/adaptors/support/joined_record.hpp>
#include <penstock_ext/narrow/affine_scale.hpp>
#include <penstock_ext/narrow/half.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns the elements of the field `Name` in a sample.
template <name Name, class T, record_type Record, class Byte>
[[nodiscard]] std::span<like<Byte, T>> elements_of(const basic_sample<Record, Byte>& of) {
  constexpr std::size_t place = Record::template index_of<Name>();
  return {reinterpret_cast<like<Byte, T>*>(of.address(place)),
          of.extents().template at<place>().size()};
}

/// Copies all fields except `Name`. The other fields must have the same indices in both records.
template <name Name, record_type In, record_type Out>
void copy_others(const const_sample<In>& in, const sample<Out>& out) {
  const auto copy = [&]<std::size_t Index>() {
    using field = typename In::template field_at<Index>;
    if constexpr (field::key != Name) {
      std::memcpy(out.address(Index), in.address(Index),
                  in.extents().template at<Index>().size() * sizeof(typename field::value_type));
    }
  };
  [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    (copy.template operator()<Is>(), ...);
  }(std::make_index_sequence<In::size>{});
}

/// Throws `not_finite` for the first value that is not finite.
template <name Name>
void require_finite(std::span<const float> values, std::uint64_t sample) {
  constexpr std::uint32_t not_one = 0x7f800000U;
  std::uint32_t found = 0;
  for (const float value : values) {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
    found |= (bits & not_one) == not_one ? 1U : 0U;
  }
  if (found == 0) return;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) throw not_finite(Name, sample, i, values[i]);
  }
}

/// Writes the nearest byte for each value, clamped to the range. Computes in double, so that the
/// byte is exactly the nearest.
inline void write_bytes(std::span<const float> values, const affine_scale& by,
                        std::span<std::int8_t> to) {
  const double zero = static_cast<double>(by.zero);
  const double steps = by.scale > 0.0F ? 1.0 / static_cast<double>(by.scale) : 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double place = (static_cast<double>(values[i]) - zero) * steps;
    const double within = place < -128.0 ? -128.0 : place > 127.0 ? 127.0 : place;
    // Truncation of a non-negative number is a single instruction.
    to[i] = static_cast<std::int8_t>(static_cast<int>(within + 128.5) - 128);
  }
}

/// Writes the values that the bytes represent.
inline void read_bytes(std::span<const std::int8_t> bytes, const affine_scale& by,
                       std::span<float> to) {
  // If the scale has at most 16 significant bits, the product is exact, so a multiplication and an
  // addition give the same result as fma. Calling fma for each value would be many times slower.
  const bool is_exact = (__builtin_bit_cast(std::uint32_t, by.scale) & 0xffU) == 0;
  if (is_exact) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      to[i] = static_cast<float>(bytes[i]) * by.scale + by.zero;
    }
  } else {
    for (std::size_t i = 0; i < bytes.size(); ++i) to[i] = by(bytes[i]);
  }
}

/// A function for `map` that stores the field `Name` as the nearest values of `T`.
template <name Name, class T>
struct nearest_values {
  static constexpr bool borrows = false;
  template <record_type In, record_type Out>
  void operator()(const_sample<In> in, sample<Out> out) const {
    const auto from = elements_of<Name, float>(in);
    const auto to = elements_of<Name, T>(out);
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = T{from[i]};
    copy_others<Name>(in, out);
  }
};

/// A function for `map` that stores the field `Name` as bytes with a fixed scale.
template <name Name>
struct bytes_of_field {
  static constexpr bool borrows = false;
  affine_scale by;
  template <record_type In, record_type Out>
  void operator()(const_sample<In> in, sample<Out> out, std::uint64_t index) const {
    const auto from = elements_of<Name, float>(in);
    require_finite<Name>(from, index);
    write_bytes(from, by, elements_of<Name, std::int8_t>(out));
    copy_others<Name>(in, out);
  }
};

/// A function for `map` that stores the field `Name` as bytes. The last two fields of the result
/// contain the scale of each sample.
template <name Name>
struct bytes_of_sample {
  static constexpr bool borrows = false;
  template <record_type In, record_type Out>
  void operator()(const_sample<In> in, sample<Out> out, std::uint64_t index) const {
    const auto from = elements_of<Name, float>(in);
    require_finite<Name>(from, index);
    float min = from[0];
    float max = from[0];
    for (const float value : from) {
      min = value < min ? value : min;
      max = value > max ? value : max;
    }
    const affine_scale by = affine_over(min, max);
    write_bytes(from, by, elements_of<Name, std::int8_t>(out));
    out.template at<In::size>() = by.scale;
    out.template at<In::size + 1>() = by.zero;
    copy_others<Name>(in, out);
  }
};

/// True if floats can be narrowed to this type.
template <class T>
inline constexpr bool is_narrow =
    std::is_same_v<T, half> || std::is_same_v<T, bfloat16> || std::is_same_v<T, std::int8_t>;

/// Returns the name `of` followed by `suffix`, which must not exceed `name::max_size` characters.
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

/// Returns true if the names of the field's scale fields fit into a `name`.
[[nodiscard]] constexpr bool has_room_for_suffix(const name& of) {
  return of.size() + 6 <= name::max_size;
}
/// Returns the name of the scale field of `of`.
[[nodiscard]] constexpr name scale_of(const name& of) { return with_suffix(of, "_scale"); }
/// Returns the name of the zero field of `of`.
[[nodiscard]] constexpr name zero_of(const name& of) { return with_suffix(of, "_zero"); }

/// A record whose field `Name` has elements of type `T`.
template <class Record, name Name, class T>
struct retyped_record;
template <class... Fields, name Name, class T>
struct retyped_record<record<Fields...>, Name, T> {
  template <class Field>
  using field_of = typename std::conditional_t<Field::key == Name, retyped_field<Field, T>,
                                               std::type_identity<Field>>::type;
  using type = record<field_of<Fields>...>;
};

/// Converts extents to those of a record that differs only in its element types.
template <record_type Out, record_type In>
[[nodiscard]] record_extents<Out> same_extents(const record_extents<In>& lengths) {
  return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    return record_extents<Out>{lengths.template at<Is>()...};
  }(std::make_index_sequence<In::size>{});
}

/// The additional fields for bytes with a scale for each sample.
template <name Name>
using scale_record = record<field<scale_of(Name), float>, field<zero_of(Name), float>>;

/// The record `In` with its field `Name` stored as `T`.
template <record_type In, name Name, class T, bool IsScaled>
struct narrow_record {
  using type = typename retyped_record<In, Name, T>::type;
  [[nodiscard]] static record_extents<type> extents(const record_extents<In>& lengths) {
    return same_extents<type, In>(lengths);
  }
};
/// The record `In` with its field `Name` stored as bytes with a scale for each sample.
template <record_type In, name Name, class T>
struct narrow_record<In, Name, T, true> {
  using same = typename retyped_record<In, Name, T>::type;
  using type = joined_record_t<same, scale_record<Name>>;
  [[nodiscard]] static record_extents<type> extents(const record_extents<In>& lengths) {
    return joined_extents<same, scale_record<Name>>(same_extents<same, In>(lengths), {});
  }
};

/// Conversions that widen a field of a narrow batch.
enum class widening {
  none,       ///< copies the field
  values,     ///< converts each element to float
  by_field,   ///< converts bytes with a fixed scale
  by_sample,  ///< converts bytes with a scale for each sample
};

/// Batches of the record `In` with the fields `Names` widened to floats.
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

  /// Returns true if the field `key` is the scale or zero of a widened field.
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

  // Returns the number of byte fields with a fixed scale among the first `end` names in `Names`.
  // Not consteval, because clang 14 would call it before its definition.
  static constexpr std::size_t fixed_before(std::size_t end) {
    constexpr bool is_fixed[] = {
        way_of<typename In::template field_at<In::template index_of<Names>()>>() ==
        widening::by_field...};
    std::size_t count = 0;
    for (std::size_t i = 0; i < end; ++i) count += is_fixed[i] ? 1U : 0U;
    return count;
  }

 public:
  /// The resulting record.
  using type = typename record_of<places>::type;

  /// Index in `In` of the field with index `Index` in the result.
  template <std::size_t Index>
  static constexpr std::size_t place = kept[Index];
  /// Conversion of the field with index `Index` in the result.
  template <std::size_t Index>
  static constexpr widening way = way_of<typename In::template field_at<kept[Index]>>();
  /// Number of byte fields with a fixed scale.
  static constexpr std::size_t fixed = fixed_before(names);
  /// Returns the index of the field's scale among the fixed scales, in the order of `Names`.
  template <std::size_t Index>
  [[nodiscard]] static consteval std::size_t fixed_place() {
    return fixed_before(place_of(In::template field_at<kept[Index]>::key));
  }

  /// Returns the resulting extents.
  [[nodiscard]] static record_extents<type> extents(const record_extents<In>& lengths) {
    return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      return record_extents<type>{lengths.template at<kept[Is]>()...};
    }(places{});
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
