// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/adaptors/detail/subset_dataset.hpp>
#include <penstock/data/adaptors/detail/weighted_turns.hpp>
#include <penstock/data/dataset.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What `interleave` does once the samples of one of its datasets are through.
enum class through_action {
  end,     ///< the mixture ends before that dataset would come again
  repeat,  ///< it begins anew; the mixture ends once each dataset has been through
};

/// How datasets are mixed.
struct interleave_options {
  /// How often each dataset comes in a round, in their order: {3, 1} is three samples of the first
  /// for one of the second. None is 0; their sum, without a common divisor, at most 65536. Empty:
  /// equal ones.
  std::vector<std::uint32_t> weights = {};
  /// What ends the mixture.
  through_action when_through = through_action::end;
};

/// The samples of several datasets in turns, by weights: `interleave({.weights = {3, 1}}, large,
/// small) | map(f)`. A dataset like any other, whose sample i is a pure function of i, so that any
/// sampler goes over it and a resume takes constant time. Every round of as many samples as the
/// weights sum to has exactly as many of each dataset as its weight says, spread evenly; each
/// dataset's own samples come in their order. A sampler that shuffles the mixture keeps its shares
/// over the epoch, `sequential` in every round.
///
/// Takes 8 bytes for each place of a round. All datasets have the same record; throws
/// `concat_mismatch` if their dynamic extents differ, and `option_error` for weights that can't be,
/// or an empty dataset that is to be repeated. Lvalues are referred to and must outlive the result,
/// rvalues are moved in.
template <class... Parts>
  requires(sizeof...(Parts) > 0)
[[nodiscard]] auto interleave(const interleave_options& options, Parts&&... parts) {
  (detail::require_dataset<std::remove_cvref_t<Parts>>(), ...);
  // One sentence, and no page of unmet constraints after it.
  if constexpr ((dataset<std::remove_cvref_t<Parts>> && ...)) {
    detail::weighted_turns turns{options.weights,
                                 {static_cast<std::uint64_t>(parts.size())...},
                                 options.when_through == through_action::repeat};
    auto whole = concat(std::forward<Parts>(parts)...);
    return detail::subset_dataset<decltype(whole), detail::weighted_turns>{std::move(whole),
                                                                           std::move(turns)};
  }
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
