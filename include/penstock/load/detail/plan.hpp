// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/load/options.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/threads/support/cpus.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The options with a number in place of `workers = automatic`: the most that may take part, which
/// is then in `tuning.cpus` too. `usable` cores are there; one of them is the step's. Options
/// without it are unchanged.
[[nodiscard]] inline loader_options resolved(loader_options options, std::size_t usable) {
  if (options.workers != automatic) return options;
  if (options.tuning.cpus == automatic) {
    options.tuning.cpus = std::clamp<std::size_t>(usable, 2, most_workers + 1) - 1;
  }
  options.workers = options.tuning.cpus;
  return options;
}
/// `options` with the cores of this machine in place of `automatic`. Asks the system; reads files.
[[nodiscard]] inline loader_options resolved(const loader_options& options) {
  const bool asks = options.workers == automatic && options.tuning.cpus == automatic;
  return resolved(options, asks ? usable_cpus() : 1);
}

/// Throws `option_error` where a sampler is made for another batch size, or for no hints.
template <sampler Sampler>
void require_options_of(const Sampler& order, const loader_options& options) {
  using global = std::remove_cvref_t<decltype(global_sampler(order))>;
  if constexpr (requires { requires global::counts_draws; }) {
    if (options.ahead.bytes != 0) {
      refuse_option("ahead.bytes",
                    {"must be 0, is ", options.ahead.bytes,
                     ": hints would draw steps of the sampler whose weights are still to be set"});
    }
  }
  if constexpr (sampler_of_batches<Sampler>) {
    if (order.batch_size() == options.batch_size) return;
    refuse_option("batch_size", {"must be the sampler's ", order.batch_size(),
                                 " (sharded: global_batch / world), is ", options.batch_size});
  } else if constexpr (sampler_of_steps<Sampler>) {
    const std::size_t step = order.step_size();
    if (step == 0 || step == options.batch_size) return;
    refuse_option("batch_size",
                  {"must be that of the sampler's options, ", step, ", is ", options.batch_size});
  }
}

/// How an epoch of `samples` samples is cut into batches. Pure arithmetic, no state.
class epoch_plan {
 public:
  /// Throws `empty_dataset` when there is no sample, `option_error` when there is no batch.
  epoch_plan(std::uint64_t samples, std::size_t batch_size, partial_batch last)
      : samples_(samples),
        batch_size_(batch_size),
        last_(last),
        batches_(samples / batch_size +
                 (last != partial_batch::drop && samples % batch_size != 0 ? 1 : 0)) {
    if (samples == 0)
      throw empty_dataset(
          "loader: an epoch has 0 samples: is the dataset empty, or does its sampler draw none?");
    if (batches_ == 0) {
      refuse_option("batch_size",
                    {batch_size, " is above the ", samples,
                     " samples of an epoch, and partial_batch::drop leaves none: lower it, or "
                     "take partial_batch::keep"});
    }
  }

  /// How many samples an epoch has.
  [[nodiscard]] std::uint64_t samples() const noexcept { return samples_; }
  /// How many samples a batch has, except perhaps the last.
  [[nodiscard]] std::size_t batch_size() const noexcept { return batch_size_; }

  /// Batches an epoch.
  [[nodiscard]] std::uint64_t batches() const noexcept { return batches_; }

  /// The batch at a position; `position.batch` must be below `batches()`.
  [[nodiscard]] batch_info at(const batch_position& position) const noexcept {
    const std::uint64_t left = samples_ - position.batch * batch_size_;
    const auto valid = left < batch_size_ ? static_cast<std::size_t>(left) : batch_size_;
    const std::size_t size = last_ == partial_batch::pad ? batch_size_ : valid;
    return {position.epoch, position.batch, size, valid};
  }

  /// `position`, but the start of the next epoch where it is the one after an epoch's last batch.
  [[nodiscard]] batch_position normal(const batch_position& position) const noexcept {
    const bool is_end = position.batch == batches() && position.epoch < max_epochs;
    return is_end ? batch_position{position.epoch + 1, 0} : position;
  }

  /// The number of batches from `from` to the start of epoch `last_epoch`, not included. Throws
  /// `option_error` when `from` is after it, names no batch, or the epochs do not fit 32 bits (the
  /// key of the random bits holds no more).
  [[nodiscard]] std::uint64_t count(const batch_position& from, std::uint64_t last_epoch) const {
    const std::uint64_t per_epoch = batches();
    if (last_epoch > max_epochs) {
      refuse_option("epochs", {"the end, epoch ", last_epoch, ", is above 2^32"});
    }
    if (from.epoch > last_epoch || (from.batch != 0 && from.epoch == last_epoch)) {
      refuse_option("epochs", {"cannot start at batch ", from.batch, " of epoch ", from.epoch,
                               ": the range ends before epoch ", last_epoch});
    }
    if (from.batch >= per_epoch) {
      refuse_option("epochs", {"there is no batch ", from.batch, ": an epoch has ", per_epoch,
                               ", counted from 0"});
    }
    const std::uint64_t epochs = last_epoch - from.epoch;
    if (epochs != 0 && per_epoch > (std::numeric_limits<std::uint64_t>::max)() / epochs) {
      refuse_option("epochs",
                    {epochs, " epochs of ", per_epoch, " batches are more than 64 bits count"});
    }
    return epochs * per_epoch - from.batch;
  }

 private:
  static constexpr std::uint64_t max_epochs = std::uint64_t{1} << 32;

  std::uint64_t samples_;
  std::size_t batch_size_;
  partial_batch last_;
  std::uint64_t batches_;
};

/// Gives a batch of the plan the number of samples that its order says, where it says one.
template <epoch_order Order>
void cut_batch([[maybe_unused]] const Order& order, [[maybe_unused]] batch_info& batch) noexcept {
  if constexpr (order_of_batches<Order>) {
    batch.size = batch.valid_size = order.batch_extent(batch.batch);
  }
}

/// The dataset indices of the samples of `batch` from its place `begin` on, in the `order` of its
/// epoch. After the end of the epoch (`partial_batch::pad`) come those of its start.
template <epoch_order Order>
void pick_samples(const Order& order, const epoch_plan& plan, const batch_info& batch,
                  std::size_t begin, std::span<std::uint64_t> out) noexcept {
  // Neither sum may wrap, whatever the size: a batch starts before the end of the epoch.
  std::uint64_t k = batch.batch * plan.batch_size();
  const std::uint64_t left = plan.samples() - k;
  k = begin < left ? k + begin : (begin - left) % plan.samples();
  while (!out.empty()) {
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), plan.samples() - k));
    order.fill(k, out.first(count));
    out = out.subspan(count);
    k = 0;  // at the end of the epoch, if not of the batch
  }
}

/// The samples of a chunk where each worker gets two of a batch, so that all help the oldest batch
/// and none waits long for the last chunk.
inline std::size_t chunk_per_worker(const loader_options& options) noexcept {
  if (options.workers <= 1) return options.batch_size;
  return (options.batch_size + 2 * options.workers - 1) / (2 * options.workers);
}

/// `chunk` samples, within the limits of a batch and of a claim.
inline std::size_t clamp_chunk(std::size_t chunk, std::size_t batch) noexcept {
  constexpr std::size_t chunks = most_chunks;
  chunk = (std::max)(chunk, (batch + chunks - 1) / chunks);
  return (std::min)(chunk, batch);
}

/// The most samples that a worker claims at a time: `chunk_per_worker`, but at least a page of
/// bytes, so that a claim costs little beside its work where reading is no more than copying.
inline std::size_t chunk_size_of(const loader_options& options, std::size_t sample_bytes) noexcept {
  constexpr std::size_t least_bytes = 4096;
  const std::size_t page = (least_bytes + sample_bytes - 1) / sample_bytes;
  const std::size_t chunk = options.tuning.chunk == 0 ? (std::max)(chunk_per_worker(options), page)
                                                      : options.tuning.chunk;
  return clamp_chunk(chunk, options.batch_size);
}

/// The fewest samples that a worker claims at a time: `chunk_per_worker`, where reading a sample
/// takes longer than its bytes say.
inline std::size_t min_chunk(const loader_options& options, std::size_t sample_bytes) noexcept {
  if (options.tuning.chunk != 0) return chunk_size_of(options, sample_bytes);
  return clamp_chunk(chunk_per_worker(options), options.batch_size);
}

/// How many samples a worker claims at a time, batch by batch. As few as share a batch evenly among
/// the workers, where reading a sample takes long; more, where a claim and waking another worker
/// would cost more than reading does. The bytes of a sample say little about that: a label from a
/// database takes longer than an image that lies in memory. So the opener's chunk of every eighth
/// batch is timed, and chunks are short until the first one has been.
///
/// No batch depends on it: only which worker reads what.
class chunk_length {
 public:
  using nanoseconds = std::chrono::nanoseconds;

  /// For samples of so many bytes.
  chunk_length(const loader_options& options, std::size_t sample_bytes) noexcept
      : batch_size_(options.batch_size),
        least_(min_chunk(options, sample_bytes)),
        most_(chunk_size_of(options, sample_bytes)) {}

  /// The most samples of a chunk.
  [[nodiscard]] std::size_t most() const noexcept { return most_; }

  /// The most chunks that a batch is cut into.
  [[nodiscard]] std::uint32_t chunks() const noexcept { return chunks_of(least_); }
  /// The number of the first chunk of a batch that is cut into chunks of `samples` samples. The
  /// last chunk of every batch has the number `chunks() - 1`.
  [[nodiscard]] std::uint32_t first_chunk(std::size_t samples) const noexcept {
    return chunks() - chunks_of(samples);
  }

  /// How many samples a chunk of the batch has that is opened now.
  [[nodiscard]] std::size_t samples() const noexcept {
    const std::uint64_t each = sample_time_.load(std::memory_order_relaxed);
    if (each == unknown) return least_;
    return std::clamp(static_cast<std::size_t>(worth_a_claim / each), least_, most_);
  }

  /// Whether the opener's chunk of the batch with this number is to be timed: a look at the clock
  /// for each batch would cost a hundredth of the smallest ones.
  [[nodiscard]] bool is_timed(std::uint64_t batch) const noexcept {
    constexpr std::uint64_t every = 8;
    return least_ != most_ &&
           (batch % every == 0 || sample_time_.load(std::memory_order_relaxed) == unknown);
  }

  /// So many samples were read in that time. From any thread.
  void note(std::size_t samples, nanoseconds time) noexcept {
    // A reader that lost its core for a while is no slow read: the time grows step by step.
    constexpr std::uint64_t most_growth = 16;
    const auto each = static_cast<std::uint64_t>(std::max<std::int64_t>(1, time.count())) /
                      std::max<std::uint64_t>(1, samples);
    const std::uint64_t before = sample_time_.load(std::memory_order_relaxed);
    const std::uint64_t limit = before == unknown ? each : before * most_growth;
    sample_time_.store(std::clamp<std::uint64_t>(each, 1, std::max<std::uint64_t>(1, limit)),
                       std::memory_order_relaxed);
  }

 private:
  // What waking a worker costs, measured on a virtual machine.
  static constexpr std::uint64_t worth_a_claim = 10'000;
  static constexpr std::uint64_t unknown = 0;

  [[nodiscard]] std::uint32_t chunks_of(std::size_t chunk) const noexcept {
    return static_cast<std::uint32_t>((batch_size_ + chunk - 1) / chunk);
  }

  std::size_t batch_size_;
  std::size_t least_;
  std::size_t most_;
  // Nanoseconds; 0 until a chunk has been timed. Relaxed: it says nothing about other memory, and
  // where two readers write at once either value will do.
  std::atomic<std::uint64_t> sample_time_{unknown};
};

/// Whether anything is chosen while the loop runs; for resolved options, see `resolved`.
inline bool has_automatic(const loader_options& options) noexcept {
  return options.workers != 0 &&
         (options.tuning.cpus != automatic || options.prefetch == automatic);
}
/// How many workers take part at first; for resolved options.
inline std::size_t first_workers(const loader_options& options) noexcept {
  return options.tuning.cpus != automatic ? 1 : options.workers;
}

/// The batches that are read ahead where the options name no number.
inline std::size_t usual_prefetch(const loader_options& options, std::size_t slot_bytes) noexcept {
  if (options.workers == 0) return 1;  // one is read into while the other is copied
  // Many small batches a wake-up, few large ones: a hand-off costs the same for both.
  constexpr std::size_t cached_bytes = std::size_t{1} << 19;
  const std::size_t cached =
      std::min<std::size_t>(9, cached_bytes / std::max<std::size_t>(1, slot_bytes));
  const std::size_t wanted = (std::max)(cached, std::max<std::size_t>(2, options.workers) + 1);
  return std::min<std::size_t>(wanted, most_slots) - 1;  // 4096 workers want one more
}

/// How many host slots the resolved options ask for: one at the consumer, the others read ahead.
inline std::size_t wanted_slots(const loader_options& options, std::size_t slot_bytes) noexcept {
  if (options.prefetch != 0 && options.prefetch != automatic) return options.prefetch + 1;
  const std::size_t usual = usual_prefetch(options, slot_bytes);
  if (options.prefetch == 0 || options.workers == 0) return usual + 1;
  return std::min<std::size_t>(2 * usual + 1, most_slots);
}

/// What the host slots are made of.
inline memory_kind slot_memory(const loader_options& options) noexcept {
  if (!options.pinned) return memory_kind::pageable;
  return options.memory.pageable_fallback ? memory_kind::pinned_or_pageable : memory_kind::pinned;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
