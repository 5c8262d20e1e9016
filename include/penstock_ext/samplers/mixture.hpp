// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/order/support/permutation.hpp>
#include <penstock/order/support/word_hash.hpp>
#include <penstock_ext/samplers/support/round_robin.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Specifies the action of a `mixture` when a part is exhausted.
enum class exhausted_part_policy {
  /// Starts the part's next epoch in a new order; continues across epochs of the mixture.
  repeat,
  /// Ends the epoch at the part's next turn, so that the shortest epoch limits all epochs.
  end,
  stop_sampling,  ///< continues without the part; an epoch has each sample of each part once
};

/// Weights of a mixture from a certain training position onwards.
struct mixture_weights {
  /// Position at which the weights take effect. A step beyond the end of an epoch counts into the
  /// next epochs. Each epoch counts its short last batch as a step, even if a loader or a `sharded`
  /// drops that batch. With `exhausted_part_policy::end`, such a step is never reached, and the
  /// weights take effect at the next epoch.
  training_position from = {};
  /// Number of turns of each part in a round, such as {6, 3, 1}. 0 means no turn. The sum, after
  /// division by the greatest common divisor, is at most 65536.
  std::vector<std::uint32_t> weights = {};
};

/// Options of `mixture`. Invalid values cause `option_error` at construction.
struct mixture_options {
  /// Seed that determines the order of a part, together with the part and its epoch.
  std::uint64_t seed = 0;
  /// Weights sorted by position, starting with {0, 0}. Empty means equal weights.
  std::vector<mixture_weights> schedule = {};
  /// Action when a part is exhausted.
  exhausted_part_policy on_exhausted = exhausted_part_policy::repeat;
  /// Number of samples in a step: the loader's `batch_size`, or the `global_batch` of an enclosing
  /// `sharded`. Required if steps are counted. May be 0 if only epochs are counted.
  std::size_t batch_size = 0;
  /// Number of steps in an epoch, for `exhausted_part_policy::repeat`. 0 results in about as many
  /// samples as the parts have.
  std::uint64_t epoch_steps = 0;
};

/// Samples that a mixture has drawn from a part since the start of training.
struct part_progress {
  std::uint64_t samples = 0;  ///< number of drawn samples
  /// Epoch of the part's next sample, which is the number of times that all its samples were drawn.
  /// For an exhausted part that waits for the mixture's next epoch, the epoch of its last sample.
  std::uint64_t epoch = 0;
  /// Number of samples drawn in that epoch.
  std::uint64_t in_epoch = 0;
  friend bool operator==(const part_progress&, const part_progress&) = default;
};

namespace detail {

/// The schedule of a mixture, split into segments of constant weights. Within a segment, a round of
/// sum(weights) turns repeats. Therefore each window with the length of a round has exactly the
/// specified shares, wherever it starts. Immutable and shared by the copies of a mixture and its
/// orders.
struct mixture_plan {
  /// The turns of a round.
  struct round {
    std::vector<std::uint32_t> weights;
    std::vector<part_turn> turns;

    /// Adds the number of turns of each part in the first `places` positions to `counts`.
    void add_turns(std::uint64_t places, std::span<std::uint64_t> counts) const noexcept {
      for (std::size_t part = 0; part < counts.size(); ++part) {
        counts[part] += places / turns.size() * weights[part];
      }
      for (std::size_t k = 0; k < places % turns.size(); ++k) ++counts[turns[k].part];
    }
    /// Returns the first position, at most `max`, at which a part that has had `counts[part]` turns
    /// would have its next turn.
    [[nodiscard]] std::uint64_t first_after(std::span<const std::uint64_t> counts) const noexcept {
      std::uint64_t first = max;
      for (std::size_t k = 0; k < turns.size(); ++k) {
        const auto [part, before] = turns[k];
        const std::uint64_t whole = counts[part] / weights[part];
        if (counts[part] % weights[part] != before || whole > max / turns.size()) continue;
        first = (std::min)(first, whole * turns.size() + k);
      }
      return first;
    }
  };

  /// The positions [begin, end) in a pass, after `counts[part]` samples of each part.
  struct segment {
    std::uint64_t begin;
    std::uint64_t end;
    std::size_t round;
    std::vector<std::uint64_t> counts;
  };

  /// The segments of consecutive epochs with the same layout, from `first_epoch` to the epoch
  /// before the next pass. With `repeat`, a single pass covers all epochs.
  struct pass {
    std::uint64_t first_epoch;
    std::vector<segment> segments = {};
  };

  /// Maximum number of positions in a training run.
  static constexpr std::uint64_t max = std::uint64_t{1} << 63;

  mixture_options options;
  std::vector<std::uint64_t> sizes;  ///< sizes of the parts
  /// Starts of the parts in their `concat`, followed by the end.
  std::vector<std::uint64_t> begins{0};
  permutation_family shuffles{{.seed = options.seed, .epoch = 0, .stage = mixture_stage}};
  std::vector<std::uint64_t> seeds;  ///< for each part, `seed + e` selects the bijection of epoch e
  std::uint64_t size = 0;            ///< number of samples in an epoch
  std::vector<round> rounds;
  std::vector<pass> passes;
  std::uint64_t fingerprint = 0;

  /// Computes the plan. Throws `option_error` if an option or a size is invalid.
  mixture_plan(mixture_options by, std::vector<std::uint64_t> of_sizes)
      : options(std::move(by)), sizes(std::move(of_sizes)) {
    if (sizes.empty()) throw_option_error("parts", {"expected at least one"});
    for (std::size_t part = 0; part < sizes.size(); ++part) {
      if (sizes[part] == 0 || sizes[part] > max - begins.back()) {
        throw_option_error("parts",
                           {"part ", part, " has ", sizes[part], " samples: expected 1 to ",
                            max - begins.back(), ", so that all are at most 2^63"});
      }
      begins.push_back(begins.back() + sizes[part]);
      seeds.push_back(shuffles.bits(part));
    }
    size = begins.back();
    std::vector<mixture_weights>& schedule = options.schedule;
    if (schedule.empty()) schedule = {{{}, std::vector<std::uint32_t>(sizes.size(), 1)}};
    if (repeats()) {
      size = repeated_size();
    } else if (options.epoch_steps != 0) {
      throw_option_error("epoch_steps",
                         {"is only for exhausted_part_policy::repeat, because otherwise the parts "
                          "set the length of an epoch"});
    }
    for (std::size_t i = 0; i < schedule.size(); ++i) require_valid(i);
    lay_out_passes();
    word_hash hash;
    for (const auto& [from, weights] : schedule) {
      hash.add_all({from.epoch, position_of(from.step)}).add_all(weights);
    }
    fingerprint =
        hash.add_all(sizes)
            .add_all({options.seed, size, static_cast<std::uint64_t>(options.on_exhausted)})
            .value();
  }

  [[nodiscard]] bool repeats() const noexcept {
    return options.on_exhausted == exhausted_part_policy::repeat;
  }

  /// Returns the same position, with the step less than the number of steps in an epoch.
  [[nodiscard]] training_position normal(const training_position& at) const {
    if (at.step == 0 || options.on_exhausted == exhausted_part_policy::end) return at;
    static_cast<void>(position_of(at.step));  // throws if steps are not counted
    const std::uint64_t steps = (size - 1) / options.batch_size + 1;
    if (at.step / steps > ~at.epoch) {
      throw_option_error("epoch", {at.epoch, " and ", at.step, " steps of ", steps,
                                   " per epoch exceed 2^64 epochs"});
    }
    return {at.epoch + at.step / steps, at.step % steps};
  }

  /// Returns the sample position of step `step` in its epoch. Throws `option_error` if steps are
  /// not counted.
  [[nodiscard]] std::uint64_t position_of(std::uint64_t step) const {
    if (step == 0) return 0;
    if (options.batch_size == 0) {
      throw_option_error("batch_size",
                         {"is needed if steps are counted, as in step ", step, ", but is 0"});
    }
    return step > size / options.batch_size ? size : step * options.batch_size;
  }

  /// Returns the position of the first sample of `epoch` in its segments. Throws `option_error` if
  /// it exceeds `max`.
  [[nodiscard]] std::uint64_t base_of(std::uint64_t epoch) const {
    if (epoch < max / size) return repeats() ? epoch * size : 0;
    throw_option_error("epoch", {epoch, " epochs of ", size, " samples exceed 2^63"});
  }

  /// Returns the index of the pass for `epoch`.
  [[nodiscard]] std::size_t pass_of(std::uint64_t epoch) const noexcept {
    const auto after = std::ranges::upper_bound(passes, epoch, {}, &pass::first_epoch);
    return static_cast<std::size_t>(after - passes.begin()) - 1;
  }

  /// Reports the samples drawn from each part before step `at.step` of epoch `at.epoch`. Calls
  /// `each(part, first_epoch, epochs, count)` for runs of `epochs` epochs, starting at
  /// `first_epoch`, each with `count` samples of the part. Each pass has a possibly empty run of
  /// past epochs, and epoch `at.epoch` has its own run. With `repeat`, a single run covers the
  /// whole training so far.
  template <class Each>
  void each_before(training_position at, const Each& each) const {
    at = normal(at);
    const std::uint64_t end = base_of(at.epoch) + position_of(at.step);
    const auto call = [&](std::size_t which, std::uint64_t epoch, std::uint64_t epochs,
                          std::uint64_t position) {
      const segment& in = segment_at(which, position);
      std::vector<std::uint64_t> counts = in.counts;
      rounds[in.round].add_turns(position - in.begin, counts);
      for (std::size_t part = 0; part < counts.size(); ++part) {
        each(part, epoch, epochs, counts[part]);
      }
    };
    if (repeats()) return call(0, 0, 1, end);
    const std::size_t last = pass_of(at.epoch);
    for (std::size_t which = 0; which <= last; ++which) {
      const std::uint64_t first = passes[which].first_epoch;
      call(which, first, (which < last ? passes[which + 1].first_epoch : at.epoch) - first, size);
    }
    call(last, at.epoch, 1, end);
  }

  /// Returns the sample at position `at` in an epoch of a part.
  [[nodiscard]] std::uint64_t sample_of(std::size_t part, std::uint64_t epoch,
                                        std::uint64_t at) const noexcept {
    return shuffles(seeds[part] + epoch, sizes[part], at);
  }

  /// Returns the segment that contains a position.
  [[nodiscard]] const segment& segment_at(std::size_t which,
                                          std::uint64_t position) const noexcept {
    const std::vector<segment>& all = passes[which].segments;
    return *(std::ranges::upper_bound(all, position, {}, &segment::begin) - 1);
  }

 private:
  [[nodiscard]] std::uint64_t repeated_size() const {
    const std::uint64_t batch = options.batch_size;
    std::uint64_t steps = options.epoch_steps;
    if (batch == 0 && steps == 0) return size;
    if (batch == 0) throw_option_error("batch_size", {"is needed for .epoch_steps, but is 0"});
    if (steps == 0) steps = (std::max)(size / batch, std::uint64_t{1});
    if (batch <= max && steps <= max / batch) return steps * batch;
    throw_option_error("epoch_steps", {steps, " steps of ", batch, " samples exceed 2^63 samples"});
  }

  void require_valid(std::size_t entry) {
    auto& [from, weights] = options.schedule[entry];
    from = normal(from);
    if (entry == 0 ? from != training_position{} : from <= options.schedule[entry - 1].from) {
      throw_option_error(
          "schedule",
          {"entry ", entry, " begins at step ", from.step, " of epoch ", from.epoch, ": expected ",
           entry == 0 ? "step 0 of epoch 0" : "a position after the previous entry"});
    }
    if (weights.size() != sizes.size()) {
      throw_option_error("weights", {"entry ", entry, " of the schedule has ", weights.size(),
                                     " weights for ", sizes.size(), " parts"});
    }
    weights = reduced(std::move(weights));
  }

  /// Returns the index of the round with these weights, which is created if new.
  std::size_t round_of(const std::vector<std::uint32_t>& weights) {
    const std::vector<std::uint32_t> by = reduced(weights);
    const auto sum = std::accumulate(by.begin(), by.end(), std::uint64_t{0});
    const auto same = std::ranges::find_if(
        rounds, [&](const round& one) { return one.turns.size() == sum && one.weights == by; });
    const auto which = static_cast<std::size_t>(same - rounds.begin());
    if (same == rounds.end()) rounds.push_back({by, round_robin(by)});
    return which;
  }

  /// Lays out each epoch separately, unless parts repeat. Epochs with equal weights and no change
  /// inside form a pass.
  void lay_out_passes() {
    // No step is beyond the end of the epoch yet.
    if (options.on_exhausted == exhausted_part_policy::end) size = max;
    std::uint64_t shortest = lay_out(0);
    for (const auto& [from, weights] : options.schedule) {
      for (const std::uint64_t epoch : {from.epoch, from.epoch + std::uint64_t{from.step != 0}}) {
        if (repeats() || epoch <= passes.back().first_epoch) continue;
        shortest = (std::min)(shortest, lay_out(epoch));
      }
    }
    if (!repeats()) size = shortest;
  }

  /// Lays out an epoch. Returns its number of samples, or `max` if parts repeat.
  std::uint64_t lay_out(std::uint64_t epoch) {
    passes.push_back({epoch});
    constexpr std::uint64_t never = ~std::uint64_t{0};
    const bool drops = options.on_exhausted == exhausted_part_policy::stop_sampling;
    std::vector<std::uint64_t> counts(sizes.size());
    std::uint64_t at = 0;
    const auto begin_of = [&](std::size_t entry) {
      if (entry == options.schedule.size()) return never;
      const training_position& from = options.schedule[entry].from;
      if (repeats() || from.epoch == epoch) {
        return (repeats() ? base_of(from.epoch) : 0) + position_of(from.step);
      }
      return from.epoch < epoch ? 0 : never;
    };
    for (std::size_t next = 1;;) {
      while (begin_of(next) <= at) ++next;
      std::vector<std::uint32_t> weights = options.schedule[next - 1].weights;
      for (std::size_t part = 0; drops && part < weights.size(); ++part) {
        if (counts[part] == sizes[part]) weights[part] = 0;
      }
      if ((std::ranges::max)(weights) == 0) {
        throw_option_error("weights",
                           {"at sample ", at, " of epoch ", epoch, " all parts with a ",
                            "weight are exhausted, but others are not: give the others a weight"});
      }
      const std::size_t which = round_of(weights);
      const round& turns = rounds[which];
      std::uint64_t end = max - at;
      if (!repeats()) {
        std::vector<std::uint64_t> left = sizes;
        for (std::size_t part = 0; part < left.size(); ++part) left[part] -= counts[part] + drops;
        // With `stop_sampling`, a part ends after its last turn. Otherwise the epoch ends before
        // the part's extra turn.
        end = (std::min)(turns.first_after(left) + drops, end);
      }
      const bool changes = begin_of(next) <= at + end;
      if (changes) end = begin_of(next) - at;
      passes.back().segments.push_back({at, at + end, which, counts});
      turns.add_turns(end, counts);
      at += end;
      if (drops ? at == begins.back() : !changes) return at;
    }
  }
};

/// The order in which a `mixture` draws samples during one epoch. References the plan of the
/// mixture that created the order.
class mixture_order {
 public:
  /// Creates the order of `epoch`. Throws `option_error` if all epochs up to `epoch` have more than
  /// 2^63 samples in total.
  mixture_order(const mixture_plan& plan, std::uint64_t epoch)
      : plan_(&plan),
        pass_(plan.pass_of(epoch)),
        base_(plan.base_of(epoch)),
        epoch_(plan.repeats() ? 0 : epoch) {}

  /// Writes the samples at the positions starting at `first`. Takes O(log n) time to start for n
  /// changes of the weights, and O(1) time for each sample. The number of parts does not matter.
  void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    const mixture_plan& plan = *plan_;
    for (std::uint64_t position = base_ + first; !out.empty();) {
      const mixture_plan::segment& in = plan.segment_at(pass_, position);
      const auto& [weights, turns] = plan.rounds[in.round];
      const std::uint64_t place = position - in.begin;
      std::uint64_t rounds = place / turns.size();
      auto next = static_cast<std::size_t>(place % turns.size());
      const auto count =
          static_cast<std::size_t>((std::min)(std::uint64_t{out.size()}, in.end - position));
      for (std::uint64_t& one : out.first(count)) {
        const auto [part, before] = turns[next];
        const std::uint64_t turn = in.counts[part] + rounds * weights[part] + before;
        const std::uint64_t size = plan.sizes[part];
        one = plan.begins[part] + plan.sample_of(part, epoch_ + turn / size, turn % size);
        if (++next == turns.size()) {
          next = 0;
          ++rounds;
        }
      }
      out = out.subspan(count);
      position += count;
    }
  }

 private:
  const mixture_plan* plan_;
  std::size_t pass_;
  std::uint64_t base_;
  std::uint64_t epoch_;  // epoch of the parts at the start of the random streams
};

}  // namespace detail

/// A sampler that mixes the parts of a `concat` dataset by weights, which may change during
/// training:
///
///     ps::mixture mixed{{.seed = 1,
///                        .schedule = {{{.step = 0}, {6, 3, 1}}, {{.step = 20'000}, {4, 4, 2}}},
///                        .batch_size = 1024},
///                       web, code, books};
///     ps::sharded order{mixed, {.rank = 3, .world = 8, .global_batch = 1024}};
///     ps::loader loader{ps::concat(web, code, books), order, {.batch_size = order.batch_size()}};
///
/// Between two changes, each window of sum(weights) samples contains each part exactly according to
/// its weight, evenly distributed. Each part is shuffled separately, in a new order in each of its
/// epochs. No sample of a part is repeated or omitted before the part's epoch ends, even if the
/// weights change.
///
/// The sample at a position is a pure function of options and sizes, computed in O(log changes)
/// time. Therefore a loop can resume anywhere, with any number of workers and ranks. With
/// `sharded`, this applies only to whole steps, and `repeat` has only whole steps. With `end`, all
/// epochs have as many samples as the shortest epoch in the schedule.
///
/// Each change occupies 48 bytes plus 8 bytes for each part. New weights also occupy 8 bytes for
/// each turn of their round, at most 512 KiB, plus 4 bytes for each part. With `stop_sampling`,
/// each exhausted part is such a change, in up to two epochs for each schedule entry. For example,
/// a thousand parts of equal weights occupy 16 MB. Construction needs O(turns x distinct weights)
/// time for each round. Copies share the memory. Thread-safe. An order references the mixture, so
/// the mixture or a copy must outlive its orders. A loader ensures this. Calling `order` on a
/// temporary is a compile-time error.
///
/// PyTorch has no counterpart in core. Throws `option_error` for invalid options. `size` and
/// `order` throw it if the dataset size is not the total size of the parts.
class mixture {
 public:
  /// Mixes `parts`. Stores only their sizes. Throws `option_error` if an option or a size is
  /// invalid.
  template <class... Parts>
    requires(sizeof...(Parts) > 0 &&
             requires(const Parts&... parts) { (static_cast<std::uint64_t>(parts.size()), ...); })
  explicit mixture(mixture_options options, const Parts&... parts)
      : mixture(of_sizes(std::move(options), {static_cast<std::uint64_t>(parts.size())...})) {}

  /// Mixes parts with the given sizes. Throws `option_error` if an option or a size is invalid.
  [[nodiscard]] static mixture of_sizes(mixture_options options, std::vector<std::uint64_t> sizes) {
    return mixture{
        std::make_shared<const detail::mixture_plan>(std::move(options), std::move(sizes))};
  }

  [[nodiscard]] std::uint64_t size(std::uint64_t n) const {
    require_size(n);
    return plan_->size;
  }
  [[nodiscard]] detail::mixture_order order(std::uint64_t n, std::uint64_t epoch) const& {
    require_size(n);
    return {*plan_, epoch};
  }
  detail::mixture_order order(std::uint64_t n, std::uint64_t epoch) && = delete;

  /// Returns a hash of the seed, the sizes and the whole schedule, which saved states contain.
  [[nodiscard]] std::uint64_t fingerprint() const noexcept { return plan_->fingerprint; }

  /// Returns the number of samples in a step over all ranks, which is the option `batch_size`. If
  /// it is not 0, a loader or `sharded` with a different value rejects the mixture.
  [[nodiscard]] std::size_t step_size() const noexcept { return plan_->options.batch_size; }

  /// Returns the normalized options: steps in the schedule are less than the steps of an epoch, and
  /// weights have no common divisor.
  [[nodiscard]] const mixture_options& options() const noexcept { return plan_->options; }

  /// Returns the same mixture up to `from`, followed by the new weights. The parts continue at
  /// their current positions. The new mixture has a different fingerprint (see `with_order_of`).
  /// Throws `option_error` if an argument is invalid. With `exhausted_part_policy::end`, also
  /// throws it if the length of an epoch after the first would change, or if the epoch would end
  /// before `from`.
  [[nodiscard]] mixture continued(training_position from,
                                  std::vector<std::uint32_t> weights) const {
    mixture_options options = plan_->options;
    from = plan_->normal(from);
    std::erase_if(options.schedule, [&](const mixture_weights& one) { return one.from >= from; });
    options.schedule.push_back({from, std::move(weights)});
    mixture after = of_sizes(std::move(options), plan_->sizes);
    const std::uint64_t had = plan_->size;
    const std::uint64_t has = after.plan_->size;
    if ((from.epoch != 0 && has != had) ||
        after.plan_->position_of(from.step) != plan_->position_of(from.step)) {
      detail::throw_option_error(
          "weights", {"with these weights an epoch has ", has, " samples instead of ", had,
                      ": step ", from.step, " of epoch ", from.epoch,
                      " would become a different position of the training"});
    }
    return after;
  }

  /// Returns the samples drawn from each part before the position `at`, without reading data.
  /// Counts all samples of past epochs, including those that a loader or `sharded` drops at the
  /// end. Needs a pass over the parts and a round, or if parts do not repeat, a pass for each
  /// distinct epoch. Throws `option_error` if `at` counts steps and `batch_size` is 0.
  [[nodiscard]] std::vector<part_progress> progress(training_position at) const {
    std::vector<part_progress> all(plan_->sizes.size());
    plan_->each_before(
        at, [&](std::size_t part, std::uint64_t epoch, std::uint64_t epochs, std::uint64_t count) {
          const std::uint64_t through = plan_->repeats() ? count / plan_->sizes[part] : 0;
          all[part].samples += epochs * count;
          all[part].epoch = epoch + through;
          all[part].in_epoch = count - through * plan_->sizes[part];
        });
    return all;
  }

  /// Returns, for each part, the sum of `length(part, index)` over the samples drawn before the
  /// position `at`. This is the number of tokens drawn if `length` returns the number of tokens in
  /// a sample. With `repeat`, calls `length` at most twice for each sample. With `stop_sampling`,
  /// calls it once for each sample in each run of epochs with the same weights, and once in the
  /// epoch of `at`. With `end`, calls it at most once for each drawn sample. If all samples of a
  /// part have the same length, `progress` is faster.
  template <class Length>
    requires std::invocable<const Length&, std::size_t, std::uint64_t>
  [[nodiscard]] std::vector<std::uint64_t> total(training_position at, const Length& length) const {
    std::vector<std::uint64_t> all(plan_->sizes.size());
    const auto sum_of = [&](std::size_t part, std::uint64_t epoch, std::uint64_t count) {
      std::uint64_t sum = 0;
      for (std::uint64_t k = 0; k < count; ++k) {
        sum += static_cast<std::uint64_t>(length(part, plan_->sample_of(part, epoch, k)));
      }
      return sum;
    };
    plan_->each_before(
        at, [&](std::size_t part, std::uint64_t epoch, std::uint64_t epochs, std::uint64_t count) {
          const std::uint64_t size = plan_->sizes[part];
          const std::uint64_t whole = count / size * epochs;
          if (whole != 0) all[part] += whole * sum_of(part, epoch, size);
          for (std::uint64_t e = 0; count % size != 0 && e < epochs; ++e) {
            all[part] += sum_of(part, epoch + count / size + e, count % size);
          }
        });
    return all;
  }

 private:
  explicit mixture(std::shared_ptr<const detail::mixture_plan> plan) : plan_(std::move(plan)) {}

  void require_size(std::uint64_t n) const {
    if (n == plan_->begins.back()) return;
    detail::throw_option_error("parts",
                               {"expected a dataset with the mixture's ", plan_->begins.back(),
                                " samples, the concat of its parts, found ", n});
  }

  std::shared_ptr<const detail::mixture_plan> plan_;
};

/// Returns weights with the sum `round` whose shares are proportional to amounts[i]^(1 /
/// temperature). A temperature of 1 keeps the proportions of the amounts (for example part sizes),
/// and a higher temperature makes them more equal. Shares are exact to 1 / round, except that each
/// part with a positive amount has at least one turn, taken from the largest weight. The result is
/// the same on every machine. Throws `option_error` unless the temperature is at least 0.01, an
/// amount is above 0, and `round` is at most 65536 and at least the number of parts.
[[nodiscard]] inline std::vector<std::uint32_t> temperature_weights(
    std::span<const std::uint64_t> amounts, double temperature, std::uint32_t round = 1000) {
  if (!(temperature >= 0.01)) {
    detail::throw_option_error("temperature",
                               {"must be at least 0.01, but is ", detail::to_text(temperature)});
  }
  if (round > detail::max_turns || round < amounts.size()) {
    detail::throw_option_error("round", {"must be at least the number of parts, ", amounts.size(),
                                         ", and at most ", detail::max_turns, ", but is ", round});
  }
  const std::uint64_t largest = amounts.empty() ? 0 : (std::ranges::max)(amounts);
  if (largest == 0) detail::throw_option_error("amounts", {"expected one above 0"});
  // Uses the library's own math functions, because C libraries differ in the last bits.
  using math = detail::ziggurat;
  std::vector<double> shares(amounts.size());
  for (std::size_t i = 0; i < amounts.size(); ++i) {
    if (amounts[i] == 0) continue;
    const double below =
        (math::log(static_cast<double>(largest)) - math::log(static_cast<double>(amounts[i]))) /
        temperature;
    shares[i] = below > 700 ? 0 : math::exp_minus((std::max)(below, 0.0));
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<std::uint32_t> weights(amounts.size());
  std::uint32_t given = 0;
  for (std::size_t i = 0; i < amounts.size(); ++i) {
    shares[i] = shares[i] / sum * round;
    weights[i] = (std::max)(static_cast<std::uint32_t>(shares[i]), amounts[i] == 0 ? 0U : 1U);
    shares[i] -= weights[i];
    given += weights[i];
  }
  for (; given < round; ++given) {
    const auto lacks_most = std::ranges::max_element(shares);
    *lacks_most -= 1;
    ++weights[static_cast<std::size_t>(lacks_most - shares.begin())];
  }
  for (; given > round; --given) --*std::ranges::max_element(weights);
  return weights;
}

static_assert(epoch_order<detail::mixture_order>);
static_assert(sampler<mixture>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
