// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/name.hpp>
#include <penstock/core/record.hpp>
#include <penstock_ext/narrow/affine_scale.hpp>
#include <penstock_ext/narrow/narrow_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The elements of the field called `Name` of a sample.
template <name Name, class T, record_type Record, class Byte>
[[nodiscard]] std::span<like<Byte, T>> elements_of(const basic_sample<Record, Byte>& of) {
  constexpr std::size_t place = Record::template index_of<Name>();
  return {reinterpret_cast<like<Byte, T>*>(of.address(place)),
          of.extents().template at<place>().size()};
}

/// Copies all fields but the one called `Name`, which have the same places in both records.
template <name Name, record_type In, record_type Out>
void copy_others(const const_sample<In>& in, const sample<Out>& out) {
  const auto copy = [&]<std::size_t Index>() {
    using field = typename In::template field_at<Index>;
    if constexpr (field::key != Name) {
      std::memcpy(out.address(Index), in.address(Index),
                  in.extents().template at<Index>().size() * sizeof(typename field::value_type));
    }
  };
  [&]<std::size_t... Is>(std::index_sequence<Is...>) { (copy.template operator()<Is>(), ...); }
  (std::make_index_sequence<In::size>{});
}

/// Throws `not_finite` for the first number of `values` that is not.
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

/// Writes for each value the byte that stands for the nearest number; beyond the last ones, those.
/// In double, so that it is the nearest one indeed.
inline void write_bytes(std::span<const float> values, const affine_scale& by,
                        std::span<std::int8_t> to) {
  const double zero = static_cast<double>(by.zero);
  const double steps = by.scale > 0.0F ? 1.0 / static_cast<double>(by.scale) : 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double place = (static_cast<double>(values[i]) - zero) * steps;
    const double within = place < -128.0 ? -128.0 : place > 127.0 ? 127.0 : place;
    // The truncation of what is not negative, for it is one instruction.
    to[i] = static_cast<std::int8_t>(static_cast<int>(within + 128.5) - 128);
  }
}

/// Writes what each byte stands for.
inline void read_bytes(std::span<const std::int8_t> bytes, const affine_scale& by,
                       std::span<float> to) {
  // With 16 significant bits the product is exact, so that the sum is what fma gives: a call of it
  // for each value would cost many times as much.
  const bool is_exact = (__builtin_bit_cast(std::uint32_t, by.scale) & 0xffU) == 0;
  if (is_exact) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      to[i] = static_cast<float>(bytes[i]) * by.scale + by.zero;
    }
  } else {
    for (std::size_t i = 0; i < bytes.size(); ++i) to[i] = by(bytes[i]);
  }
}

/// For a `map`: stores the field called `Name` as the nearest T.
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

/// For a `map`: stores the field called `Name` as bytes of one scale.
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

/// For a `map`: stores the field called `Name` as bytes of a scale for each sample, which goes into
/// the two last fields.
template <name Name>
struct bytes_of_sample {
  static constexpr bool borrows = false;
  template <record_type In, record_type Out>
  void operator()(const_sample<In> in, sample<Out> out, std::uint64_t index) const {
    const auto from = elements_of<Name, float>(in);
    require_finite<Name>(from, index);
    float least = from[0];
    float most = from[0];
    for (const float value : from) {
      least = value < least ? value : least;
      most = value > most ? value : most;
    }
    const affine_scale by = affine_over(least, most);
    write_bytes(from, by, elements_of<Name, std::int8_t>(out));
    out.template at<In::size>() = by.scale;
    out.template at<In::size + 1>() = by.zero;
    copy_others<Name>(in, out);
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
