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

/// What to do with an epoch's last samples where they do not fill a global batch.
enum class shard_tail {
  wrap,  ///< a last batch filled up from the epoch's start; DistributedSampler(drop_last=False)
  drop,  ///< no such batch; DistributedSampler(drop_last=True)
};

/// The options of `sharded`. Bad values throw `option_error` at its construction.
struct shard_options {
  /// Which share this process reads, from 0. DistributedSampler(rank).
  int rank = 0;

  /// How many processes share an epoch. DistributedSampler(num_replicas).
  int world = 1;

  /// Samples that all ranks together take in a step: a multiple of `world`. The loader of every
  /// rank has `batch_size = global_batch / world`.
  std::size_t global_batch = 0;

  /// What becomes of the rest of the epoch.
  shard_tail tail = shard_tail::wrap;
};

namespace detail {

/// The order that one rank reads: of every global batch its own run of `batch` places.
template <epoch_order Order>
class shard_order {
 public:
  /// The share of rank `options.rank` in the order `all` of `drawn` samples.
  shard_order(const Order& all, std::uint64_t drawn, const shard_options& options) noexcept
      : all_(all),
        drawn_(drawn),
        global_batch_(options.global_batch),
        batch_(options.global_batch / static_cast<std::size_t>(options.world)),
        begin_(batch_ * static_cast<std::size_t>(options.rank)) {}

  /// The samples from the place `first` of the rank's order on. As fast as the order that is dealt
  /// out, but for two divisions a batch.
  void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    while (!out.empty()) {
      const std::uint64_t at = first % batch_;
      // After the epoch's end its start follows.
      const std::uint64_t place = (first / batch_ * global_batch_ + begin_ + at) % drawn_;
      const auto count = static_cast<std::size_t>(
          (std::min)({std::uint64_t{out.size()}, batch_ - at, drawn_ - place}));
      all_.fill(place, out.first(count));
      out = out.subspan(count);
      first += count;
    }
  }

 private:
  Order all_;
  std::uint64_t drawn_;
  std::uint64_t global_batch_;
  std::uint64_t batch_;
  std::uint64_t begin_;  // of the rank's run in a global batch
};

}  // namespace detail

/// Deals the order of any sampler out to the ranks of data-parallel training.
///
///     ps::sharded order{ps::shuffled{.seed = 1}, {.rank = 3, .world = 8, .global_batch = 1024}};
///     ps::loader loader{digits, order, {.batch_size = order.batch_size()}};
///
/// Step s of rank r is the places [s G + r G/w, s G + (r + 1) G/w) of the global order, G the
/// global batch and w the world: put together in the order of the ranks, step s is the same global
/// batch for every world that divides G. Training that stops at step s on 8 ranks goes on at step s
/// on 4 and has missed and repeated nothing. Every rank has the same number of batches, all of them
/// full: none is left waiting in a collective. `wrap` repeats up to G - 1 samples an epoch, and the
/// same ones for every world; `drop` leaves out as many.
///
/// PyTorch: `DistributedSampler`, with `set_epoch` done; it deals sample by sample, and its filling
/// depends on the world. O(1) memory beyond the sampler's own. Copyable; any number of threads may
/// share one.
///
/// All ranks need the same sampler, seed, global batch and dataset. A loader of another batch size
/// throws `option_error`.
template <sampler Sampler>
class sharded {
 public:
  /// Whether `Sampler` says that its `order` needs what another object owns.
  static constexpr bool borrows = [] {
    if constexpr (requires { Sampler::borrows; }) {
      return Sampler::borrows;
    } else {
      return false;
    }
  }();

  /// Deals `all` out. Throws `option_error` unless 0 <= rank < world and `world` divides
  /// `global_batch`, which is at least 1.
  sharded(Sampler all, const shard_options& options) : all_(std::move(all)), options_(options) {
    const auto [rank, world, global_batch, tail] = options;
    if (world < 1) throw option_error("world", "must be at least 1, is " + std::to_string(world));
    if (rank < 0 || rank >= world) {
      throw option_error("rank", "must be at least 0 and below the world of " +
                                     std::to_string(world) + ", is " + std::to_string(rank));
    }
    if (global_batch == 0) throw option_error("global_batch", "must be at least 1, is 0");
    const auto ranks = static_cast<std::size_t>(world);
    if (const std::size_t rest = global_batch % ranks; rest != 0) {
      const std::size_t below = global_batch - rest;
      throw option_error(
          "global_batch",
          "must be a multiple of the world of " + std::to_string(world) + ", is " +
              std::to_string(global_batch) + ", which leaves " + std::to_string(rest) + ": take " +
              (below == 0 ? "" : std::to_string(below) + " or ") + std::to_string(below + ranks));
    }
  }

  /// How many samples this rank reads in an epoch: the same for all ranks, a multiple of
  /// `batch_size()`. Throws `option_error` where `drop` leaves no batch of an epoch that has
  /// samples, or where a place of the epoch, the filling counted, does not fit 64 bits.
  [[nodiscard]] std::uint64_t size(std::uint64_t n) const {
    const std::uint64_t drawn = all_.size(n);
    const std::uint64_t global = options_.global_batch;
    if (drawn > (std::numeric_limits<std::uint64_t>::max)() - (global - 1)) {
      throw option_error("global_batch", std::to_string(drawn) +
                                             " samples and a filling of up to " +
                                             std::to_string(global - 1) + " exceed 64 bits");
    }
    const bool wraps = options_.tail == shard_tail::wrap;
    const std::uint64_t steps = (drawn + (wraps ? global - 1 : 0)) / global;
    if (steps == 0 && drawn != 0) {
      throw option_error("global_batch",
                         std::to_string(global) + " is above the " + std::to_string(drawn) +
                             " samples of an epoch, and shard_tail::drop leaves none");
    }
    return steps * batch_size();
  }

  /// The rank's order of one epoch. Throws what the sampler throws.
  [[nodiscard]] detail::shard_order<detail::order_of<Sampler>> order(std::uint64_t n,
                                                                     std::uint64_t epoch) const {
    return {all_.order(n, epoch), all_.size(n), options_};
  }

  /// The batch size that this rank's loader must have.
  [[nodiscard]] std::size_t batch_size() const noexcept {
    return options_.global_batch / static_cast<std::size_t>(options_.world);
  }
  /// The sampler whose order is dealt out.
  [[nodiscard]] const Sampler& global() const noexcept { return all_; }
  /// To how many ranks.
  [[nodiscard]] std::uint64_t world() const noexcept {
    return static_cast<std::uint64_t>(options_.world);
  }
  /// What it was made with.
  [[nodiscard]] const shard_options& options() const noexcept { return options_; }

 private:
  Sampler all_;
  shard_options options_;
};

static_assert(epoch_order<detail::shard_order<detail::permutation>>);
static_assert(sampler<sharded<shuffled>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
