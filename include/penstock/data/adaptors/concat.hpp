// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <type_traits>
#include <utility>

#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/adaptors/concat_mismatch.hpp>
#include <penstock/data/adaptors/detail/concat_dataset.hpp>
#include <penstock/data/dataset.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The samples of several datasets, one after another: `concat(train, extra) | map(f)`. All have
/// the same record; throws `concat_mismatch` if their dynamic extents differ. Of a ragged field the
/// longest sample of all counts. Lvalues are referred to and must outlive the result, rvalues are
/// moved in.
///
/// At least one of them has a record: libraries that bind C++ to Python call a `concat` of their
/// own without its namespace, with our types in its arguments' types.
template <class... Parts>
  requires(detail::has_record<std::remove_cvref_t<Parts>> || ...)
[[nodiscard]] auto concat(Parts&&... parts) {
  (detail::require_dataset<std::remove_cvref_t<Parts>>(), ...);
  (detail::refuse_batch_maps<std::remove_cvref_t<Parts>>(), ...);
  // One sentence, and no page of unmet constraints after it.
  if constexpr ((dataset<std::remove_cvref_t<Parts>> && ...)) {
    return detail::concat_dataset<stored_dataset_t<Parts>...>{
        stored_dataset_t<Parts>(std::forward<Parts>(parts))...};
  }
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
