// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/order/sampler.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Specifies what happens to the last samples of an epoch if they do not fill a global batch.
enum class remainder_policy {
  wrap,  ///< completes the batch with the epoch's first samples; PyTorch: `drop_last=False`
  drop,  ///< drops the batch; PyTorch: `drop_last=True`
  keep,  ///< shortens the batch, for evaluation; ranks may have different numbers of batches
};

/// Options of `sharded`. Invalid values cause `option_error` at construction.
struct shard_options {
  /// Rank of this process, starting at 0. PyTorch: `DistributedSampler(rank=...)`.
  int rank = 0;

  /// Number of processes that share an epoch. PyTorch: `DistributedSampler(num_replicas=...)`.
  int world = 1;

  /// Number of samples in a step over all ranks, a multiple of `world`. The loader of each rank has
  /// `batch_size = global_batch / world`. Must not be set for a sampler with batches of variable
  /// size, such as `by_tokens`, of which each rank reads every `world`-th batch.
  std::size_t global_batch = 0;

  /// Specifies how the last samples of an epoch are divided among the ranks.
  remainder_policy remainder = remainder_policy::wrap;
};

namespace detail {

/// The order of a rank, which consists of `batch` consecutive positions in each global batch.
template <epoch_order Order>
class shard_order {
 public:
  /// Selects the share of rank `options.rank` from `all`, an order of `drawn` samples. In a short
  /// last batch, the share begins `tail_shift` positions earlier than in a full batch.
  shard_order(const Order& all, std::uint64_t drawn, const shard_options& options,
              std::uint64_t tail_shift) noexcept
      : all_(all),
        drawn_(drawn),
        global_batch_(options.global_batch),
        batch_(options.global_batch / static_cast<std::size_t>(options.world)),
        begin_(batch_ * static_cast<std::size_t>(options.rank)),
        tail_shift_(tail_shift) {}

  /// Writes the rank's sample indices starting at position `first`. Needs two divisions for each
  /// batch in addition to the global order.
  void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    while (!out.empty()) {
      const std::uint64_t at = first % batch_;
      const std::uint64_t step = first / batch_ * global_batch_;
      const std::uint64_t begin = begin_ - (drawn_ - step < global_batch_ ? tail_shift_ : 0);
      // Beyond the end, the epoch wraps around to its start.
      const std::uint64_t place = (step + begin + at) % drawn_;
      const auto count = static_cast<std::size_t>(
          (std::min)({std::uint64_t{out.size()}, batch_ - at, drawn_ - place}));
      all_.fill(place, out.first(count));
      out = out.subspan(count);
      first += count;
    }
  }

  /// Returns the number of samples in the rank's batch `batch`.
  [[nodiscard]] std::size_t batch_size(std::uint64_t batch) const noexcept
    requires variable_batch_order<Order>
  {
    return all_.batch_size((batch * global_batch_ + begin_) / batch_);
  }

 private:
  Order all_;
  std::uint64_t drawn_;
  std::uint64_t global_batch_;
  std::uint64_t batch_;
  std::uint64_t begin_;  // first position of the rank in a global batch
  std::uint64_t tail_shift_;
};

}  // namespace detail

/// Distributes the order of any sampler over the ranks in data-parallel training.
///
///     ps::sharded order{ps::shuffled{.seed = 1}, {.rank = 3, .world = 8, .global_batch = 1024}};
///     ps::loader loader{digits, order, {.batch_size = order.batch_size()}};
///
/// In step s, rank r reads the positions [s G + r G/w, s G + (r + 1) G/w) of the global order,
/// where G is the global batch size and w is the world size. All world sizes that divide G read the
/// same global batch in step s. Therefore training that stops at step s on 8 ranks can resume at
/// step s on 4 ranks without skipping or repeating a sample. With `wrap` and `drop`, all ranks have
/// the same number of batches, and all batches are full, so that no rank waits forever in a
/// collective. `wrap` repeats up to G - 1 samples in each epoch, which are the same samples for all
/// w. `drop` omits up to G - 1 samples.
///
/// `keep` is for evaluation: over all ranks, each drawn sample is read exactly once. The ranks
/// divide the last global batch as evenly as possible. A rank's last batch may be short, and some
/// ranks may have one batch more than others. If there are fewer samples than ranks, some ranks
/// have no batch. No rank has more batches than rank 0, so save the state of rank 0. Because the
/// numbers of batches may differ, use collectives once for each epoch instead of once for each
/// batch.
///
/// PyTorch: `DistributedSampler`, without `set_epoch`. PyTorch distributes individual samples, and
/// its padding depends on the world size. Needs O(1) memory in addition to the sampler. Copyable
/// and thread-safe.
///
/// With `by_tokens`, rank r reads the global batches r, r + w, r + 2w, ... unchanged, and the world
/// size must divide `by_tokens::batches_per_step()`.
///
/// All ranks must have the same sampler, seed, global batch size and dataset. A loader with a
/// different batch size throws `option_error`.
template <sampler Sampler>
class sharded {
 public:
  /// True if the orders of `Sampler` reference memory that the sampler does not own.
  static constexpr bool borrows = requires { requires Sampler::borrows; };

  /// Distributes the order of `all`. Throws `option_error` unless 0 <= rank < world, `global_batch`
  /// is at least 1, and `world` divides it. For a sampler that counts steps, also throws if
  /// `global_batch` differs from the step size.
  sharded(Sampler all, const shard_options& options) : all_(std::move(all)), options_(options) {
    const auto [rank, world, global_batch, tail] = options;
    using detail::throw_option_error;
    if (world < 1) throw_option_error("world", {"must be at least 1, but is ", world});
    if (rank < 0 || rank >= world) {
      throw_option_error("rank",
                         {"must be at least 0 and below the world of ", world, ", but is ", rank});
    }
    const auto ranks = static_cast<std::size_t>(world);
    if constexpr (detail::cuts_batches<Sampler>) {
      if (global_batch != 0) {
        throw_option_error("global_batch",
                           {"is set by the sampler, whose batches have variable sizes: omit it"});
      }
      if (all_.batches_per_step() % ranks != 0) {
        throw_option_error("world", {"must divide the sampler's batches_per_step of ",
                                     all_.batches_per_step(), ", but is ", world});
      }
      options_.global_batch = all_.batch_size() * ranks;
      return;
    }
    if (global_batch == 0) throw_option_error("global_batch", {"must be at least 1, but is 0"});
    if (const std::size_t rest = global_batch % ranks; rest != 0) {
      const std::size_t below = global_batch - rest;
      const std::size_t above = below + ranks;
      const bool has_above = above > below;  // false if the sum overflows
      throw_option_error(
          "global_batch",
          {"must be a multiple of the world of ", world, ", but is ", global_batch,
           ", which leaves ", rest, ": take ", below == 0 ? "" : std::to_string(below),
           below == 0 || !has_above ? "" : " or ", has_above ? std::to_string(above) : ""});
    }
    if constexpr (detail::sampler_of_steps<Sampler>) {
      const std::size_t step = all_.step_size();
      if (step == 0 || step == global_batch) return;
      throw_option_error("global_batch",
                         {"must be the sampler's batch_size of ", step, ", but is ", global_batch});
    }
  }

  /// Returns the number of samples that this rank reads in an epoch. Except with `keep`, all ranks
  /// return the same multiple of `batch_size()`. Throws `option_error` if `drop` leaves no batch of
  /// a non-empty epoch, or if the number of positions in the padded epoch exceeds 64 bits.
  [[nodiscard]] std::uint64_t size(std::uint64_t n) const {
    const std::uint64_t drawn = all_.size(n);
    const std::uint64_t global = options_.global_batch;
    if (keeps_remainder()) return drawn / global * batch_size() + tail_of(drawn).size;
    if (drawn > (std::numeric_limits<std::uint64_t>::max)() - (global - 1)) {
      detail::throw_option_error("global_batch", {drawn, " samples and up to ", global - 1,
                                                  " repeated samples exceed 64 bits"});
    }
    const bool wraps = options_.remainder == remainder_policy::wrap;
    const std::uint64_t steps = (drawn + (wraps ? global - 1 : 0)) / global;
    if (steps == 0 && drawn != 0) {
      detail::throw_option_error(
          "global_batch", {global, " is above the ", drawn,
                           " samples of an epoch, and remainder_policy::drop leaves no batch"});
    }
    return steps * batch_size();
  }
  /// Returns the number of samples that all ranks together read in an epoch. Throws the same errors
  /// as `size`.
  [[nodiscard]] std::uint64_t total_size(std::uint64_t n) const {
    return keeps_remainder() ? all_.size(n) : size(n) * world();
  }

  /// Returns the rank's order of an epoch. Propagates errors from the sampler.
  [[nodiscard]] detail::shard_order<detail::order_of<Sampler>> order(std::uint64_t n,
                                                                     std::uint64_t epoch) const {
    const std::uint64_t drawn = all_.size(n);
    const std::uint64_t begin = batch_size() * static_cast<std::size_t>(options_.rank);
    return {all_.order(n, epoch), drawn, options_,
            keeps_remainder() ? begin - tail_of(drawn).begin : 0};
  }

  /// Returns the batch size that this rank's loader must have.
  [[nodiscard]] std::size_t batch_size() const noexcept {
    return options_.global_batch / static_cast<std::size_t>(options_.world);
  }
  /// Returns the number of batches in a step over all ranks.
  [[nodiscard]] std::uint64_t batches_per_step() const noexcept
    requires detail::cuts_batches<Sampler>
  {
    return all_.batches_per_step();
  }
  /// Returns the sampler of the global order.
  [[nodiscard]] const Sampler& global() const noexcept { return all_; }
  /// Returns the number of ranks.
  [[nodiscard]] std::uint64_t world() const noexcept {
    return static_cast<std::uint64_t>(options_.world);
  }
  /// Returns the options.
  [[nodiscard]] const shard_options& options() const noexcept { return options_; }
  /// Returns true if the policy is `remainder_policy::keep`. Ranks may then have different numbers
  /// of samples.
  [[nodiscard]] bool keeps_remainder() const noexcept {
    return options_.remainder == remainder_policy::keep;
  }

 private:
  /// The rank's positions in a short last global batch.
  struct tail_part {
    std::uint64_t begin;
    std::uint64_t size;
  };
  [[nodiscard]] tail_part tail_of(std::uint64_t drawn) const noexcept {
    const std::uint64_t samples = drawn % options_.global_batch;
    const auto rank = static_cast<std::uint64_t>(options_.rank);
    const std::uint64_t each = samples / world();
    const std::uint64_t longer = samples % world();  // number of ranks with an extra sample
    return {each * rank + (std::min)(rank, longer), each + (rank < longer ? 1 : 0)};
  }

  Sampler all_;
  shard_options options_;
};

static_assert(epoch_order<detail::shard_order<detail::permutation>>);
static_assert(sampler<sharded<shuffled>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
