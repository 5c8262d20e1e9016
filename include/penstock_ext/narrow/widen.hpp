// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/record.hpp>
#include <penstock/device/cpu_stream.hpp>
#include <penstock_ext/narrow/affine_scale.hpp>
#include <penstock_ext/narrow/detail/narrow_record.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// The result of `widen`: a `device_transform` of the CPU device.
template <std::size_t Fixed, name... Names>
class cpu_widening {
  template <record_type In>
  using batches = widened_batch<In, Names...>;

 public:
  /// The resulting record for batches of `In`.
  template <record_type In>
  using record_for = typename batches<In>::type;

  /// `fixed` are the scales that are not in the batch.
  explicit cpu_widening(const std::array<affine_scale, Fixed>& fixed) : fixed_(fixed) {}

  /// Unchanged extents.
  template <record_type In>
  [[nodiscard]] record_extents<record_for<In>> extents(const record_extents<In>& lengths) const {
    return batches<In>::extents(lengths);
  }

  /// Queues the widening of a batch on `stream`.
  template <record_type In>
  void enqueue(const_batch_view<In> in, batch_view<record_for<In>> out,
               cpu_stream_ref stream) const {
    static_assert(batches<In>::fixed == Fixed,
                  "penstock::widen: one scale for each field of std::int8_t that has none in the "
                  "batch: widen<\"x\">(affine_scale)");
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

/// A transform of a `transfer` on the CPU device that restores the floats of `narrowed` fields
/// after the copy: `transfer feed{loader, stream, widen<"x">()}`. Narrow values are copied; the
/// consumer gets batches of the original record. For CUDA use `widen_on_device`.
///
/// Scales per sample come from the batch's fields "x_scale" and "x_zero", which are removed from
/// the result. Fixed scales are arguments, in the order of the fields: `widen<"x", "y">(of_x,
/// of_y)`.
template <name... Names, std::same_as<affine_scale>... Scales>
  requires(sizeof...(Names) > 0)
[[nodiscard]] auto widen(const Scales&... fixed) {
  return detail::cpu_widening<sizeof...(Scales), Names...>{
      std::array<affine_scale, sizeof...(Scales)>{fixed...}};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
