// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/order/support/word_hash.hpp>
#include <penstock_ext/samplers/support/round_robin.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A selection from the concatenated parts, in which the parts alternate in proportion to their
/// weights. The pattern (see `round_robin`) repeats after sum(weights) positions.
class weighted_turns {
 public:
  /// Creates the selection for parts of the given sizes. If `repeats` is true, an exhausted part
  /// starts again until each part has been read once. Otherwise the first exhausted part ends the
  /// selection. Throws `option_error` if the weights or sizes are invalid.
  weighted_turns(const std::vector<std::uint32_t>& weights, const std::vector<std::uint64_t>& sizes,
                 bool repeats)
      : sizes_(sizes), repeats_(repeats) {
    weights_ = weights.empty() ? std::vector<std::uint32_t>(sizes_.size(), 1) : weights;
    require_valid();
    weights_ = reduced(std::move(weights_));
    turns_ = round_robin(weights_);
    begins_.assign(1, 0);
    for (const std::uint64_t size : sizes_) begins_.push_back(begins_.back() + size);
    size_ = places();
  }

  /// Returns the number of samples.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Returns the index of sample `i` in the concatenated parts.
  [[nodiscard]] std::uint64_t operator[](std::uint64_t i) const noexcept {
    const part_turn& at = turns_[static_cast<std::size_t>(i % turns_.size())];
    const std::uint64_t nth = i / turns_.size() * weights_[at.part] + at.before;
    return begins_[at.part] + (nth < sizes_[at.part] ? nth : nth % sizes_[at.part]);
  }
  /// Adds the pattern to a hash.
  void add_to(word_hash& hash) const noexcept {
    hash.add_all({4 /* of turns */, repeats_});
    hash.add_all(weights_).add_all(sizes_);
  }
  /// Does nothing, because the pattern was created for these parts.
  void check(std::uint64_t) const noexcept {}

 private:
  void require_valid() const {
    if (weights_.size() != sizes_.size()) {
      throw_option_error("weights",
                         {"there are ", weights_.size(), " weights for ", sizes_.size(),
                          " datasets: give one weight per dataset, or none for equal weights"});
    }
    for (std::size_t part = 0; part < weights_.size(); ++part) {
      if (weights_[part] != 0) continue;
      throw_option_error("weights", {"the weight of dataset ", part, " is 0: omit the dataset"});
    }
  }

  /// Returns the position of a part's sample `nth`, counted from 0.
  [[nodiscard]] std::uint64_t place_of(std::size_t part, std::uint64_t nth) const {
    const std::uint64_t rounds = nth / weights_[part];
    const auto in_round = static_cast<std::uint32_t>(nth % weights_[part]);
    const auto at = std::find_if(turns_.begin(), turns_.end(), [&](const part_turn& one) {
      return one.part == part && one.before == in_round;
    });
    const auto place = static_cast<std::uint64_t>(at - turns_.begin());
    if (rounds > ((std::numeric_limits<std::uint64_t>::max)() - place) / turns_.size()) {
      throw_option_error("weights", {"the samples of all turns exceed 64 bits"});
    }
    return rounds * turns_.size() + place;
  }

  [[nodiscard]] std::uint64_t places() const {
    std::uint64_t first = (std::numeric_limits<std::uint64_t>::max)();
    std::uint64_t last = 0;
    for (std::size_t part = 0; part < sizes_.size(); ++part) {
      if (sizes_[part] == 0 && repeats_) {
        throw_option_error("on_exhausted",
                           {"dataset ", part, " has no sample that could be repeated"});
      }
      first = (std::min)(first, place_of(part, sizes_[part]));
      if (repeats_) last = (std::max)(last, place_of(part, sizes_[part] - 1) + 1);
    }
    return repeats_ ? last : first;
  }

  std::vector<std::uint64_t> sizes_;
  std::vector<std::uint32_t> weights_;  // divided by their greatest common divisor
  bool repeats_;
  std::vector<part_turn> turns_;
  std::vector<std::uint64_t> begins_;  // starts of the parts, followed by the end of the last part
  std::uint64_t size_ = 0;
};

}  // namespace detail

/// Specifies the action of `interleave` when a dataset is exhausted.
enum class exhausted_policy {
  end,     ///< ends the mixture before the next sample of that dataset
  repeat,  ///< restarts that dataset; ends the mixture when each dataset has been read once
};

/// Options of `interleave`.
struct interleave_options {
  /// Number of samples of each dataset in a round, in argument order. {3, 1} reads three samples of
  /// the first dataset for each sample of the second. Each weight is at least 1. The sum of the
  /// weights, divided by their greatest common divisor, is at most 65536. If empty, all weights are
  /// equal.
  std::vector<std::uint32_t> weights = {};
  /// Action when a dataset is exhausted.
  exhausted_policy on_exhausted = exhausted_policy::end;
};

/// Mixes datasets by weights: `interleave({.weights = {3, 1}}, large, small) | map(f)`. The result
/// is a dataset whose sample i is a pure function of i. Therefore any sampler can be used, and
/// resuming takes constant time. Each round of sum(weights) samples has exactly as many samples of
/// each dataset as its weight specifies, evenly distributed. The order within each dataset is
/// preserved. The shares are exact in each round with `sequential`, and over the epoch with a
/// shuffling sampler.
///
/// The pattern occupies 8 bytes for each sample in a round. All datasets must have the same record.
/// Throws `concat_mismatch` if their dynamic extents differ, and `option_error` for invalid weights
/// or for an empty dataset that would have to repeat. Lvalues are referenced and must outlive the
/// result, and rvalues are moved in.
template <class... Parts>
  requires(sizeof...(Parts) > 0)
[[nodiscard]] auto interleave(const interleave_options& options, Parts&&... parts) {
  (detail::require_dataset<std::remove_cvref_t<Parts>>(), ...);
  // A static_assert reports misuse in one sentence instead of a page of unsatisfied constraints.
  if constexpr ((dataset<std::remove_cvref_t<Parts>> && ...)) {
    detail::weighted_turns turns{options.weights,
                                 {static_cast<std::uint64_t>(parts.size())...},
                                 options.on_exhausted == exhausted_policy::repeat};
    auto whole = concat(std::forward<Parts>(parts)...);
    return detail::subset_dataset<decltype(whole), detail::weighted_turns>{std::move(whole),
                                                                           std::move(turns)};
  }
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
