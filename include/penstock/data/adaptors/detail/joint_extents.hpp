// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include <penstock/core/record.hpp>
#include <penstock/data/adaptors/concat_mismatch.hpp>
#include <penstock/data/dataset.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Throws `concat_mismatch` where field `Field` of part `part` has other extents than in part 0.
template <std::size_t Field, record_type Record>
void require_same_field(std::size_t part, const record_extents<Record>& first,
                        const record_extents<Record>& lengths) {
  using field = typename Record::template field_at<Field>;
  if constexpr (!field::is_ragged) {
    const auto expected = first.template at<Field>();
    const auto found = lengths.template at<Field>();
    for (std::size_t d = 0; d != field::extents_type::rank; ++d) {
      if (found[d] == expected[d]) continue;
      throw concat_mismatch(part, "field \"" + field::key.str() + "\": expected extent " +
                                      std::to_string(expected[d]) + " in dimension " +
                                      std::to_string(d) + " as in part 0, found " +
                                      std::to_string(found[d]));
    }
  }
}

/// The extents of field `Field` in all parts: of a ragged one the largest bounds.
template <std::size_t Field, record_type Record>
[[nodiscard]] auto joint_field(std::span<const record_extents<Record>> parts) {
  auto joint = parts.front().template at<Field>();
  if constexpr (Record::template field_at<Field>::is_ragged) {
    for (const record_extents<Record>& part : parts) {
      const auto one = part.template at<Field>();
      joint.longest = (std::max)(joint.longest, one.longest);
      const bool are_bounded = joint.values_per_batch != 0 && one.values_per_batch != 0;
      joint.values_per_batch =
          are_bounded ? (std::max)(joint.values_per_batch, one.values_per_batch) : 0;
    }
    if (joint.values_per_batch != 0) {
      joint.values_per_batch = (std::max)(joint.values_per_batch, joint.longest);
    }
  }
  return joint;
}

/// The extents of datasets of one record that are joined. Throws `concat_mismatch`.
template <record_type Record, dataset... Parts>
[[nodiscard]] record_extents<Record> joint_extents(const std::tuple<Parts...>& parts) {
  const auto all = std::apply(
      [](const Parts&... each) {
        return std::array<record_extents<Record>, sizeof...(Parts)>{extents_of(each)...};
      },
      parts);
  return [&]<std::size_t... Fields>(std::index_sequence<Fields...>) {
    for (std::size_t part = 0; part < all.size(); ++part) {
      (require_same_field<Fields>(part, all[0], all[part]), ...);
    }
    return record_extents<Record>{
        joint_field<Fields>(std::span<const record_extents<Record>>{all})...};
  }
  (std::make_index_sequence<Record::size>{});
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
