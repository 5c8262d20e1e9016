// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/order/detail/alias_table.hpp>
#include <penstock/order/detail/weighted_order.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/order/support/draw.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// What a container that a std::span may be made of holds. A concept of <ranges> would say it too,
/// and be a tenth of all that the umbrella has parsed.
template <class Container>
using spanned_value = typename decltype(std::span{std::declval<const Container&>()})::value_type;

}  // namespace detail

/// The options of `weighted`.
struct weighted_options {
  /// Together with epoch and place, determines the draws.
  std::uint64_t seed = 0;
  /// Samples an epoch; 0 is as many as there are weights. WeightedRandomSampler(num_samples).
  std::uint64_t draws = 0;
};

/// Draws with replacement: sample i comes with chance weights[i] / sum, at every place of the epoch
/// anew.
///
///     std::vector<double> weights = ...;  // one for each sample, in any unit
///     ps::loader loader{digits, ps::weighted{weights, {.seed = 1}}, {.batch_size = 64}};
///
/// The draw at place k is a function of (seed, epoch, k), so a loop resumes anywhere. Every chance
/// is right to 2^-29 of the mean one, so that no test of fewer than some 2^60 draws tells it from
/// the exact one. A weight of 0 is never drawn; one below 2^-31 of the mean may never be, but many
/// of them together keep the chance that they have together.
///
/// 8 bytes a weight, 16 while it is made, in O(n) time; a draw is one look into the table, whatever
/// n. Copies share the table. Any number of threads may share one. An order refers to the table:
/// keep the sampler or a copy of it as long as its orders, as a loader does; `order` of a temporary
/// does not compile.
///
/// PyTorch: `WeightedRandomSampler(replacement=True)`, which ends at 2^24 weights (those of
/// `torch.multinomial`) and makes the list of an epoch beforehand; here up to 2^32 - 1. Errors:
/// `option_error` naming the weight that is negative, infinite or NaN; when there is none, or none
/// above 0; and from `size` and `order` when the dataset has another number of samples.
class weighted {
 public:
  /// Draws by `weights`, float or double, which are not needed any more afterwards.
  template <class Weights>
    requires detail::real<detail::spanned_value<Weights>>
  explicit weighted(const Weights& weights, const weighted_options& options = {})
      : table_(std::make_shared<const detail::alias_table>(
            std::span<const detail::spanned_value<Weights>>{weights})),
        options_(options) {}

  [[nodiscard]] std::uint64_t size(std::uint64_t n) const {
    require_size(n);
    return options_.draws == 0 ? n : options_.draws;
  }
  [[nodiscard]] detail::weighted_order order(std::uint64_t n, std::uint64_t epoch) const& {
    require_size(n);
    return {*table_, options_.seed, epoch};
  }
  detail::weighted_order order(std::uint64_t n, std::uint64_t epoch) && = delete;

  /// What it was made with.
  [[nodiscard]] const weighted_options& options() const noexcept { return options_; }

 private:
  void require_size(std::uint64_t n) const {
    if (const std::size_t weights = table_->columns().size(); weights != n) {
      throw option_error("weights", "expected one for each of the dataset's " + std::to_string(n) +
                                        " samples, found " + std::to_string(weights));
    }
  }

  std::shared_ptr<const detail::alias_table> table_;
  weighted_options options_;
};

static_assert(epoch_order<detail::weighted_order>);
static_assert(sampler<weighted>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
