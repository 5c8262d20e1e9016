// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/adaptors/map.hpp>
#include <penstock/device/cpu_stream.hpp>
#include <penstock_ext/narrow/affine_scale.hpp>
#include <penstock_ext/narrow/detail/narrow_record.hpp>
#include <penstock_ext/narrow/half.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Returns true if a record has a float field `Name`. Otherwise compilation fails with a readable
/// message.
template <record_type Record, name Name>
[[nodiscard]] consteval bool has_floats() {
  constexpr bool is_there = Record::template has_field<Name>;
  static_assert(is_there, "penstock::narrowed: the record has no such field");
  if constexpr (is_there) {
    using element =
        typename Record::template field_at<Record::template index_of<Name>()>::value_type;
    constexpr bool is_float = std::is_same_v<element, float>;
    static_assert(is_float, "penstock::narrowed: the field's elements must be float");
    return is_float;
  } else {
    return false;
  }
}

/// Returns true if the names of the scale fields of `Name` are not used in a record.
template <record_type Record, name Name>
[[nodiscard]] consteval bool has_room_for_scales() {
  constexpr bool is_short = has_room_for_suffix(Name);
  static_assert(is_short,
                "penstock::narrowed: the field's name must have at most 26 characters, so that "
                "\"_scale\" can be appended");
  if constexpr (is_short) {
    constexpr bool is_free =
        !Record::template has_field<scale_of(Name)> && !Record::template has_field<zero_of(Name)>;
    static_assert(is_free,
                  "penstock::narrowed: the record already has a field with the name of the scale "
                  "or the zero: rename it with map<Out>");
    return is_free;
  } else {
    return false;
  }
}

/// The adaptor returned by `narrowed`, as in `data | narrowed<"x", T>()`.
template <name Name, class T, class F, bool IsScaled>
class narrowed_adaptor : public adaptor<narrowed_adaptor<Name, T, F, IsScaled>> {
 public:
  explicit narrowed_adaptor(F function) : function_(function) {}

  /// Returns the dataset `data` with the narrowed field.
  template <class Data>
  [[nodiscard]] auto operator()(Data&& data) && {
    using base = stored_dataset_t<Data>;
    using record = typename base::record_type;
    if constexpr (fits<record>()) {
      using made = narrow_record<record, Name, T, IsScaled>;
      base below(std::forward<Data>(data));
      const auto lengths = made::extents(extents_of(below));
      return map_into_dataset<base, typename made::type, F>{std::move(below), function_, lengths};
    }
  }

 private:
  template <record_type Record>
  static consteval bool fits() {
    static_assert(Record::ragged_fields == 0,
                  "penstock::narrowed: it does not support ragged fields: narrow the values in the "
                  "dataset's read function");
    if constexpr (Record::ragged_fields != 0 || !has_floats<Record, Name>()) {
      return false;
    } else if constexpr (IsScaled) {
      return has_room_for_scales<Record, Name>();
    } else {
      return true;
    }
  }

  F function_;
};

}  // namespace detail

/// Stores the floats of field `Name` in fewer bytes, so that fewer bytes are copied to the device:
/// `data | narrowed<"x", half>()`. The other fields do not change. The field may have any extents,
/// but no field may be ragged. Workers write the narrow values directly into the batch. If the
/// dataset has no `view`, a worker first reads the sample into its own buffer.
///
/// - `half`, `bfloat16`: half the bytes, rounded to nearest. Values that round beyond 65,504, the
///   largest half, become infinity.
/// - `std::int8_t`: a quarter of the bytes, with a scale for each sample. Two float fields,
///   "x_scale" and "x_zero", are appended. Byte b represents `zero + scale * b` (see
///   `affine_over`). The error is at most half a step, 1/510 of the sample's range. An infinity or
///   NaN causes `not_finite` with the sample index. The field name may have at most 26 characters.
///
/// `widen<"x">()` restores the floats on the device after the copy. Loader states of the dataset
/// and of the narrowed dataset are interchangeable, because the samples are the same.
template <name Name, class T>
[[nodiscard]] auto narrowed() {
  constexpr bool is_narrow = detail::is_narrow<T>;
  static_assert(is_narrow,
                "penstock::narrowed: the new type must be half, bfloat16 or std::int8_t");
  if constexpr (std::is_same_v<T, std::int8_t>) {
    using function = detail::bytes_of_sample<Name>;
    return detail::narrowed_adaptor<Name, T, function, true>{function{}};
  } else if constexpr (is_narrow) {
    using function = detail::nearest_values<Name, T>;
    return detail::narrowed_adaptor<Name, T, function, false>{function{}};
  }
}

/// Stores the floats of field `Name` as bytes with a fixed scale, for values with a known range:
/// `data | narrowed<"x", std::int8_t>({.scale = 0.02F})`, or with `affine_over(min, max)`. Values
/// outside the range are clamped. An infinity or NaN causes `not_finite`. The batch does not
/// contain the scale, so the same `by` must be passed to `widen`. Throws `option_error` if the
/// scale is not finite and positive, or the zero is not finite.
template <name Name, class T>
[[nodiscard]] auto narrowed(const affine_scale& by) {
  constexpr bool is_byte = std::is_same_v<T, std::int8_t>;
  static_assert(is_byte, "penstock::narrowed: only std::int8_t has a scale");
  if (!std::isfinite(by.scale) || !(by.scale > 0.0F)) {
    detail::throw_option_error("narrowed.scale",
                               {"must be a positive number, but is ", std::to_string(by.scale)});
  }
  if (!std::isfinite(by.zero)) {
    detail::throw_option_error("narrowed.zero",
                               {"must be a number, but is ", std::to_string(by.zero)});
  }
  if constexpr (is_byte) {
    using function = detail::bytes_of_field<Name>;
    return detail::narrowed_adaptor<Name, T, function, false>{function{by}};
  }
}

namespace detail {

/// The transform returned by `widen`: a `device_transform` for the CPU device.
template <std::size_t Fixed, name... Names>
class cpu_widening {
  template <record_type In>
  using batches = widened_batch<In, Names...>;

 public:
  /// The resulting record for batches of `In`.
  template <record_type In>
  using record_for = typename batches<In>::type;

  /// Stores the fixed scales.
  explicit cpu_widening(const std::array<affine_scale, Fixed>& fixed) : fixed_(fixed) {}

  /// Returns the extents unchanged.
  template <record_type In>
  [[nodiscard]] record_extents<record_for<In>> extents(const record_extents<In>& lengths) const {
    return batches<In>::extents(lengths);
  }

  /// Enqueues the widening of a batch on `stream`.
  template <record_type In>
  void enqueue(const_batch_view<In> in, batch_view<record_for<In>> out,
               cpu_stream_ref stream) const {
    static_assert(batches<In>::fixed == Fixed,
                  "penstock::widen: pass one scale for each field of std::int8_t that has no scale "
                  "in the batch: widen<\"x\">(affine_scale)");
    stream.launch([this, in, out] {
      [&]<std::size_t... Is>(std::index_sequence<Is...>) {
        (make<Is>(in, out), ...);
      }(std::make_index_sequence<record_for<In>::size>{});
    });
  }

 private:
  template <std::size_t Index, record_type In>
  void make(const const_batch_view<In>& in, const batch_view<record_for<In>>& out) const {
    using made = batches<In>;
    constexpr std::size_t place = made::template place<Index>;
    const auto from = in.template at<place>();
    const auto to = out.template at<Index>();
    if constexpr (made::template way<Index> == widening::none) {
      std::memcpy(to.data(), from.data(), from.size() * sizeof(*from.data()));
    } else if constexpr (made::template way<Index> == widening::values) {
      for (std::size_t i = 0; i < from.size(); ++i) to.data()[i] = from.data()[i];
    } else if constexpr (made::template way<Index> == widening::by_field) {
      read_bytes(from.flat(), fixed_[made::template fixed_place<Index>()], to.flat());
    } else {
      constexpr name key = In::template field_at<place>::key;
      const float* scales = in.template get<scale_of(key)>().data();
      const float* zeros = in.template get<zero_of(key)>().data();
      const std::size_t length = in.size() == 0 ? 0 : from.size() / in.size();
      for (std::size_t n = 0; n < in.size(); ++n) {
        read_bytes(from.flat().subspan(n * length, length), {scales[n], zeros[n]},
                   to.flat().subspan(n * length, length));
      }
    }
  }

  std::array<affine_scale, Fixed> fixed_;
};

}  // namespace detail

/// Returns a `transfer` transform for the CPU device that restores the floats of `narrowed` fields
/// after the copy: `transfer feed{loader, stream, widen<"x">()}`. The transfer copies narrow
/// values, and the consumer receives batches of the original record. For CUDA, use
/// `widen_on_device`.
///
/// Scales for each sample are read from the batch fields "x_scale" and "x_zero", which are removed
/// from the result. Fixed scales are arguments, in the order of the names:
/// `widen<"x", "y">(of_x, of_y)`.
template <name... Names, std::same_as<affine_scale>... Scales>
  requires(sizeof...(Names) > 0)
[[nodiscard]] auto widen(const Scales&... fixed) {
  return detail::cpu_widening<sizeof...(Scales), Names...>{
      std::array<affine_scale, sizeof...(Scales)>{fixed...}};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
