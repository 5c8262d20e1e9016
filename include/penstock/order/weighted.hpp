// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/sampler.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The probabilities of n samples as a table of n columns, in which a draw is a single lookup. A
/// column has a height of 2^32. The lower `keep` units of a column belong to its own sample, and
/// the upper units belong to another sample, the alias.
///
/// The table is computed with integers only, so it is the same on every machine, with every
/// compiler and flag, including -ffast-math and flushed denormals. In contrast to floating-point
/// arithmetic, the last columns need not absorb rounding errors.
///
/// Source: Walker, "An efficient method for generating discrete random variables with general
/// distributions", 1977; linear time: Vose, "A linear algorithm for generating random numbers with
/// a given distribution", 1991. Implemented with two ascending indices instead of Vose's two lists.
class alias_table {
 public:
  /// An 8-byte column.
  struct column {
    std::uint32_t alias;
    std::uint32_t keep;
  };

  /// Creates the table. Throws `option_error` unless there are 1 to 2^32 - 1 weights, all are
  /// finite and not negative, and at least one is positive.
  template <real Real>
  explicit alias_table(std::span<const Real> weights) {
    if (weights.empty()) throw_option_error("weights", {"expected at least one, found none"});
    if (weights.size() > max) {
      throw_option_error("weights", {"expected at most 2^32 - 1, found ", weights.size()});
    }
    level(shares_of(weights));
  }

  /// Returns the sample at height `height` of column `which`.
  [[nodiscard]] std::uint32_t at(std::uint32_t which, std::uint32_t height) const noexcept {
    const column& found = columns_[which];
    return height < found.keep ? which : found.alias;
  }

  [[nodiscard]] std::span<const column> columns() const noexcept { return columns_; }

 private:
  static constexpr std::size_t max = 0xffffffffu;
  static constexpr std::uint64_t full = std::uint64_t{1} << 32;
  __extension__ using wide = unsigned __int128;

  /// A weight is significand * 2^exponent, where exponent 0 is the smallest exponent of the type.
  struct parts {
    std::uint64_t significand;
    int exponent;
  };

  template <real Real>
  static parts parts_of(const Real& weight, std::size_t index) {
    using word = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;
    using limits = std::numeric_limits<Real>;
    static_assert(limits::digits == (sizeof(word) == 4 ? 24 : 53), "weights: IEEE 754 is expected");
    constexpr int stored = limits::digits - 1;  // number of stored significand bits
    constexpr word sign = word{1} << (limits::digits == 24 ? 31 : 63);
    constexpr int infinite = 2 * limits::max_exponent - 1;

    const word bits = std::bit_cast<word>(weight);
    const word size = bits & static_cast<word>(~sign);
    const int exponent = static_cast<int>(size >> stored);
    if (exponent == infinite || (bits != size && size != 0)) {
      throw_option_error("weights", {"expected finite numbers >= 0, found ", to_text(weight),
                                     " at index ", index});
    }
    const word significand = size & ((word{1} << stored) - 1);
    if (exponent == 0) return {significand, 1};
    return {significand | word{1} << stored, exponent};
  }

  /// Returns each sample's share of the table in units of 2^-32 columns. The shares sum to exactly
  /// n 2^32. A weight of 0 has the share 0. Each share is accurate to two units, or to five units
  /// if n exceeds 2^30.
  template <real Real>
  static std::vector<std::uint64_t> shares_of(std::span<const Real> weights) {
    int top = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const parts weight = parts_of(weights[i], i);
      if (weight.significand != 0) top = (std::max)(top, weight.exponent);
    }
    if (top == 0) {
      throw_option_error("weights", {"expected one above 0, found ", weights.size(), " zeros"});
    }

    // The highest bit of the largest weight is bit 95, so that a sum of 2^32 weights does not
    // overflow. The bits lost below bit 0 are then less than 2^-62 of the sum.
    constexpr int room = 95 - std::numeric_limits<Real>::digits;
    const auto fixed = [&](std::size_t i) -> wide {
      const parts weight = parts_of(weights[i], i);
      const int shift = room - (top - weight.exponent);
      if (shift >= 0) return wide{weight.significand} << shift;
      return shift > -64 ? weight.significand >> -shift : 0;
    };
    wide sum = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) sum += fixed(i);

    // Each share is a difference of two rounded running sums, so errors do not accumulate. 64 bits
    // of both sums suffice and leave room for the product.
    const auto high = static_cast<std::uint64_t>(sum >> 64);
    const int drop = static_cast<int>(std::bit_width(high));
    const auto all = static_cast<std::uint64_t>(sum >> drop);
    const std::uint64_t units = weights.size() * full;
    std::vector<std::uint64_t> shares(weights.size());
    wide running = 0;
    std::uint64_t before = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      running += fixed(i);
      const auto now = static_cast<std::uint64_t>(
          wide{static_cast<std::uint64_t>(running >> drop)} * units / all);
      shares[i] = now - before;
      before = now;
    }
    return shares;
  }

  /// Fills each column that is not full with units of a sample whose share exceeds a column. The
  /// sum is exact, so such a sample exists as long as a column is not full.
  void level(std::vector<std::uint64_t> shares) {
    columns_.reserve(shares.size());
    std::size_t rich = 0;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      columns_.push_back({static_cast<std::uint32_t>(i), 0});
      std::size_t poor = i;
      // A sample that has given units to another column may no longer fill its own column. If its
      // index is higher, a later iteration handles it.
      while (poor <= i && shares[poor] < full) {
        while (shares[rich] <= full) ++rich;
        columns_[poor] = {static_cast<std::uint32_t>(rich),
                          static_cast<std::uint32_t>(shares[poor])};
        shares[rich] -= full - shares[poor];
        poor = rich;
      }
    }
  }

  std::vector<column> columns_;
};

static_assert(sizeof(alias_table::column) == 8);

/// The order in which `weighted` draws samples during one epoch. References the table of the
/// sampler that created the order.
class weighted_order {
 public:
  /// Draws from `table` with random bits keyed by seed, epoch and position.
  weighted_order(const alias_table& table, std::uint64_t seed, std::uint64_t epoch) noexcept
      : table_(&table), key_{.seed = seed, .epoch = epoch, .stage = weighted_stage} {}

  /// Writes the sample indices starting at position `first`. Each position is an independent draw.
  void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    const auto last = static_cast<std::uint32_t>(table_->columns().size() - 1);
    // Uses two loops, so that cache misses in a large table overlap.
    for (std::size_t i = 0; i < out.size(); ++i) {
      sample_generator gen{key_, first + i};
      const std::uint64_t which = uniform(gen, std::uint32_t{0}, last);
      out[i] = which << 32 | gen();
    }
    for (std::uint64_t& place : out) {
      place =
          table_->at(static_cast<std::uint32_t>(place >> 32), static_cast<std::uint32_t>(place));
    }
  }

 private:
  const alias_table* table_;
  random_key key_;
};

/// The value type of a container that converts to std::span. Does not use <ranges>, because that
/// header would add a tenth to the preprocessed size of the umbrella header.
template <class Container>
using spanned_value = typename decltype(std::span{std::declval<const Container&>()})::value_type;

}  // namespace detail

/// Options of `weighted`.
struct weighted_options {
  /// Seed that determines the draws, together with the epoch and position.
  std::uint64_t seed = 0;
  /// Number of samples in an epoch. 0 means the number of weights. PyTorch:
  /// `WeightedRandomSampler(num_samples=...)`.
  std::uint64_t draws = 0;
};

/// Draws samples with replacement. At each position of an epoch, sample i is drawn with probability
/// weights[i] / sum.
///
///     std::vector<double> weights = ...;  // one for each sample, in any unit
///     ps::loader loader{digits, ps::weighted{weights, {.seed = 1}}, {.batch_size = 64}};
///
/// The draw at position k is a function of seed, epoch and k, so a loop can resume anywhere.
/// Probabilities are accurate to 2^-29 of the mean. About 2^60 draws are needed to distinguish them
/// from the exact probabilities. A sample with weight 0 is never drawn. A sample with a weight
/// below 2^-31 of the mean may never be drawn, but many such samples together keep their joint
/// probability.
///
/// Construction needs O(n) time and 16 bytes for each weight, 8 of which are retained. A draw is
/// one table lookup for any n. Copies share the table. Thread-safe. An order references the table,
/// so the sampler or a copy must outlive its orders. A loader ensures this. Calling `order` on a
/// temporary is a compile-time error.
///
/// PyTorch: `WeightedRandomSampler(replacement=True)`, which supports at most 2^24 weights (because
/// of `torch.multinomial`) and stores the index list of an epoch. `weighted` supports up to 2^32 -
/// 1 weights. The constructor throws `option_error` if a weight is negative, infinite or NaN, or if
/// no weight is positive. `size` and `order` throw `option_error` if the dataset size differs from
/// the number of weights.
class weighted {
 public:
  /// Draws by `weights`, which are float or double. The constructor copies the required data.
  template <class Weights>
    requires detail::real<detail::spanned_value<Weights>>
  explicit weighted(const Weights& weights, const weighted_options& options = {})
      : table_(std::make_shared<const detail::alias_table>(
            std::span<const detail::spanned_value<Weights>>{weights})),
        options_(options) {}

  [[nodiscard]] std::uint64_t size(std::uint64_t n) const {
    detail::require_one_each("weights", n, table_->columns().size());
    return options_.draws == 0 ? n : options_.draws;
  }
  [[nodiscard]] detail::weighted_order order(std::uint64_t n, std::uint64_t epoch) const& {
    detail::require_one_each("weights", n, table_->columns().size());
    return {*table_, options_.seed, epoch};
  }
  detail::weighted_order order(std::uint64_t n, std::uint64_t epoch) && = delete;

  /// Returns the options.
  [[nodiscard]] const weighted_options& options() const noexcept { return options_; }

 private:
  std::shared_ptr<const detail::alias_table> table_;
  weighted_options options_;
};

static_assert(epoch_order<detail::weighted_order>);
static_assert(sampler<weighted>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
