// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/support/ragged_numbers.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The bytes in field `Index` of the batch in `slab` from the first sample to that at `position`.
template <std::size_t Index, record_type Record>
[[nodiscard]] constexpr std::size_t place_in([[maybe_unused]] const std::byte* slab,
                                             const batch_layout<Record>& layout,
                                             std::size_t position) noexcept {
  using field = typename Record::template field_at<Index>;
  if constexpr (field::is_ragged) {
    const std::int32_t begin = layout.template value_begin<Index>(slab, position);
    return static_cast<std::size_t>(begin) * sizeof(typename field::value_type);
  } else {
    return position * layout.template sample_bytes<Index>();
  }
}

/// The lengths of the ragged fields in the sample at `position` of the batch in `slab`.
template <record_type Record>
[[nodiscard]] constexpr ragged_lengths<Record::ragged_fields> lengths_in(
    [[maybe_unused]] const std::byte* slab, [[maybe_unused]] const batch_layout<Record>& layout,
    [[maybe_unused]] std::size_t position) noexcept {
  ragged_lengths<Record::ragged_fields> values;
  if constexpr (Record::ragged_fields > 0) {
    const auto note = [&]<std::size_t Index>() {
      if constexpr (Record::template field_at<Index>::is_ragged) {
        values.of[Record::template ragged_index<Index>()] =
            static_cast<std::uint64_t>(layout.template value_begin<Index>(slab, position + 1) -
                                       layout.template value_begin<Index>(slab, position));
      }
    };
    [&]<std::size_t... Is>(std::index_sequence<Is...>) { (note.template operator()<Is>(), ...); }
    (std::make_index_sequence<Record::size>{});
  }
  return values;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
