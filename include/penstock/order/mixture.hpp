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
#include <penstock/order/support/even_turns.hpp>
#include <penstock/order/support/permutation.hpp>
#include <penstock/order/support/word_hash.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What a `mixture` does with a part whose samples have all come.
enum class part_through {
  repeat,    ///< its next epoch begins, in another order; epochs of the mixture do not interrupt it
  end,       ///< an epoch ends where the part's next turn would be; the shortest one bounds all
  drop_out,  ///< the others go on without it; the epoch has every sample of every part once
};

/// The weights of a mixture from a place in the training on.
struct mixture_weights {
  /// Where they begin. A step beyond an epoch's end counts on into the next epochs, of which each
  /// has its short last batch as a step, also where a loader or a `sharded` drops that; with
  /// `part_through::end` it is not reached, and the weights begin with the next epoch.
  training_place from = {};
  /// How often each part comes in a round: {6, 3, 1}. 0: not at all. Their sum, after division by a
  /// common divisor, is at most 65536.
  std::vector<std::uint32_t> weights = {};
};

/// The options of `mixture`. Bad values throw `option_error` at its construction.
struct mixture_options {
  /// Determines, with a part and its epoch, the order of that part.
  std::uint64_t seed = 0;
  /// The weights in the order of their places, of which the first is {0, 0}. Empty: equal weights.
  std::vector<mixture_weights> schedule = {};
  /// What happens at the end of a part.
  part_through when_through = part_through::repeat;
  /// Samples of a step: the loader's `batch_size`, or the `global_batch` of a `sharded` over it.
  /// Needed where steps are counted; 0: only epochs are.
  std::size_t batch_size = 0;
  /// Steps of an epoch, for `part_through::repeat`. 0: about as many samples as the parts have.
  std::uint64_t epoch_steps = 0;
};

/// What a mixture has drawn from one part since the beginning of the training.
struct part_progress {
  /// The number of samples.
  std::uint64_t samples = 0;
  /// The part's epoch: how often its samples have come before. Of the part's next sample; where a
  /// part is through and waits for the mixture's next epoch, of its last one.
  std::uint64_t epoch = 0;
  /// How many samples of that epoch have come.
  std::uint64_t in_epoch = 0;
  friend bool operator==(const part_progress&, const part_progress&) = default;
};

namespace detail {

/// The schedule of a mixture, cut into segments of constant weights. Within a segment a round of
/// sum(weights) turns repeats, so every window of one round has the exact shares, wherever it
/// begins. Immutable; shared by the copies of a mixture and by its orders.
struct mixture_plan {
  /// The turns of one round.
  struct round {
    std::vector<std::uint32_t> weights;
    std::vector<part_turn> turns;

    /// Adds the turns of each part among the first `places` places.
    void add_turns(std::uint64_t places, std::span<std::uint64_t> counts) const noexcept {
      for (std::size_t part = 0; part < counts.size(); ++part) {
        counts[part] += places / turns.size() * weights[part];
      }
      for (std::size_t k = 0; k < places % turns.size(); ++k) ++counts[turns[k].part];
    }
    /// The first place where a part that has had `counts[part]` turns more has its next one: at
    /// most `most`.
    [[nodiscard]] std::uint64_t first_after(std::span<const std::uint64_t> counts) const noexcept {
      std::uint64_t first = most;
      for (std::size_t k = 0; k < turns.size(); ++k) {
        const auto [part, before] = turns[k];
        const std::uint64_t whole = counts[part] / weights[part];
        if (counts[part] % weights[part] != before || whole > most / turns.size()) continue;
        first = (std::min)(first, whole * turns.size() + k);
      }
      return first;
    }
  };

  /// The positions [begin, end) of a pass, after `counts[part]` samples of each part.
  struct segment {
    std::uint64_t begin;
    std::uint64_t end;
    std::size_t round;
    std::vector<std::uint64_t> counts;
  };

  /// The segments of each epoch from `first_epoch` on, up to that of the next pass. With `repeat`
  /// there is one pass, over all epochs.
  struct pass {
    std::uint64_t first_epoch;
    std::vector<segment> segments = {};
  };

  /// The number of positions that a training may have.
  static constexpr std::uint64_t most = std::uint64_t{1} << 63;

  mixture_options options;
  std::vector<std::uint64_t> sizes;      ///< of the parts
  std::vector<std::uint64_t> begins{0};  ///< of the parts in their concatenation; then the end
  permutation_family shuffles{{.seed = options.seed, .epoch = 0, .stage = mixture_stage}};
  std::vector<std::uint64_t> seeds;  ///< of the parts: `seed + e` is the bijection of epoch e
  std::uint64_t size = 0;            ///< samples of an epoch
  std::vector<round> rounds;
  std::vector<pass> passes;
  std::uint64_t fingerprint = 0;

  /// Throws `option_error`.
  mixture_plan(mixture_options by, std::vector<std::uint64_t> of_sizes)
      : options(std::move(by)), sizes(std::move(of_sizes)) {
    if (sizes.empty()) refuse_option("parts", {"expected at least one"});
    for (std::size_t part = 0; part < sizes.size(); ++part) {
      if (sizes[part] == 0 || sizes[part] > most - begins.back()) {
        refuse_option("parts", {"part ", part, " has ", sizes[part], " samples: expected 1 to ",
                                most - begins.back(), ", so that all are at most 2^63"});
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
      refuse_option("epoch_steps", {"is for part_through::repeat: otherwise an epoch is as long as "
                                    "the parts"});
    }
    for (std::size_t i = 0; i < schedule.size(); ++i) require_valid(i);
    lay_out_passes();
    word_hash hash;
    for (const auto& [from, weights] : schedule) {
      hash.add_all({from.epoch, position_of(from.step)}).add_all(weights);
    }
    fingerprint =
        hash.add_all(sizes)
            .add_all({options.seed, size, static_cast<std::uint64_t>(options.when_through)})
            .value();
  }

  [[nodiscard]] bool repeats() const noexcept {
    return options.when_through == part_through::repeat;
  }

  /// The same place with a step within its epoch.
  [[nodiscard]] training_place normal(const training_place& at) const {
    if (at.step == 0 || options.when_through == part_through::end) return at;
    static_cast<void>(position_of(at.step));  // steps are counted
    const std::uint64_t steps = (size - 1) / options.batch_size + 1;
    if (at.step / steps > ~at.epoch) {
      refuse_option("epoch", {at.epoch, " and ", at.step, " steps of ", steps,
                              " an epoch are more than 2^64 epochs"});
    }
    return {at.epoch + at.step / steps, at.step % steps};
  }

  /// The position of step `step` within its epoch. Throws `option_error` where steps aren't
  /// counted.
  [[nodiscard]] std::uint64_t position_of(std::uint64_t step) const {
    if (step == 0) return 0;
    if (options.batch_size == 0) {
      refuse_option("batch_size", {"is needed where steps are counted, as step ", step, ", is 0"});
    }
    return step > size / options.batch_size ? size : step * options.batch_size;
  }

  /// The position of the first sample of `epoch` in the segments that hold for it. Throws
  /// `option_error` beyond `most` samples.
  [[nodiscard]] std::uint64_t base_of(std::uint64_t epoch) const {
    if (epoch < most / size) return repeats() ? epoch * size : 0;
    refuse_option("epoch", {epoch, " epochs of ", size, " samples are more than 2^63"});
  }

  /// The pass that holds for `epoch`.
  [[nodiscard]] std::size_t pass_of(std::uint64_t epoch) const noexcept {
    const auto after = std::ranges::upper_bound(passes, epoch, {}, &pass::first_epoch);
    return static_cast<std::size_t>(after - passes.begin()) - 1;
  }

  /// What has come of each part before step `at.step` of epoch `at.epoch`. For every part, pass and
  /// its epochs before that, which may be 0, calls `each(part, first epoch, epochs, count)`: each
  /// of its epochs has drawn `count`. With `repeat` there is one, from the beginning of the
  /// training on.
  template <class Each>
  void each_before(training_place at, const Each& each) const {
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

  /// What comes at place `at` of a part in one of its epochs.
  [[nodiscard]] std::uint64_t sample_of(std::size_t part, std::uint64_t epoch,
                                        std::uint64_t at) const noexcept {
    return shuffles(seeds[part] + epoch, sizes[part], at);
  }

  /// The segment of a position.
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
    if (batch == 0) refuse_option("batch_size", {"is needed for .epoch_steps, is 0"});
    if (steps == 0) steps = (std::max)(size / batch, std::uint64_t{1});
    if (batch <= most && steps <= most / batch) return steps * batch;
    refuse_option("epoch_steps",
                  {steps, " steps of ", batch, " samples are more than 2^63 samples"});
  }

  void require_valid(std::size_t entry) {
    auto& [from, weights] = options.schedule[entry];
    from = normal(from);
    if (entry == 0 ? from != training_place{} : from <= options.schedule[entry - 1].from) {
      refuse_option(
          "schedule",
          {"entry ", entry, " begins at step ", from.step, " of epoch ", from.epoch, ": expected ",
           entry == 0 ? "step 0 of epoch 0" : "a place after the entry before"});
    }
    if (weights.size() != sizes.size()) {
      refuse_option("weights", {"entry ", entry, " of the schedule has ", weights.size(), " for ",
                                sizes.size(), " parts"});
    }
    weights = reduced(std::move(weights));
  }

  /// The number of the round of these weights.
  std::size_t round_of(const std::vector<std::uint32_t>& weights) {
    const std::vector<std::uint32_t> by = reduced(weights);
    const auto sum = std::accumulate(by.begin(), by.end(), std::uint64_t{0});
    const auto same = std::ranges::find_if(
        rounds, [&](const round& one) { return one.turns.size() == sum && one.weights == by; });
    const auto which = static_cast<std::size_t>(same - rounds.begin());
    if (same == rounds.end()) rounds.push_back({by, even_turns(by)});
    return which;
  }

  /// Each epoch by itself, unless parts repeat. Epochs without a change inside, and with equal
  /// weights, are one pass.
  void lay_out_passes() {
    if (options.when_through == part_through::end) size = most;  // no step is beyond it yet
    std::uint64_t shortest = lay_out(0);
    for (const auto& [from, weights] : options.schedule) {
      for (const std::uint64_t epoch : {from.epoch, from.epoch + std::uint64_t{from.step != 0}}) {
        if (repeats() || epoch <= passes.back().first_epoch) continue;
        shortest = (std::min)(shortest, lay_out(epoch));
      }
    }
    if (!repeats()) size = shortest;
  }

  /// Returns the number of samples of the epoch; `most` if parts repeat.
  std::uint64_t lay_out(std::uint64_t epoch) {
    passes.push_back({epoch});
    constexpr std::uint64_t never = ~std::uint64_t{0};
    const bool drops = options.when_through == part_through::drop_out;
    std::vector<std::uint64_t> counts(sizes.size());
    std::uint64_t at = 0;
    const auto begin_of = [&](std::size_t entry) {
      if (entry == options.schedule.size()) return never;
      const training_place& from = options.schedule[entry].from;
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
        refuse_option("weights", {"at sample ", at, " of epoch ", epoch,
                                  " all parts that have a "
                                  "weight are through, and others are not: give them a weight"});
      }
      const std::size_t which = round_of(weights);
      const round& turns = rounds[which];
      std::uint64_t end = most - at;
      if (!repeats()) {
        std::vector<std::uint64_t> left = sizes;
        for (std::size_t part = 0; part < left.size(); ++part) left[part] -= counts[part] + drops;
        // A part drops out after its last turn; otherwise the epoch ends before the one too many.
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

/// The order of one epoch of a `mixture`. Refers to the plan of the mixture that made it.
class mixture_order {
 public:
  /// That of `epoch`. Throws `option_error` beyond 2^63 samples.
  mixture_order(const mixture_plan& plan, std::uint64_t epoch)
      : plan_(&plan),
        pass_(plan.pass_of(epoch)),
        base_(plan.base_of(epoch)),
        epoch_(plan.repeats() ? 0 : epoch) {}

  /// Writes the samples from position `first` of the order on: O(log changes) to begin, then O(1)
  /// for each, however many parts there are.
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
  std::uint64_t epoch_;  // of the parts, at the beginning of their streams
};

}  // namespace detail

/// Mixes parts by weights that may change during the training. A sampler over the `concat` of the
/// same parts, in the same order:
///
///     ps::mixture mixed{{.seed = 1,
///                        .schedule = {{{.step = 0}, {6, 3, 1}}, {{.step = 20'000}, {4, 4, 2}}},
///                        .batch_size = 1024},
///                       web, code, books};
///     ps::sharded order{mixed, {.rank = 3, .world = 8, .global_batch = 1024}};
///     ps::loader loader{ps::concat(web, code, books), order, {.batch_size = order.batch_size()}};
///
/// Between two changes, every window of sum(weights) samples has exactly as many of each part as
/// its weight says, spread evenly. Each part is shuffled by itself, anew in each of its epochs, and
/// none of its samples is repeated or omitted before its epoch ends, whatever the weights do.
///
/// The sample at a position is a pure function of options and sizes, found in O(log changes), so
/// that a loop resumes anywhere, with any workers and ranks. With `sharded`, whole steps only:
/// `repeat` has no others. With `end` all epochs have as many samples as the shortest one of the
/// schedule.
///
/// Memory: for each change 48 bytes and 8 a part and, where its weights are new, 8 for each turn of
/// their round, at most 512 KiB, and 4 a part. With `drop_out` each part that drops out is such a
/// change, in up to two epochs for each entry of the schedule: a thousand parts of equal weights
/// take 16 MB. Construction takes O(turns x different weights in them) for each round. Copies share
/// the memory; any number of threads may share a mixture. An order refers to the mixture: keep it
/// or a copy alive as long as its orders, as a loader does; `order` of a temporary does not
/// compile.
///
/// PyTorch: no counterpart in core. Errors: `option_error` for bad options, and from `size` and
/// `order` if the dataset's size is not that of all parts together.
class mixture {
 public:
  /// Mixes `parts`, of which only the sizes are kept. Throws `option_error`.
  template <class... Parts>
    requires(sizeof...(Parts) > 0 &&
             requires(const Parts&... parts) { (static_cast<std::uint64_t>(parts.size()), ...); })
  explicit mixture(mixture_options options, const Parts&... parts)
      : mixture(of_sizes(std::move(options), {static_cast<std::uint64_t>(parts.size())...})) {}

  /// Mixes parts of these sizes. Throws `option_error`.
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

  /// A hash of the seed, the sizes and the whole schedule, for the states of loaders.
  [[nodiscard]] std::uint64_t fingerprint() const noexcept { return plan_->fingerprint; }

  /// Samples of a step over all ranks: `batch_size` of the options. A loader or a `sharded` with
  /// another one refuses the mixture, unless it is 0.
  [[nodiscard]] std::size_t step_size() const noexcept { return plan_->options.batch_size; }

  /// The options; the places of the schedule have steps below those of an epoch, and its weights
  /// no common divisor.
  [[nodiscard]] const mixture_options& options() const noexcept { return plan_->options; }

  /// The same mixture up to `from`, with other weights from there on: the parts go on where they
  /// are. States have another fingerprint then: see `with_order_of`. Throws `option_error`, with
  /// `part_through::end` also where epochs would get another length although one has come, or end
  /// before `from`.
  [[nodiscard]] mixture continued(training_place from, std::vector<std::uint32_t> weights) const {
    mixture_options options = plan_->options;
    from = plan_->normal(from);
    std::erase_if(options.schedule, [&](const mixture_weights& one) { return one.from >= from; });
    options.schedule.push_back({from, std::move(weights)});
    mixture after = of_sizes(std::move(options), plan_->sizes);
    const std::uint64_t had = plan_->size;
    const std::uint64_t has = after.plan_->size;
    if ((from.epoch != 0 && has != had) ||
        after.plan_->position_of(from.step) != plan_->position_of(from.step)) {
      detail::refuse_option("weights", {"with these an epoch has ", has, " samples, before ", had,
                                        ": step ", from.step, " of epoch ", from.epoch,
                                        " would be another place of the training"});
    }
    return after;
  }

  /// What has come of each part before the place `at`, without a look at data. It costs one pass
  /// over the parts and a round; if epochs differ, other than with `repeat`, one for each of those.
  /// Counts all samples of an epoch that has come, also those that a loader or a `sharded` drops
  /// with its tail. Throws `option_error` if `at` counts steps and `batch_size` is 0.
  [[nodiscard]] std::vector<part_progress> progress(training_place at) const {
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

  /// The sum of `length(part, index)` over the samples that have come of each part before the place
  /// `at`: their tokens, if it returns those of sample `index` of part `part`. It is called at most
  /// twice a sample of the parts with `repeat`; with `drop_out` once for each run of epochs of the
  /// same weights, and once for the epoch of `at`; with `end` at most once for each sample that has
  /// come. Where all samples of a part have the same length, `progress` has the answer at once.
  template <class Length>
    requires std::invocable<const Length&, std::size_t, std::uint64_t>
  [[nodiscard]] std::vector<std::uint64_t> total(training_place at, const Length& length) const {
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
    detail::refuse_option("parts", {"expected a dataset of the mixture's ", plan_->begins.back(),
                                    " samples, the concat of its parts, found ", n});
  }

  std::shared_ptr<const detail::mixture_plan> plan_;
};

/// Weights of a round of `round` turns whose shares are proportional to amounts[i]^(1 /
/// temperature) : 1 keeps the proportions of the amounts (sizes of the parts, say), a higher
/// temperature makes them more equal. Each share is exact to 1 / round, except that a part with an
/// amount has at least one turn, which the largest weight gives. The same on every machine. Throws
/// `option_error` unless the temperature is at least 0.01, one amount is above 0, and `round` is at
/// most 65536 and at least the number of parts.
[[nodiscard]] inline std::vector<std::uint32_t> tempered(std::span<const std::uint64_t> amounts,
                                                         double temperature,
                                                         std::uint32_t round = 1000) {
  if (!(temperature >= 0.01)) {
    detail::refuse_option("temperature",
                          {"must be at least 0.01, is ", detail::to_text(temperature)});
  }
  if (round > detail::most_turns || round < amounts.size()) {
    detail::refuse_option("round", {"must be at least the ", amounts.size(), " parts, at most ",
                                    detail::most_turns, ", is ", round});
  }
  const std::uint64_t largest = amounts.empty() ? 0 : (std::ranges::max)(amounts);
  if (largest == 0) detail::refuse_option("amounts", {"expected one above 0"});
  // The functions of the normal numbers, because those of C libraries differ in their last bits.
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
