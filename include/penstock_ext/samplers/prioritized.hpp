// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/order/support/word_hash.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Options of `prioritized`. Invalid values cause `option_error` at construction.
struct prioritized_options {
  /// Seed that determines the draws, together with the step.
  std::uint64_t seed = 0;
  /// Number of samples in a step: the loader's `batch_size`, or the `global_batch` of an enclosing
  /// `sharded`.
  std::size_t batch_size = 0;
  /// Number of steps before new weights take effect: weights set in step s apply from step s + lag.
  /// Must exceed the number of steps drawn ahead, so at least prefetch + 1, or prefetch + depth + 1
  /// with a transfer.
  std::uint64_t lag = 0;
  /// Number of samples in an epoch, rounded up to whole steps. 0 means the number of weights.
  std::uint64_t draws = 0;
};

namespace detail {

/// Weights as a tree of partial sums. The sums are integers, so they do not depend on the order of
/// changes. Source: Fenwick, "A new data structure for cumulative frequency tables", 1994.
class weight_tree {
 public:
  static bool is_weight(float weight) noexcept { return weight >= 0 && weight <= 65'536; }
  static void require_weight(float weight, std::uint64_t index) {
    if (is_weight(weight)) return;
    throw_option_error("weights",
                       {"expected 0 to 65536, found ", to_text(weight), " for sample ", index});
  }

  /// Builds the tree. Throws `option_error` if a weight or the number of weights is out of range.
  explicit weight_tree(std::vector<float> weights)
      : weights_(std::move(weights)), sums_(weights_.size() + 1) {
    const std::uint64_t n = weights_.size();
    if (n == 0 || n > 0xffffffffU)
      throw_option_error("weights", {"expected 1 to 2^32 - 1, found ", n});
    // The scale keeps the sum of n weights of 65536 below 2^63.
    scale_ =
        std::bit_cast<double>((1023 + 46 - static_cast<std::uint64_t>(std::bit_width(n))) << 52);
    for (std::size_t i = 1; i <= n; ++i) {
      require_weight(weights_[i - 1], i - 1);
      sums_[i] += units(weights_[i - 1]);
      total_ += units(weights_[i - 1]);
      if (i + lowest_bit(i) <= n) sums_[i + lowest_bit(i)] += sums_[i];
    }
  }

  [[nodiscard]] std::span<const float> weights() const noexcept { return weights_; }

  /// Exchanges `weight` with the weight of sample `index`.
  void exchange(std::uint64_t index, float& weight) noexcept {
    auto i = static_cast<std::size_t>(index) + 1;
    const std::uint64_t more = units(weight) - units(weights_[i - 1]);  // modulo 2^64
    std::swap(weights_[i - 1], weight);
    total_ += more;
    for (; i < sums_.size(); i += lowest_bit(i)) sums_[i] += more;
  }

  [[nodiscard]] std::uint64_t draw(sample_generator gen) const noexcept {
    const std::size_t n = weights_.size();
    if (total_ == 0) return uniform(gen, std::uint64_t{0}, std::uint64_t{n - 1});
    std::uint64_t left = uniform(gen, std::uint64_t{0}, total_ - 1);
    std::size_t found = 0;
    for (std::size_t bit = std::bit_floor(n); bit != 0; bit /= 2) {
      if (found + bit <= n && sums_[found + bit] <= left) left -= sums_[found += bit];
    }
    return found;
  }

 private:
  static std::size_t lowest_bit(std::size_t i) noexcept { return i & (~i + 1); }
  [[nodiscard]] std::uint64_t units(float weight) const noexcept {
    return static_cast<std::uint64_t>(double{weight} * scale_);
  }

  std::vector<float> weights_;
  std::vector<std::uint64_t> sums_;
  std::uint64_t total_ = 0;
  double scale_ = 1;  // number of integer units in a weight of 1, a power of 2
};

/// The weights of `prioritized` at a step, and a log of changes for earlier and later steps.
///
/// `mutex_` guards all members except options_, count_ and steps_, which are constant. A log entry
/// holds the weight that is not in the tree, so that the same exchange applies and reverts a
/// change.
class priority_log {
 public:
  /// Starts with the weights `weights`. Throws `option_error` if an option or a weight is invalid.
  priority_log(std::span<const float> weights, const prioritized_options& options)
      : options_(options), count_(weights.size()), tree_({weights.begin(), weights.end()}) {
    if (options.batch_size == 0) throw_option_error("batch_size", {"must be at least 1, but is 0"});
    if (options.lag == 0 || options.lag > std::uint64_t{1} << 20) {
      throw_option_error("lag", {"must be 1 to 2^20 steps, but is ", options.lag});
    }
    const std::uint64_t draws = options.draws == 0 ? count_ : options.draws;
    if (draws > std::uint64_t{1} << 62 || options.batch_size > std::uint64_t{1} << 32) {
      throw_option_error("draws", {"more than 2^62, or batches above 2^32"});
    }
    steps_ = (draws - 1) / options.batch_size + 1;
  }

  [[nodiscard]] const prioritized_options& options() const noexcept { return options_; }
  [[nodiscard]] std::uint64_t weights() const noexcept { return count_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

  /// Returns the step of the position `at`, counted over all epochs.
  [[nodiscard]] std::uint64_t step_of(const training_position& at) const {
    if (at.epoch < (std::uint64_t{1} << 62) / steps_ && at.step <= steps_) {
      return at.epoch * steps_ + at.step;
    }
    throw_option_error("at", {"step ", at.step, " of epoch ", at.epoch, ": an epoch has ", steps_,
                              " steps, and the total must be below 2^62"});
  }

  /// Draws the positions of a step starting at `place`.
  void draw(std::uint64_t step, std::uint64_t place, std::span<std::uint64_t> out) noexcept {
    const std::scoped_lock lock{mutex_};
    seek(step);
    has_lost_ = has_lost_ || step < oldest_;
    end_ = (std::max)(end_, step + 1);
    const random_key key{.seed = options_.seed, .epoch = step, .stage = prioritized_stage};
    for (std::uint64_t& one : out) one = tree_.draw({key, place++});
  }

  void set(std::uint64_t step, std::span<const std::uint64_t> indices,
           std::span<const float> weights) {
    if (indices.size() != weights.size()) {
      throw_option_error("weights", {"expected one weight for each of the ", indices.size(),
                                     " indices, found ", weights.size()});
    }
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] >= count_) throw index_error("prioritized", indices[i], count_);
      weight_tree::require_weight(weights[i], indices[i]);
    }
    const std::scoped_lock lock{mutex_};
    require_whole();
    const std::uint64_t from = step + options_.lag;
    if (from < end_) {
      throw_option_error("lag", {"a weight set in step ", step, " takes effect in step ", from,
                                 ", but step ", end_ - 1, " is already drawn: expected at least ",
                                 end_ - step, ", found ", options_.lag});
    }
    if (step < newest_) {
      throw_option_error("at", {"step ", step, " comes after step ", newest_,
                                ": set weights in the order of steps, or load an earlier state"});
    }
    for (std::size_t i = 0; i < indices.size(); ++i) {
      log_.push_back({from, indices[i], weights[i]});
    }
    newest_ = step;
    forget_before(step);
  }

  [[nodiscard]] std::vector<std::byte> save(std::uint64_t step) {
    const std::scoped_lock lock{mutex_};
    require_whole();
    if (step < oldest_) {
      throw_option_error("at", {"the weights of step ", step,
                                " are no longer stored; the oldest stored step is ", oldest_});
    }
    seek(step);
    std::vector<std::uint64_t> words = head_of(step);
    words.resize(changes_at());
    std::memcpy(words.data() + head_words, tree_.weights().data(), count_ * sizeof(float));
    // The resumed run repeats the calls of `set` for this step and later steps.
    for (std::size_t i = applied_; i < log_.size() && log_[i].step < step + options_.lag; ++i) {
      const auto [from, index, weight] = log_[i];
      words.insert(words.end(), {from, index, std::bit_cast<std::uint32_t>(weight)});
    }
    words.push_back(word_hash{}.add_all(words).value());
    const auto bytes = std::as_bytes(std::span{words});
    return {bytes.begin(), bytes.end()};
  }

  /// Loads a state and returns its step. Throws `text_error` and `option_error`. If it throws, the
  /// state is unchanged.
  std::uint64_t load(std::span<const std::byte> bytes) {
    std::vector<std::uint64_t> words(bytes.size() / 8);
    const auto require = [&](bool good, std::size_t at, const std::string& expected) {
      if (good) return;
      const std::string found = at < words.size() ? std::to_string(words[at]) : "the end";
      throw text_error("state of prioritized", 8 * at, expected, found);
    };
    const std::string whole = "a complete state of " + std::to_string(count_) + " weights";
    require(bytes.size() % 8 == 0 && words.size() > head_words, words.size(), whole);
    std::memcpy(words.data(), bytes.data(), bytes.size());
    const std::uint64_t step = words[head_words - 1];
    const std::vector<std::uint64_t> head = head_of(step);
    require(words[0] == head[0], 0, "a state of version 2");
    const std::size_t end = words.size() - 1;
    const std::uint64_t sum = word_hash{}.add_all(std::span{words}.first(end)).value();
    require(words[end] == sum, end, "the checksum " + std::to_string(sum));
    static constexpr const char* names[] = {"", "weights", "seed", "batch_size", "lag", "draws"};
    for (std::size_t i = 1; i < std::size(names); ++i) {
      if (words[i] == head[i]) continue;
      throw_option_error(names[i], {words[i], " in the state, ", head[i], " here"});
    }
    require(end >= changes_at() && (end - changes_at()) % 3 == 0, words.size(), whole);
    require(step >> 62 == 0, head_words - 1, "a step below 2^62");
    std::vector<float> weights(static_cast<std::size_t>(count_));
    std::memcpy(weights.data(), words.data() + head_words, weights.size() * sizeof(float));
    weight_tree tree{std::move(weights)};
    std::vector<change> log;
    for (std::size_t at = changes_at(); at < end; at += 3) {
      const change one{words[at], words[at + 1],
                       std::bit_cast<float>(static_cast<std::uint32_t>(words[at + 2]))};
      require(one.step >= (log.empty() ? step + 1 : log.back().step) &&
                  one.step < step + options_.lag && one.index < count_ &&
                  weight_tree::is_weight(one.weight),
              at, "a weight that takes effect in one of the next steps, in the order of steps");
      log.push_back(one);
    }
    const std::scoped_lock lock{mutex_};
    tree_ = std::move(tree);
    log_ = std::move(log);
    applied_ = 0;
    oldest_ = end_ = newest_ = step;
    has_lost_ = false;
    return step;
  }

 private:
  struct change {
    std::uint64_t step;  // first step in which the change takes effect
    std::uint64_t index;
    float weight;
  };

  static constexpr std::size_t head_words = 7;
  [[nodiscard]] std::vector<std::uint64_t> head_of(std::uint64_t step) const {
    constexpr std::uint64_t name = 0x3249524F49525050;  // "PPRIORI2" as little-endian bytes
    return {name, count_, options_.seed, options_.batch_size, options_.lag, options_.draws, step};
  }
  [[nodiscard]] std::size_t changes_at() const noexcept {  // offset of the changes in a state
    return head_words + static_cast<std::size_t>((count_ + 1) / 2);
  }

  void require_whole() const {
    if (!has_lost_) return;
    throw std::logic_error(
        "prioritized: a step was drawn again whose weights are no longer stored: load the state of "
        "the step before a loop returns to it");
  }

  /// Sets the tree to the weights of `step`, or to the oldest known weights.
  void seek(std::uint64_t step) noexcept {
    const auto exchange = [&](change& one) { tree_.exchange(one.index, one.weight); };
    while (applied_ > 0 && log_[applied_ - 1].step > step) exchange(log_[--applied_]);
    while (applied_ < log_.size() && log_[applied_].step <= step) exchange(log_[applied_++]);
  }
  /// Removes the log entries that only steps more than `lag` before `step` need. Runs only in some
  /// steps, so that the total cost is proportional to the number of changes.
  void forget_before(std::uint64_t step) {
    if (step < oldest_ + 2 * options_.lag) return;
    oldest_ = step - options_.lag;
    seek(oldest_);
    log_.erase(log_.begin(), log_.begin() + static_cast<std::ptrdiff_t>(applied_));
    applied_ = 0;
  }

  prioritized_options options_;
  std::uint64_t count_;
  std::uint64_t steps_ = 0;  // number of steps in an epoch
  std::mutex mutex_;
  weight_tree tree_;
  std::vector<change> log_;   // ordered by step
  std::size_t applied_ = 0;   // number of log entries applied to the tree
  std::uint64_t oldest_ = 0;  // first step whose weights are known
  std::uint64_t newest_ = 0;  // last step in which weights were set
  std::uint64_t end_ = 0;     // one past the last drawn step
  bool has_lost_ = false;     // true if a step was drawn with unknown weights
};

/// An epoch's draws of `prioritized`. References the weights of the sampler that created it.
class prioritized_order {
 public:
  /// Creates the draws of `epoch`. Throws `option_error` beyond 2^62 steps.
  prioritized_order(priority_log& log, std::uint64_t epoch)
      : log_(&log), begin_(log.step_of({epoch, 0})) {}

  /// Writes the samples at the positions starting at `first`.
  void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    fill_by_rows(log_->options().batch_size, first, out,
                 [this](auto step, auto at, auto part) { log_->draw(begin_ + step, at, part); });
  }

 private:
  priority_log* log_;
  std::uint64_t begin_;  // first step of the epoch
};

}  // namespace detail

/// Draws samples with replacement by weights that the program updates during training, such as
/// losses or pass rates.
///
///     ps::prioritized order{weights, {.seed = 1, .batch_size = 64, .lag = 8}};
///     ps::loader loader{data, order, {.batch_size = 64, .instrumentation = {.indices = true}}};
///     for (auto& batch : loader.epoch(0)) {
///       ...                                                 // one loss for each sample
///       order.set({batch.epoch(), batch.number()}, batch.indices(), losses);
///     }
///
/// Weights set in step s take effect exactly in step s + lag, so that batches do not depend on how
/// far a loader reads ahead. If the lag is too short, so that an affected step was already drawn,
/// `set` throws. A loader with `lookahead_bytes` rejects the sampler, because hints draw steps far
/// ahead. Other samples keep their weights. If an index appears twice, its last weight is used.
/// With `sharded`, each rank must set the weights of all ranks, in the same order.
///
/// Weights range from 0 to 65536, in units of 2^-(46 - bits of n), which is 2^-26 for a million
/// samples. Samples with weight 0 are not drawn. If all weights are 0, all samples are equally
/// likely. Memory use is 12 bytes for each sample, and 24 bytes for each weight set in the last 4 *
/// lag steps. Drawing a sample and setting a weight need O(log n) time.
///
/// The weights are part of the training state. Call `save` when saving the loader state, and `load`
/// before the loader resumes. Copies share the weights. Any thread may call `set` and `save`. Each
/// chunk of samples acquires a lock, which is held while the samples are drawn. An order references
/// the sampler, so the sampler or a copy must outlive its orders. A loader ensures this. Calling
/// `order` on a temporary is a compile-time error.
class prioritized {
 public:
  /// True because draws have a side effect: a draw fixes the weights of its step, so that `set` can
  /// no longer change them.
  static constexpr bool counts_draws = true;

  /// Starts with the weights `weights`, one for each sample. Throws `option_error` if an option or
  /// a weight is invalid.
  prioritized(std::span<const float> weights, const prioritized_options& options)
      : log_(std::make_shared<detail::priority_log>(weights, options)) {}

  [[nodiscard]] std::uint64_t size(std::uint64_t n) const {
    detail::require_one_each("weights", n, log_->weights());
    return log_->steps() * log_->options().batch_size;
  }
  [[nodiscard]] detail::prioritized_order order(std::uint64_t n, std::uint64_t epoch) const& {
    detail::require_one_each("weights", n, log_->weights());
    return {*log_, epoch};
  }
  detail::prioritized_order order(std::uint64_t n, std::uint64_t epoch) && = delete;

  /// Returns a hash of the options, which saved states contain. Excludes the weights.
  [[nodiscard]] std::uint64_t fingerprint() const noexcept {
    const auto& [seed, batch, lag, draws] = log_->options();
    return detail::word_hash{}.add_all({log_->weights(), seed, batch, lag, draws}).value();
  }
  /// Returns the number of samples in a step over all ranks. A loader or `sharded` with a different
  /// value rejects the sampler.
  [[nodiscard]] std::size_t step_size() const noexcept { return log_->options().batch_size; }
  /// Returns the options.
  [[nodiscard]] const prioritized_options& options() const noexcept { return log_->options(); }

  /// Sets the weights of the samples `indices` to `weights`, starting at step `at` + lag. Steps
  /// must not decrease between calls. Throws `option_error` for invalid weights, for an earlier
  /// step than in the last call, and if the lag is too short. Throws `index_error`, and
  /// std::logic_error if a loop has returned to a step whose weights are no longer known.
  void set(const training_position& at, std::span<const std::uint64_t> indices,
           std::span<const float> weights) const {
    log_->set(log_->step_of(at), indices, weights);
  }

  /// Returns the state for resuming at step `at`, after all calls of `set` for earlier steps. The
  /// state has 64 bytes, plus 4 bytes for each sample and 24 bytes for each weight that has not
  /// taken effect yet. The bytes are little-endian with a checksum. Throws `option_error` if `at`
  /// is more than `lag` steps before the last `set`.
  [[nodiscard]] std::vector<std::byte> save(const training_position& at) const {
    return log_->save(log_->step_of(at));
  }

  /// Loads a state returned by `save`, and returns its position. No loop may be running. Throws
  /// `text_error` for damaged bytes, and `option_error` if the options or the number of weights
  /// differ. If it throws, the state is unchanged.
  training_position load(std::span<const std::byte> state) const {
    const std::uint64_t step = log_->load(state);
    return {step / log_->steps(), step % log_->steps()};
  }

 private:
  std::shared_ptr<detail::priority_log> log_;
};

static_assert(epoch_order<detail::prioritized_order>);
static_assert(sampler<prioritized>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
