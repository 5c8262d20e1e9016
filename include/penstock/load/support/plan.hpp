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
#include <penstock/load/detail/tuner.hpp>
#include <penstock/load/options.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock/order/sampler.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns `options` with `workers = automatic` resolved. In that case, `workers` and
/// `tuning.max_workers` are set to the maximum number of workers. `usable` is the number of usable
/// cores, one of which is reserved for the step. Options that specify a number of workers are
/// returned unchanged.
[[nodiscard]] inline loader_options resolved(loader_options options, std::size_t usable) {
  if (!options.workers.is_automatic()) return options;
  if (options.tuning.max_workers == automatic) {
    options.tuning.max_workers = std::clamp<std::size_t>(usable, 2, max_workers + 1) - 1;
  }
  options.workers = options.workers.up_to(options.tuning.max_workers.value());
  return options;
}
/// Returns `options` with `automatic` resolved for the cores of this machine. Makes system calls
/// and reads files.
[[nodiscard]] inline loader_options resolved(const loader_options& options) {
  const bool needs_cpus = options.workers.is_automatic() && options.tuning.max_workers == automatic;
  return resolved(options, needs_cpus ? options.workers.tuning()->usable_cpus() : 1);
}

/// Throws `option_error` if the options conflict with the sampler, which may require a batch size
/// or a treatment of the last batch, or may not allow hints.
template <sampler Sampler>
void require_options_of(const Sampler& order, const loader_options& options) {
  using global = std::remove_cvref_t<decltype(global_sampler(order))>;
  if constexpr (requires { requires global::counts_draws; }) {
    if (options.lookahead_bytes != 0) {
      throw_option_error("lookahead_bytes",
                         {"must be 0, but is ", options.lookahead_bytes,
                          ": hints would draw steps of the sampler before their weights are set"});
    }
  }
  if constexpr (requires { order.keeps_remainder(); }) {
    if (order.keeps_remainder() && options.last_batch == last_batch::drop) {
      throw_option_error("last_batch",
                         {"must not be drop if the sampler has remainder_policy::keep, because "
                          "no other rank reads the samples of the short last batch"});
    }
  }
  if constexpr (sampler_of_batches<Sampler>) {
    if (order.batch_size() == options.batch_size) return;
    throw_option_error("batch_size",
                       {"must be the sampler's ", order.batch_size(),
                        " (sharded: global_batch / world), but is ", options.batch_size});
  } else if constexpr (sampler_of_steps<Sampler>) {
    const std::size_t step = order.step_size();
    if (step == 0 || step == options.batch_size) return;
    throw_option_error("batch_size", {"must be the batch_size of the sampler's options, ", step,
                                      ", but is ", options.batch_size});
  }
}

/// The division of an epoch of `samples` samples into batches. Stateless.
class epoch_plan {
 public:
  /// Throws `empty_dataset` for 0 samples, and `option_error` if the samples do not form a batch.
  epoch_plan(std::uint64_t samples, std::size_t batch_size, last_batch last)
      : epoch_plan(samples, batch_size, last, samples) {}

  /// Creates the plan for a rank that has `samples` of the `total` samples. A rank without samples
  /// has no batches. Throws `empty_dataset` if `total` is 0, and `option_error` if the samples do
  /// not form a batch.
  epoch_plan(std::uint64_t samples, std::size_t batch_size, last_batch last, std::uint64_t total)
      : samples_(samples),
        batch_size_(batch_size),
        last_(last),
        batches_(samples / batch_size +
                 (last != last_batch::drop && samples % batch_size != 0 ? 1 : 0)) {
    if (total == 0)
      throw empty_dataset(
          "loader: an epoch has 0 samples: the dataset is empty, or its sampler draws no samples");
    if (batches_ == 0 && samples != 0) {
      throw_option_error("batch_size",
                         {batch_size, " is above the ", samples,
                          " samples of an epoch, and last_batch::drop leaves no batch: "
                          "lower batch_size, or choose last_batch::keep"});
    }
  }

  /// Returns the number of samples in an epoch.
  [[nodiscard]] std::uint64_t samples() const noexcept { return samples_; }
  /// Returns the number of samples in a batch. The last batch may have fewer.
  [[nodiscard]] std::size_t batch_size() const noexcept { return batch_size_; }

  /// Returns the number of batches in an epoch.
  [[nodiscard]] std::uint64_t batches() const noexcept { return batches_; }

  /// Returns the batch at a position. `position.batch` must be less than `batches()`.
  [[nodiscard]] batch_info at(const batch_position& position) const noexcept {
    const std::uint64_t left = samples_ - position.batch * batch_size_;
    const auto valid = left < batch_size_ ? static_cast<std::size_t>(left) : batch_size_;
    const std::size_t size = last_ == last_batch::pad ? batch_size_ : valid;
    return {position.epoch, position.batch, size, valid};
  }

  /// Returns `position`, or the start of the next epoch if `position` is the end of an epoch.
  [[nodiscard]] batch_position normal(const batch_position& position) const noexcept {
    const bool is_end =
        batches() != 0 && position.batch == batches() && position.epoch < max_epochs;
    return is_end ? batch_position{position.epoch + 1, 0} : position;
  }

  /// Returns the number of batches from `from` up to the start of epoch `last_epoch`. Throws
  /// `option_error` if `from` is later, if an epoch has no batch `from.batch`, or if the epochs
  /// exceed 32 bits, which is the size of an epoch in the random key.
  [[nodiscard]] std::uint64_t count(const batch_position& from, std::uint64_t last_epoch) const {
    const std::uint64_t per_epoch = batches();
    if (last_epoch > max_epochs) {
      throw_option_error("epochs", {"the end, epoch ", last_epoch, ", is above 2^32"});
    }
    if (from.epoch > last_epoch || (from.batch != 0 && from.epoch == last_epoch)) {
      throw_option_error("epochs", {"cannot start at batch ", from.batch, " of epoch ", from.epoch,
                                    ": the range ends before epoch ", last_epoch});
    }
    if (per_epoch == 0 && from.batch == 0) return 0;
    if (from.batch >= per_epoch) {
      throw_option_error("epochs", {"there is no batch ", from.batch, ": an epoch has ", per_epoch,
                                    ", counted from 0"});
    }
    const std::uint64_t epochs = last_epoch - from.epoch;
    if (epochs != 0 && per_epoch > (std::numeric_limits<std::uint64_t>::max)() / epochs) {
      throw_option_error("epochs", {epochs, " epochs of ", per_epoch, " batches exceed 64 bits"});
    }
    return epochs * per_epoch - from.batch;
  }

 private:
  static constexpr std::uint64_t max_epochs = std::uint64_t{1} << 32;

  std::uint64_t samples_;
  std::size_t batch_size_;
  last_batch last_;
  std::uint64_t batches_;
};

/// If `order` specifies the sizes of batches, sets the size of `batch` accordingly.
template <epoch_order Order>
void cut_batch([[maybe_unused]] const Order& order, [[maybe_unused]] batch_info& batch) noexcept {
  if constexpr (variable_batch_order<Order>) {
    batch.size = batch.valid_size = order.batch_size(batch.batch);
  }
}

/// Sets `out` to the dataset indices of the samples in `batch`, starting at position `begin`,
/// according to `order`. With `last_batch::pad`, the last samples of the epoch are followed by the
/// first samples.
template <epoch_order Order>
void pick_samples(const Order& order, const epoch_plan& plan, const batch_info& batch,
                  std::size_t begin, std::span<std::uint64_t> out) noexcept {
  // Neither sum can overflow, because a batch starts before the end of the epoch.
  std::uint64_t k = batch.batch * plan.batch_size();
  const std::uint64_t left = plan.samples() - k;
  k = begin < left ? k + begin : (begin - left) % plan.samples();
  while (!out.empty()) {
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), plan.samples() - k));
    order.fill(k, out.first(count));
    out = out.subspan(count);
    k = 0;  // The epoch has ended, unless the batch has ended.
  }
}

/// Returns the number of samples in a chunk if each worker claims two chunks of a batch. With this
/// number, all workers help with the oldest batch, and wait only briefly for its last chunk.
inline std::size_t chunk_per_worker(const loader_options& options) noexcept {
  const std::size_t workers = options.workers.value();
  if (workers <= 1) return options.batch_size;
  return (options.batch_size + 2 * workers - 1) / (2 * workers);
}

/// Returns `chunk`, limited to the size of a batch and to the number of chunks that a claim can
/// count.
inline std::size_t clamp_chunk(std::size_t chunk, std::size_t batch) noexcept {
  constexpr std::size_t chunks = max_chunks;
  chunk = (std::max)(chunk, (batch + chunks - 1) / chunks);
  return (std::min)(chunk, batch);
}

/// Returns the maximum number of samples that a worker claims at a time, which is
/// `chunk_per_worker` but at least a page of bytes. A claim then costs little compared with the
/// work, even if reads only copy.
inline std::size_t chunk_size_of(const loader_options& options, std::size_t sample_bytes) noexcept {
  constexpr std::size_t min_bytes = 4096;
  const std::size_t page = (min_bytes + sample_bytes - 1) / sample_bytes;
  const std::size_t chunk = options.tuning.chunk == 0 ? (std::max)(chunk_per_worker(options), page)
                                                      : options.tuning.chunk;
  return clamp_chunk(chunk, options.batch_size);
}

/// Returns the minimum number of samples that a worker claims at a time, which is
/// `chunk_per_worker`. Used for samples that take longer to read than their size suggests.
inline std::size_t min_chunk(const loader_options& options, std::size_t sample_bytes) noexcept {
  if (options.tuning.chunk != 0) return chunk_size_of(options, sample_bytes);
  return clamp_chunk(chunk_per_worker(options), options.batch_size);
}

/// Chooses the number of samples per claim for each batch. If samples take long to read, chunks are
/// short, so that the workers share a batch evenly. Chunks are longer if a claim and the wake-up of
/// another worker would cost more than the read.
///
/// The size of a sample does not predict its read time, because a label from a database takes
/// longer to read than an image in memory. Therefore the opener's chunk of every eighth batch is
/// timed. Chunks are short until the first chunk has been timed.
///
/// The choice does not affect the contents of batches, only which worker reads a sample.
class chunk_length {
 public:
  /// Creates the choice for samples of `sample_bytes` bytes. `ten_milliseconds` is 10 ms in ticks.
  chunk_length(const loader_options& options, std::size_t sample_bytes,
               std::uint64_t ten_milliseconds) noexcept
      : batch_size_(options.batch_size),
        // 10 us is the cost of waking a worker, measured on a virtual machine.
        min_chunk_time_(ten_milliseconds / 1000),
        min_(min_chunk(options, sample_bytes)),
        max_(chunk_size_of(options, sample_bytes)) {}

  /// Returns the maximum number of samples in a chunk.
  [[nodiscard]] std::size_t max_samples() const noexcept { return max_; }

  /// Returns the maximum number of chunks in a batch.
  [[nodiscard]] std::uint32_t chunks() const noexcept { return chunks_of(min_); }
  /// Returns the index of the first chunk in a batch with chunks of `samples` samples. The index of
  /// the last chunk is always `chunks() - 1`.
  [[nodiscard]] std::uint32_t first_chunk(std::size_t samples) const noexcept {
    return chunks() - chunks_of(samples);
  }

  /// Returns the number of samples in a chunk of the batch that is opened next.
  [[nodiscard]] std::size_t samples() const noexcept {
    const std::uint64_t each = sample_time_.load(std::memory_order_relaxed);
    if (each == unknown) return min_;
    return std::clamp(static_cast<std::size_t>(min_chunk_time_ / each), min_, max_);
  }

  /// Returns true if the opener's chunk of batch `batch` is timed. Timing every batch would slow
  /// down the smallest batches by a hundredth.
  [[nodiscard]] bool is_timed(std::uint64_t batch) const noexcept {
    constexpr std::uint64_t every = 8;
    return min_ != max_ &&
           (batch % every == 0 || sample_time_.load(std::memory_order_relaxed) == unknown);
  }

  /// Records that `samples` samples were read in `ticks` ticks. Any thread may call this.
  void record(std::size_t samples, std::uint64_t ticks) noexcept {
    // Limits each increase of the time, because a reader that was preempted only appears to be
    // slow.
    constexpr std::uint64_t max_growth = 16;
    const std::uint64_t each = ticks / std::max<std::uint64_t>(1, samples);
    const std::uint64_t before = sample_time_.load(std::memory_order_relaxed);
    const std::uint64_t limit = before == unknown ? each : before * max_growth;
    sample_time_.store(std::clamp<std::uint64_t>(each, 1, std::max<std::uint64_t>(1, limit)),
                       std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t unknown = 0;

  [[nodiscard]] std::uint32_t chunks_of(std::size_t chunk) const noexcept {
    return static_cast<std::uint32_t>((batch_size_ + chunk - 1) / chunk);
  }

  std::size_t batch_size_;
  std::uint64_t min_chunk_time_;  // in ticks
  std::size_t min_;
  std::size_t max_;
  // The read time in ticks, or 0 until a chunk has been timed. Relaxed ordering suffices, because
  // the value does not order other memory. If two readers write concurrently, either value is
  // valid.
  std::atomic<std::uint64_t> sample_time_{unknown};
};

/// Returns true if an option is tuned while the loop runs. `options` must be resolved (see
/// `resolved`).
inline bool has_automatic(const loader_options& options) noexcept {
  return options.workers != 0 &&
         (options.workers.is_automatic() || options.prefetch.is_automatic());
}
/// Returns the number of workers that are active initially. `options` must be resolved.
inline std::size_t first_workers(const loader_options& options) noexcept {
  return options.workers.is_automatic() ? 1 : options.workers.value();
}

/// Returns the default number of batches to read ahead.
inline std::size_t default_prefetch(const loader_options& options,
                                    std::size_t slot_bytes) noexcept {
  if (options.workers == 0) return 1;  // one slot is refilled while another is copied
  // A hand-off costs the same for all sizes, so a wake-up covers many small batches or few large
  // batches.
  constexpr std::size_t cached_bytes = std::size_t{1} << 19;
  const std::size_t cached =
      std::min<std::size_t>(9, cached_bytes / std::max<std::size_t>(1, slot_bytes));
  const std::size_t wanted =
      (std::max)(cached, std::max<std::size_t>(2, options.workers.value()) + 1);
  return std::min<std::size_t>(wanted, max_slots) - 1;  // 4096 workers would need one more slot
}

/// Returns the number of host slots that the resolved options request. One slot is for the
/// consumer, and the others are for reading ahead.
inline std::size_t wanted_slots(const loader_options& options, std::size_t slot_bytes) noexcept {
  const bool is_number = options.prefetch != 0 && !options.prefetch.is_automatic();
  if (is_number) return options.prefetch.value() + 1;
  const std::size_t usual = default_prefetch(options, slot_bytes);
  if (options.prefetch == 0 || options.workers == 0) return usual + 1;
  return std::min<std::size_t>(2 * usual + 1, max_slots);
}

/// Returns the kind of memory for the host slots.
inline memory_kind slot_memory(const loader_options& options) noexcept {
  if (!options.pinned) return memory_kind::pageable;
  return options.memory.pageable_fallback ? memory_kind::pinned_or_pageable : memory_kind::pinned;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
