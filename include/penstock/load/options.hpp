// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <stop_token>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/faults/error_policy.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/observe/trace_recorder.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// How many bits of the word that workers claim from count the chunks of a batch.
inline constexpr std::uint32_t claim_chunk_bits = 20;
/// How many bits of it name the host slot.
inline constexpr std::uint32_t claim_slot_bits = 12;

/// The most chunks that a batch is cut into. Half the range: a claim that has to wait counts on as
/// well, one for each waiting worker.
inline constexpr std::uint32_t most_chunks = 1U << (claim_chunk_bits - 1);
/// The most host slots of a loader.
inline constexpr std::uint32_t most_slots = 1U << claim_slot_bits;

}  // namespace detail

/// What to do with a last batch that is not full.
enum class partial_batch {
  keep,  ///< a shorter last batch; DataLoader(drop_last=False)
  drop,  ///< no such batch; DataLoader(drop_last=True)
  pad,   ///< padded with samples from the start of the epoch; `valid()` excludes the padding
};

/// What to do when the host slots exceed the memory budget.
enum class budget_action {
  refuse,       ///< throws `pinned_budget_exceeded`
  fewer_slots,  ///< takes as many as fit, at least one, with which nothing is read ahead
};

/// What a consumer gets that asks for a batch while every slot is held as a lease. A lease that has
/// never left the consumer's thread can't come back while that thread waits. The library can't tell
/// which ones have left it, so the program has to say.
enum class held_action {
  fail,  ///< throws `leases_exhausted`
  wait,  ///< waits until another thread ends a lease; forever if none does
};

/// Where the workers run. Not touched: the consumer, and the mask that the process has.
enum class worker_placement {
  /// On those cores of the host's NUMA node next to the device that the process may run on;
  /// anywhere if there are none, or if they are all that it may run on.
  near_device,
  anywhere,  ///< wherever the process may
};

/// Of `loader_options::workers` and `prefetch`: chosen and changed while the loop runs, from what
/// its statistics show; see `loader::tuning`. Of `tuning.cpus`: what the process may use.
inline constexpr std::size_t automatic = (std::numeric_limits<std::size_t>::max)();

/// `loader_options::ahead`: prefetch hints to the dataset. See docs/stores.md.
struct loader_ahead_options {
  /// How far ahead of the workers the dataset gets prefetch hints, in stored bytes; 0: none. At
  /// most its `prefetch_capacity`; a cache may plan farther ahead than it fetches. Changes no batch
  /// and takes no slots. A thread of the loader calls the dataset; the destructor joins it, waiting
  /// at most `faults.timeout` if that is set. Refused with a sampler that counts draws, as
  /// `prioritized` does: a hint of a step would be its draw.
  std::uint64_t bytes = 0;
};

/// `loader_options::faults`: what happens when a read fails or hangs. See docs/faults.md.
struct loader_fault_options {
  /// What to do when a sample can't be read. By default the exception ends the range.
  error_policy on_error = {};

  /// A read, a sampler's `order`, or the lengths of a batch of ragged samples: what takes longer is
  /// reported while it still hangs, and again each time that its time has doubled; 0: never. Costs
  /// a thread that wakes four times within this time, at least once a second, and three uncontended
  /// locks a chunk.
  std::chrono::milliseconds stall_warning{0};

  /// One of these that takes longer is given up: the consumer gets a `read_timeout`, and the loader
  /// gives no batches any more; 0: waits forever. Needs workers. The destructor still waits for a
  /// dataset that the loader does not own; for one that it owns the thread is detached, keeps its
  /// memory, and `abandoned_readers()` counts it.
  std::chrono::milliseconds timeout{0};

  /// Gets the reports of `stall_warning` and `timeout`, on a thread of the loader's, or on the one
  /// that destroys the loader: it must not take a lock that is held there, nor destroy the loader.
  /// Default: lines on stderr. What it throws the consumer gets, and the loader gives no batches
  /// any more.
  std::function<void(const stalled_read&)> on_stall = {};
};

/// `loader_options::memory`: how much memory the host slots take, and of which kind. See
/// docs/tuning.md.
struct loader_memory_options {
  /// The most memory that the host slots may take, pinned or not: `memory_budget::bytes(n)`, or
  /// `memory_budget::share(s)` of what the process may still use, cgroup limits counted. Loaders
  /// with copies of one budget share it. Default: a quarter of what the process may still use.
  std::optional<memory_budget> budget = {};

  /// What to do when the host slots exceed the budget. `footprint()` says how many there are.
  budget_action when_over_budget = budget_action::refuse;

  /// What to do when memory can't be page-locked: false throws `out_of_memory`, true continues with
  /// ordinary memory, slower, and `footprint().pinned` is false. The CPU device always continues.
  bool pageable_fallback = false;

  /// The values that a batch has room for in each ragged field; 0: as the dataset says, else
  /// `batch_size` times its longest sample. A batch with more is a `ragged_overflow` at its turn;
  /// no sample is cut. Refused where the record has no ragged field. See docs/ragged.md.
  std::size_t values_per_batch = 0;
};

/// `loader_options::observe`: what is recorded about the batches.
struct loader_observe_options {
  /// Whether batches say which samples they have: `batch.indices()`, `batch.substituted()`. Takes
  /// 16 bytes for each sample of a slot.
  bool indices = false;

  /// Records what each batch goes through, see `trace_recorder`. Null: nothing is recorded. It is
  /// the program's, and should outlive the loop.
  trace_recorder* trace = nullptr;
};

/// `loader_options::tuning`: how the work is spread over threads. No batch depends on it. See
/// docs/tuning.md.
struct loader_tuning_options {
  /// The most workers that `workers = automatic` takes, at least 1: that many threads are started.
  /// `automatic`: the cores of the affinity mask and of the cgroup's quota, less one for the step.
  /// For reads that wait and compute little, name more. Refused beside a number of workers.
  std::size_t cpus = automatic;

  /// Samples that a worker claims at a time; 0 chooses: few enough that all workers share a batch,
  /// and more where samples are small and, as measured meanwhile, quickly read.
  std::size_t chunk = 0;

  /// Where the workers run: by default next to the device, within the mask of the thread that makes
  /// the loader; what a dataset starts inherits it. A system that refuses is no error:
  /// `footprint().workers` says where they run, and why.
  worker_placement placement = worker_placement::near_device;
};

/// The options of a `loader`. Bad values throw `option_error` at construction, which names the
/// option by its path: `workers`, `faults.timeout`.
///
///     ps::loader_options{.batch_size = 64, .workers = 4, .faults = {.timeout = 10s}}
///
/// What has a counterpart in PyTorch's DataLoader stands first, and after it the groups, by their
/// names. docs/from_pytorch.md lists all of them.
struct loader_options {
  /// Samples a batch. DataLoader(batch_size).
  std::size_t batch_size = 1;

  /// Threads that read samples; 0 reads on the consumer's thread, inside `++`. They share the
  /// dataset, and all help the batch that is needed first. `automatic`: as many as the loop needs,
  /// at most `tuning.cpus`; the others sleep. A loop that only polls `try_next` never waits, and is
  /// taken for one that needs no more. DataLoader(num_workers).
  std::size_t workers = 1;

  /// Batches that are read ahead of the consumer, in all and not for each worker, in prefetch + 1
  /// slots; without workers none. 0 chooses: at least max(2, workers), up to 8 small ones.
  /// `automatic`: starts with that and may go to twice as many, whose slots it takes.
  /// DataLoader(prefetch_factor) * num_workers.
  std::size_t prefetch = 0;

  /// The key of the per-sample random bits. DataLoader(generator), worker_init_fn.
  std::uint64_t seed = 0;

  /// DataLoader(drop_last).
  partial_batch last_batch = partial_batch::keep;

  /// Whether batches come in the sampler's order; false delivers the one that is complete first,
  /// and gives up the exact order. DataLoader(in_order).
  bool in_order = true;

  /// Whether batches lie in page-locked memory. DataLoader(pin_memory).
  bool pinned = true;

  /// What to do when the consumer asks for a batch while it, or threads that it has moved leases
  /// to, hold every slot. `wait` is for leases that end on other threads; a stop request ends the
  /// wait.
  held_action when_held = held_action::fail;

  /// Once its stop is requested, from any thread, no further chunk is started. As soon as those
  /// under way are read, all workers end, and the consumer, also one that waits, gets `cancelled`,
  /// then and at every later step. The shorter `tuning.chunk`, the sooner.
  std::stop_token stop = {};

  /// Prefetch hints to the dataset.
  loader_ahead_options ahead = {};
  /// Reads that fail or hang. DataLoader(timeout), which gives up waiting for a batch.
  loader_fault_options faults = {};
  /// How much memory the host slots take, and of which kind.
  loader_memory_options memory = {};
  /// What is recorded about the batches.
  loader_observe_options observe = {};
  /// How the work is spread over threads.
  loader_tuning_options tuning = {};
};

namespace detail {

/// The most threads of a loader.
inline constexpr std::size_t most_workers = 4096;

/// Throws `option_error` on a value that no loader can work with.
inline void require_valid(const loader_options& options) {
  if (options.batch_size == 0) refuse_option("batch_size", {"must be at least 1, is 0"});
  const auto require_workers = [](const char* name, std::size_t workers) {
    if (workers == automatic || workers <= most_workers) return;
    refuse_option(name, {workers, " is above ", most_workers});
  };
  require_workers("workers", options.workers);
  const std::size_t cpus = options.tuning.cpus;
  require_workers("tuning.cpus", cpus);
  if (cpus == 0) refuse_option("tuning.cpus", {"must be at least 1, one worker, is 0"});
  if (cpus != automatic && options.workers != automatic) {
    refuse_option("tuning.cpus", {"is the cap of workers = automatic, but workers is ",
                                  options.workers, ": leave one of them out"});
  }
  if (options.prefetch != automatic && options.prefetch > most_slots - 1) {
    refuse_option("prefetch", {options.prefetch, " is above ", most_slots - 1});
  }
  const loader_fault_options& faults = options.faults;
  require_valid(faults.on_error);
  const auto require_time = [](const char* name, std::chrono::milliseconds time) {
    if (time.count() >= 0) return;
    refuse_option(name, {"must not be negative, is ", time.count(), " ms"});
  };
  require_time("faults.stall_warning", faults.stall_warning);
  require_time("faults.timeout", faults.timeout);
  if (faults.timeout.count() > 0 && options.workers == 0) {
    refuse_option("faults.timeout",
                  {"needs a worker: a read on the consumer's thread can't be left"});
  }
  if (faults.timeout.count() > 0 && faults.stall_warning >= faults.timeout) {
    refuse_option("faults.stall_warning",
                  {"must be shorter than timeout, or there is never a warning: ",
                   faults.stall_warning.count(), " ms and ", faults.timeout.count(), " ms"});
  }
  if (faults.on_stall && faults.stall_warning.count() == 0 && faults.timeout.count() == 0) {
    refuse_option("faults.on_stall", {"is never called without stall_warning or timeout: set one"});
  }
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
