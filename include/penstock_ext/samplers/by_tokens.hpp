// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <queue>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/order/support/permutation.hpp>
#include <penstock/order/support/word_hash.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Options of `by_tokens`. Invalid values cause `option_error` at construction.
struct by_tokens_options {
  /// Seed that determines the batches, together with the epoch.
  std::uint64_t seed = 0;

  /// Budget: maximum number of values in a batch, at most 2^32 - 1. Called `max_tokens` in fairseq.
  std::uint64_t max_tokens = 0;

  /// Number of samples in a window, at most 2^24. Each window has the length distribution of the
  /// whole dataset. A larger window uses more of the budget, but offers fewer samples for each
  /// batch position.
  std::uint64_t window = 65'536;

  /// Number of batches in a step over all ranks, at most 2^16. The batches of a step have equal
  /// costs. The number of batches in an epoch is a multiple of this value. All world sizes that
  /// divide this value read the same steps.
  std::uint64_t batches_per_step = 1;

  /// Maximum number of samples in a batch. 0 means no limit other than the budget. Called
  /// `max_sentences` in fairseq.
  std::uint64_t max_samples = 0;

  /// True if batches are padded to their longest sample. A batch then costs its number of samples
  /// times that length, and contains samples of similar length.
  bool padded = false;
};

namespace detail {

/// Returns the class of a length. Each length below 512 has its own class. Above that, each power
/// of two is divided into 256 classes. The class is monotonic in the length.
[[nodiscard]] constexpr std::uint32_t length_class(std::uint64_t length) noexcept {
  if (length < 512) return static_cast<std::uint32_t>(length);
  const auto drop = static_cast<std::uint32_t>(std::bit_width(length)) - 9;
  return 256 * drop + static_cast<std::uint32_t>(length >> drop);
}
/// Returns the maximum length in a class.
[[nodiscard]] constexpr std::uint64_t longest_of_class(std::uint32_t which) noexcept {
  if (which < 512) return which;
  const std::uint32_t drop = which / 256 - 1;
  return (std::uint64_t{which % 256 + 257} << drop) - 1;
}
/// Number of classes for 32-bit lengths.
inline constexpr std::uint32_t length_classes = length_class(0xffffffffU) + 1;

/// The sample positions of each batch in a window.
using window_batches = std::vector<std::vector<std::uint32_t>>;

/// Packs the positions of a window into batches. Position k has a sample of at most `bounds[k]`
/// values. The bounds are at least 1 and decrease monotonically.
class batch_packer {
 public:
  batch_packer(std::span<const std::uint32_t> bounds, const by_tokens_options& options)
      : bounds_(bounds), options_(options) {
    if (options.max_samples == 0) options_.max_samples = bounds.size();
  }

  /// Returns the batches, about as few as the budget permits. The number of batches is a multiple
  /// of `batches_per_step`. No batch exceeds the budget, so no single bound may exceed it. If there
  /// are fewer positions than batches, some batches are empty.
  [[nodiscard]] window_batches packed() const { return options_.padded ? similar() : equal(); }

 private:
  struct bin {
    std::uint64_t load;
    std::uint32_t places;
    std::uint32_t number;  // batch index, or first position of a run
    friend auto operator<=>(const bin&, const bin&) = default;  // NOLINT
  };

  [[nodiscard]] std::uint64_t whole_steps(std::uint64_t batches) const noexcept {
    const std::uint64_t step = options_.batches_per_step;
    return (std::max)(step, (batches + step - 1) / step * step);
  }

  // Returns batches of equal loads. Assigns each bound, longest first, to the batch with the
  // smallest load (Graham, "Bounds on multiprocessing timing anomalies", 1969).
  [[nodiscard]] window_batches equal() const {
    const auto sum = std::accumulate(bounds_.begin(), bounds_.end(), std::uint64_t{0});
    const std::uint64_t cap = options_.max_samples;
    std::uint64_t batches = whole_steps((std::max)(
        (sum + options_.max_tokens - 1) / options_.max_tokens, (bounds_.size() + cap - 1) / cap));
    // The loop terminates, because all positions fit if each has its own batch.
    const std::uint64_t enough = whole_steps(bounds_.size());
    window_batches all;
    while (!pack_equal(batches, all)) {
      batches = (std::min)(enough, whole_steps(batches + 1 + batches / 256));
    }
    return all;
  }
  bool pack_equal(std::uint64_t batches, window_batches& all) const {
    all.assign(static_cast<std::size_t>(batches), {});
    std::priority_queue<bin, std::vector<bin>, std::greater<>> open;
    for (std::uint32_t i = 0; i < batches; ++i) open.push({0, 0, i});
    for (std::uint32_t place = 0; place < bounds_.size(); ++place) {
      if (open.empty()) return false;
      bin lightest = open.top();
      open.pop();
      lightest.load += bounds_[place];
      if (lightest.load > options_.max_tokens) return false;
      all[lightest.number].push_back(place);
      if (++lightest.places != options_.max_samples) open.push(lightest);
    }
    return true;
  }

  // Returns batches of consecutive positions, split at the lowest budget that needs no more batches
  // than the whole budget. Sorts the batches by cost, so that the batches of a step have nearly
  // equal costs.
  [[nodiscard]] window_batches similar() const {
    const std::uint64_t batches = whole_steps(cut(options_.max_tokens).size());
    std::uint64_t low = bounds_[0];
    for (std::uint64_t high = options_.max_tokens; low < high;) {
      const std::uint64_t middle = low + (high - low) / 2;
      const bool does = cut(middle).size() <= batches;
      (does ? high : low) = does ? middle : middle + 1;
    }
    // Missing batches are obtained by halving the most expensive batches with at least two
    // positions. The last two positions are split only if no other batch has two.
    const auto cost = [&](const bin& one) {
      const bool is_last_two = one.number + std::size_t{2} == bounds_.size();
      return std::pair{one.places < 2 ? 0 : is_last_two ? 1 : 2, one};
    };
    std::vector<bin> runs = cut(low);
    std::ranges::make_heap(runs, {}, cost);
    while (runs.size() < batches && runs.front().places > 1) {
      std::ranges::pop_heap(runs, {}, cost);
      const bin whole = runs.back();
      const std::uint32_t half = whole.places / 2;
      runs.back() = run_of(whole.number, half);
      std::ranges::push_heap(runs, {}, cost);
      runs.push_back(run_of(whole.number + half, whole.places - half));
      std::ranges::push_heap(runs, {}, cost);
    }
    std::ranges::sort(runs, std::greater<>{});
    window_batches all;
    for (const bin& run : runs) {
      std::vector<std::uint32_t>& places = all.emplace_back(run.places);
      std::iota(places.begin(), places.end(), run.number);
    }
    all.resize(static_cast<std::size_t>(batches));
    return all;
  }
  // Starts at the last position, which may have no sample. The last position forms its own batch
  // only if no batch has two positions.
  [[nodiscard]] std::vector<bin> cut(std::uint64_t budget) const {
    std::vector<bin> runs;
    for (auto end = static_cast<std::uint32_t>(bounds_.size()); end != 0;
         end = runs.back().number) {
      bin run = run_of(end - 1, 1);
      while (run.number != 0 && run.places < options_.max_samples) {
        const bin longer = run_of(run.number - 1, run.places + 1);
        if (longer.load > budget) break;
        run = longer;
      }
      runs.push_back(run);
    }
    return runs;
  }
  [[nodiscard]] bin run_of(std::uint32_t first, std::uint32_t places) const noexcept {
    return {std::uint64_t{bounds_[first]} * places, places, first};
  }

  std::span<const std::uint32_t> bounds_;
  by_tokens_options options_;
};

/// Data shared by all epochs of `by_tokens`. Immutable.
///
/// Samples are ranked by class, longest first. With K windows, position j of each window has one of
/// the K samples of the ranks [j K, (j + 1) K). Therefore all windows have nearly the same lengths
/// and the same batches of positions. The sums of two windows differ by less than the longest
/// sample, plus the width of the classes. A stratum consists of neighboring positions whose ranks
/// begin in the same class, or in a few classes. The samples of a stratum are exchanged at random
/// in each epoch. The n mod K last ranks form a separate stratum with one position, which some
/// windows leave empty.
struct token_plan {
  /// A run of positions whose samples are exchanged.
  struct stratum {
    std::uint32_t first;
    std::uint32_t places;  ///< number of positions
  };

  by_tokens_options options;
  std::vector<std::uint32_t> ranked;      ///< sample indices by rank
  std::uint64_t windows = 0;              ///< number of windows
  std::vector<std::uint16_t> stratum_of;  ///< stratum index of each position
  std::vector<stratum> strata;            ///< strata in position order
  window_batches batches;                 ///< batches of each window
  std::size_t batch_size = 1;             ///< number of samples in the largest batch
  std::uint64_t values = 0;               ///< total number of values in all samples
  std::uint64_t fingerprint = 0;          ///< hash of all lengths and options

  /// Creates the plan for `count` samples with `length(index)` values. Throws `option_error`, and
  /// errors from `length`.
  template <class Length>
  token_plan(std::uint64_t count, const Length& length, const by_tokens_options& by) : options(by) {
    require_valid(count);
    static_assert(length_classes <= 0x10000);
    std::vector<std::uint16_t> classes;  // class of each sample, where 0 is the longest
    classes.reserve(static_cast<std::size_t>(count));
    std::uint64_t longest = 0;
    word_hash hash{by_tokens_stage};
    for (std::uint64_t index = 0; index < count; ++index) {
      const auto own = static_cast<std::uint64_t>(length(index));
      if (own > options.max_tokens) {
        throw_option_error(
            "max_tokens",
            {"expected at most ", options.max_tokens, " values per sample, found ", own,
             " in sample ", index,
             ": raise the limit, or exclude such samples (ps::exclude) or shorten them"});
      }
      classes.push_back(static_cast<std::uint16_t>(length_classes - 1 - length_class(own)));
      longest = (std::max)(longest, own);
      values += own;
      hash.add(own);
    }
    fingerprint = hash.add_all({options.seed, options.max_tokens, options.window,
                                options.batches_per_step, options.max_samples, options.padded})
                      .value();
    lay_out(classes, longest);
  }

  /// Returns the number of samples.
  [[nodiscard]] std::uint64_t samples() const noexcept { return ranked.size(); }

 private:
  [[gnu::cold]] void require_valid(std::uint64_t count) const {
    const auto require = [](std::string_view name, std::uint64_t value, std::uint64_t max) {
      if (value == 0) throw_option_error(name, {"must be at least 1, but is 0"});
      if (value > max) throw_option_error(name, {value, " is above ", max});
    };
    require("max_tokens", options.max_tokens, 0xffffffffU);
    require("window", options.window, std::uint64_t{1} << 24);
    require("batches_per_step", options.batches_per_step, std::uint64_t{1} << 16);
    require("lengths", count, 0xffffffffU);
  }

  void lay_out(const std::vector<std::uint16_t>& classes, std::uint64_t longest) {
    // A counting sort. The ranks of class k end at ends[k + 1].
    std::vector<std::uint32_t> ends(length_classes + 2);
    for (const std::size_t which : classes) ++ends[which + 2];
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    ranked.resize(classes.size());
    std::uint32_t sample = 0;
    for (const std::size_t which : classes) ranked[ends[which + 1]++] = sample++;
    windows = (samples() + options.window - 1) / options.window;
    // If only a few samples had the same length, they would always share a batch. Therefore up to
    // 64 of them are exchanged with shorter samples, if this leaves at most 1/64 of the budget
    // unused.
    const std::uint64_t mixed =
        (std::min)(std::uint64_t{64}, values / 64 / std::max<std::uint64_t>(1, longest));
    // Minimum number of positions in a stratum.
    const std::uint64_t lightest = (mixed + windows - 1) / windows;
    // Length bound of each position.
    std::vector<std::uint32_t> bounds;
    std::uint16_t before = 0;  // class of the previous position
    for (std::uint32_t place = 0; place * windows < samples(); ++place) {
      const std::uint16_t own = classes[ranked[static_cast<std::size_t>(place * windows)]];
      const bool is_in_all = (place + 1) * windows <= samples();
      if (place == 0 || !is_in_all || (own != before && strata.back().places >= lightest)) {
        strata.push_back({place, 0});
        const std::uint64_t max = longest_of_class(length_classes - 1 - own);
        bounds.push_back(
            static_cast<std::uint32_t>(std::max<std::uint64_t>(1, (std::min)(max, longest))));
      } else {
        bounds.push_back(bounds.back());
      }
      ++strata.back().places;
      stratum_of.push_back(static_cast<std::uint16_t>(strata.size() - 1));
      before = own;
    }
    batches = batch_packer{bounds, options}.packed();
    for (const auto& places : batches) batch_size = (std::max)(batch_size, places.size());
  }
};

/// An epoch's batches of `by_tokens`. References the plan of the sampler that created it.
class token_order {
 public:
  /// Creates the order of `epoch`.
  token_order(const token_plan& plan, std::uint64_t epoch)
      : plan_(&plan),
        shuffles_({.seed = plan.options.seed, .epoch = epoch, .stage = by_tokens_stage}) {}

  /// Writes the samples at the positions starting at `first`. A position without a sample repeats a
  /// sample of its batch.
  void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    fill_by_rows(plan_->batch_size, first, out,
                 [this](auto batch, auto at, auto part) { fill_batch(batch, at, part); });
  }

  /// Returns the number of samples in batch `batch`.
  [[nodiscard]] std::size_t batch_size(std::uint64_t batch) const noexcept {
    return (std::max)(places_of(batch).size(), std::size_t{1});
  }

 private:
  // Bijection 3 k of the epoch orders the samples in stratum k, bijection 3 k + 1 the steps of
  // window k, and bijection 3 k + 2 the batches of step k.

  // Returns the positions of a batch that have a sample. The steps of a window are in random order,
  // and the batches of a step start at a random batch.
  [[nodiscard]] std::span<const std::uint32_t> places_of(std::uint64_t batch) const noexcept {
    const std::uint64_t batches = plan_->batches.size();
    const std::uint64_t size = plan_->options.batches_per_step;
    const std::uint64_t window = batch / batches;
    const std::uint64_t step = shuffles_(3 * window + 1, batches / size, batch % batches / size);
    const std::uint64_t begun = shuffles_.bits(batch / size * 3 + 2) % size;
    const std::span places{
        plan_->batches[static_cast<std::size_t>(step * size + (begun + batch) % size)]};
    const bool ends_empty = !places.empty() && rank_of(places.back(), window) >= plan_->samples();
    return places.first(places.size() - (ends_empty ? 1U : 0U));
  }

  // Returns the rank of the sample at a position in a window, or an out-of-range rank if the
  // position is empty.
  [[nodiscard]] std::uint64_t rank_of(std::uint32_t place, std::uint64_t window) const noexcept {
    const std::uint64_t which = plan_->stratum_of[place];
    const auto [begin, count] = plan_->strata[static_cast<std::size_t>(which)];
    const std::uint64_t windows = plan_->windows;
    return begin * windows +
           shuffles_(3 * which, count * windows, (place - begin) * windows + window);
  }

  void fill_batch(std::uint64_t batch, std::size_t at,
                  std::span<std::uint64_t> out) const noexcept {
    const std::span<const std::uint32_t> places = places_of(batch);
    const std::uint64_t window = batch / plan_->batches.size();
    // A batch without samples repeats one of the shortest samples.
    const std::uint64_t spare = plan_->samples() - 1 - batch % plan_->windows;
    for (std::uint64_t& one : out) {
      one = places.empty() ? spare : rank_of(places[at < places.size() ? at++ : 0], window);
    }
    // A separate loop, so that cache misses in a long list overlap.
    for (std::uint64_t& one : out) one = plan_->ranked[static_cast<std::size_t>(one)];
  }

  const token_plan* plan_;
  permutation_family shuffles_;
};

}  // namespace detail

/// Shuffles samples into batches that fill a budget of values, such as tokens. Each sample appears
/// once, in different batches in each epoch, reproducibly for a given `seed`.
///
///     std::vector<std::uint32_t> lengths = ...;  // one for each sample
///     ps::by_tokens order{lengths, {.seed = 1, .max_tokens = 16'384, .batches_per_step = 8}};
///     ps::sharded share{order, {.rank = 3, .world = 8}};
///     ps::loader loader{texts, share, {.batch_size = order.batch_size(),
///                                      .memory = {.max_values_per_batch = order.max_tokens()}}};
///
/// The number of batches does not depend on epoch, rank or seed. Any batch can be computed from its
/// index in constant time, so a loop can resume anywhere. All batches have nearly the same number
/// of values. With `padded`, the batches of a step have nearly equal costs. A batch has
/// `batch.size()` samples, at most `batch_size()`.
///
/// Samples are ranked by length once. Each epoch distributes them to windows of at most `window`
/// samples, so that all windows have the same lengths, up to 1/256. All windows are packed in the
/// same way, so each batch has a counterpart with the same lengths in every other window. The
/// samples of a batch are random among samples of similar length. The steps within a window are in
/// random order.
///
/// `sharded` assigns the batches r, r + w, ... to rank r of w ranks. A saved state counts the
/// batches of all ranks. A state saved after a whole step, which has `batches_per_step() / w`
/// batches for each rank, can be resumed with any world size that divides `batches_per_step()`. If
/// a window has fewer samples than batches, each empty batch repeats one of the shortest samples. A
/// window has at most `batches_per_step()` such batches.
///
/// The lengths are an array, or a function of the index and a number of samples. The constructor
/// reads them once in O(n) time and does not reference them later. Memory use is 4 bytes for each
/// sample, 6 bytes for each position and 24 bytes for each batch in a window. Construction needs 2
/// more bytes for each sample. Copies share the memory. Thread-safe. An order references the
/// sampler, so the sampler or a copy must outlive its orders. A loader ensures this. Calling
/// `order` on a temporary is a compile-time error.
///
/// PyTorch has no counterpart. fairseq's `max_tokens` is similar. Throws `option_error` for invalid
/// options, for 0 samples or at least 2^32 samples, and for a sample that exceeds the budget.
/// `size` and `order` throw `option_error` if the dataset size differs from the number of lengths.
class by_tokens {
 public:
  /// Groups samples by `lengths`, which has one length for each sample.
  template <class Lengths>
    requires std::integral<typename decltype(std::span{std::declval<const Lengths&>()})::value_type>
  by_tokens(const Lengths& lengths, const by_tokens_options& options)
      : by_tokens(
            std::span{lengths}.size(),
            [list = std::span{lengths}](std::size_t index) { return list[index]; }, options) {}

  /// Groups `count` samples by `length(index)`. Propagates exceptions of `length`.
  template <class Length>
    requires std::convertible_to<std::invoke_result_t<const Length&, std::uint64_t>, std::uint64_t>
  by_tokens(std::uint64_t count, const Length& length, const by_tokens_options& options)
      : plan_(std::make_shared<const detail::token_plan>(count, length, options)) {}

  /// Returns the number of positions in an epoch: `batch_size()` for each batch. Throws
  /// `option_error` unless `n` is the number of lengths.
  [[nodiscard]] std::uint64_t size(std::uint64_t n) const {
    detail::require_one_each("lengths", n, plan_->samples());
    return batches() * batch_size();
  }
  /// Returns the batches of an epoch as a `variable_batch_order`. Throws `option_error` unless `n`
  /// is the number of lengths.
  [[nodiscard]] detail::token_order order(std::uint64_t n, std::uint64_t epoch) const& {
    detail::require_one_each("lengths", n, plan_->samples());
    return {*plan_, epoch};
  }
  detail::token_order order(std::uint64_t n, std::uint64_t epoch) && = delete;

  /// Returns the number of samples in the largest batch, for the loader's `batch_size`.
  [[nodiscard]] std::size_t batch_size() const noexcept { return plan_->batch_size; }
  /// Returns the budget, for the loader's `memory.max_values_per_batch`.
  [[nodiscard]] std::size_t max_tokens() const noexcept {
    return static_cast<std::size_t>(options().max_tokens);
  }
  /// Returns the number of batches in a step over all ranks.
  [[nodiscard]] std::uint64_t batches_per_step() const noexcept {
    return options().batches_per_step;
  }
  /// Returns the number of batches in an epoch over all ranks.
  [[nodiscard]] std::uint64_t batches() const noexcept {
    return plan_->windows * plan_->batches.size();
  }
  /// Returns the fraction of the total budget that sample values use, from 0 to 1.
  [[nodiscard]] double fill() const noexcept {
    return static_cast<double>(plan_->values) /
           (static_cast<double>(batches()) * static_cast<double>(options().max_tokens));
  }
  /// Returns a hash of the options and all lengths, which saved states contain.
  [[nodiscard]] std::uint64_t fingerprint() const noexcept { return plan_->fingerprint; }
  /// Returns the options.
  [[nodiscard]] const by_tokens_options& options() const noexcept { return plan_->options; }

 private:
  std::shared_ptr<const detail::token_plan> plan_;
};

static_assert(variable_batch_order<detail::token_order>);
static_assert(detail::cuts_batches<by_tokens>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
