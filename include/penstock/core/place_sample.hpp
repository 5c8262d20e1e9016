// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/record.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Reserves `lengths` values in each ragged field for the sample at `position`, directly after the
/// sample before it. For code that fills batches, such as a loader or your own `batch_source`:
/// first place all samples in order from position 0 on, then write them, in any order and from any
/// threads. Returns `Record::size`; if the values do not fit, nothing is placed and the index of
/// the ragged field that is full is returned.
template <record_type Record>
  requires(Record::ragged_fields > 0)
[[nodiscard]] constexpr std::size_t place_sample(const batch_view<Record>& whole,
                                                 std::size_t position,
                                                 const sample_lengths<Record>& lengths) noexcept {
  std::size_t refused = Record::size;
  const auto offsets_of = [&]<std::size_t Index>() {
    return reinterpret_cast<std::int32_t*>(whole.slab() +
                                           whole.layout().template offsets_at<Index>());
  };
  const auto require_room = [&]<std::size_t Index>() {
    if constexpr (Record::template field_at<Index>::is_ragged) {
      const std::int32_t before =
          position == 0 ? 0 : offsets_of.template operator()<Index>()[position];
      const std::size_t left =
          whole.layout().template capacity<Index>() - static_cast<std::size_t>(before);
      if (refused == Record::size && lengths[Record::template ragged_index<Index>()] > left) {
        refused = Index;
      }
    }
  };
  const auto place = [&]<std::size_t Index>() {
    if constexpr (Record::template field_at<Index>::is_ragged) {
      std::int32_t* const offsets = offsets_of.template operator()<Index>();
      if (position == 0) offsets[0] = 0;
      offsets[position + 1] =
          offsets[position] +
          static_cast<std::int32_t>(lengths[Record::template ragged_index<Index>()]);
    }
  };
  [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    (require_room.template operator()<Is>(), ...);
    if (refused == Record::size) (place.template operator()<Is>(), ...);
  }(std::make_index_sequence<Record::size>{});
  return refused;
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
