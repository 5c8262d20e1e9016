// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <stop_token>
#include <string>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/faults/error_policy.hpp>
#include <penstock/faults/stalled_read.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/observe/trace_recorder.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// How many bits of the word that workers claim from count the runs of a batch.
inline constexpr std::uint32_t claim_run_bits = 20;
/// How many bits of it name the host slot.
inline constexpr std::uint32_t claim_slot_bits = 12;

/// The most runs that a batch is cut into. Half the range: a claim that has to wait counts on as
/// well, one for each waiting worker.
inline constexpr std::uint32_t most_runs = 1U << (claim_run_bits - 1);
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
/// its statistics show; see `loader::tuning`. Of `cpus`: what the process may use.
inline constexpr std::size_t automatic = (std::numeric_limits<std::size_t>::max)();

/// The options of a `loader`. Bad values throw `option_error` at construction.
struct loader_options {
  /// Samples a batch. DataLoader(batch_size).
  std::size_t batch_size = 1;

  /// Threads that read samples; 0 reads on the consumer's thread, inside `++`.
  /// DataLoader(num_workers), but threads: they share the dataset, and all help the batch that is
  /// needed first. `automatic`: as many as the loop needs, at most `cpus`; the others sleep.
  /// A loop that only polls `try_next` never waits, and is taken for one that needs no more.
  std::size_t workers = 1;

  /// The most workers that `workers = automatic` takes, at least 1: that many threads are started.
  /// `automatic`: the cores of the affinity mask and of the cgroup's quota, less one for the step,
  /// also where `placement` binds the workers to some of them. For reads that wait and compute
  /// little, name more. Refused beside a number of workers.
  std::size_t cpus = automatic;

  /// Batches that are read ahead of the consumer, in all and not for each worker; 0 chooses: at
  /// least max(2, workers), and up to 8 while the slots take no more than half a MiB, which stays
  /// in a core's second-level cache. DataLoader(prefetch_factor) * num_workers. Takes prefetch + 1
  /// slots of host memory. Without workers nothing is read ahead. `automatic`: starts with that and
  /// may go to twice as many, whose slots it takes, or those that the budget has room for.
  std::size_t prefetch = 0;

  /// The bytes, as they are stored, that the dataset is told to fetch before workers ask for them;
  /// 0: it is told nothing. For samples that come from a disk or a network: the loader knows what
  /// comes, up to the end of the range and over the ends of epochs, and says so on a thread of its
  /// own, or on the consumer's where there are no workers. A dataset that keeps less is told of
  /// less, and one that needs to know nothing, as what lies in memory, of nothing; `stats().ahead`
  /// says what was told. No batch depends on it, not even where the dataset refuses or is late:
  /// then a worker waits for the sample as without. Takes no slots: the bytes are the system's page
  /// cache or the source's. What keeps samples by when they are used next, as a `cached_store`, is
  /// told further than is fetched, up to this bound and its own. The thread's calls of the dataset
  /// and of the sampler's `order`, which runs beside that of the workers, are waited for by the
  /// loader's destructor; with `timeout` at most so long. No counterpart.
  std::uint64_t read_ahead = 0;

  /// The values that a batch has room for in each ragged field; 0: as the dataset says, else
  /// `batch_size` times its longest sample. Samples are given their places before they are read: a
  /// batch that has more values is a `ragged_overflow` at its turn, and no sample is ever cut. The
  /// room is taken in every slot. The copy to a device ends with the last value of the last ragged
  /// field: the unused room of those before it goes along. Refused where the record has no ragged
  /// field. No counterpart.
  std::size_t values_per_batch = 0;

  /// The key of the per-sample random bits. DataLoader(generator), worker_init_fn.
  std::uint64_t seed = 0;

  /// DataLoader(drop_last).
  partial_batch last_batch = partial_batch::keep;

  /// Whether batches come in the sampler's order; false delivers the one that is complete first,
  /// and gives up the exact order. DataLoader(in_order).
  bool in_order = true;

  /// Whether batches say which samples they have: `batch.indices()`, `batch.substituted()`. Takes
  /// 16 bytes for each sample of a slot. No counterpart.
  bool indices = false;

  /// Whether batches lie in page-locked memory. DataLoader(pin_memory).
  bool pinned = true;

  /// What to do when memory can't be page-locked: false throws `out_of_memory`, true continues with
  /// ordinary memory, slower, and `footprint().pinned` is false. The CPU device always continues
  /// and says so in the same place.
  bool pageable_fallback = false;

  /// Where the workers run: by default next to the device, as the slots lie. Each binds itself at
  /// its start, within the mask of the thread that makes the loader, so torchrun's and numactl's
  /// masks count; what a dataset starts inherits it. A system that refuses is no error.
  /// `footprint().workers` says where they run, and why. No counterpart.
  worker_placement placement = worker_placement::near_device;

  /// Samples that a worker takes at a time; 0 chooses: few enough that all workers share a batch,
  /// and more where samples are small and, as measured meanwhile, quickly read. No batch depends on
  /// it. No counterpart: DataLoader's unit is a batch.
  std::size_t run = 0;

  /// The most memory that the host slots may take, pinned or not: `memory_budget::bytes(n)`, or
  /// `memory_budget::share(s)` of what the process may still use, cgroup limits counted. Loaders
  /// that are given copies of one budget share it. Default: a budget of the loader's own, a quarter
  /// of what the process may still use. No counterpart.
  std::optional<memory_budget> budget = {};

  /// What to do when the host slots exceed the budget. `footprint()` says how many there are.
  budget_action when_over_budget = budget_action::refuse;

  /// What to do when the consumer asks for a batch while it, or threads that it has moved leases
  /// to, hold every slot. `wait` is for leases that end on other threads; a stop request ends the
  /// wait. No counterpart.
  held_action when_held = held_action::fail;

  /// What to do when a sample can't be read. By default the exception ends the range.
  /// DataLoader: always an exception.
  error_policy on_error = {};

  /// A read that takes longer is reported while it still hangs, with its sample, and again each
  /// time that its time has doubled; 0: never. So is a sampler's `order`, with its epoch. Costs a
  /// thread that wakes four times within this time, at least once a second, and three uncontended
  /// locks a run. Time in which the whole process is stopped does not count. No counterpart.
  std::chrono::milliseconds stall_warning{0};

  /// A read, or a sampler's `order`, that takes longer is given up: the consumer gets a
  /// `read_timeout`, and the loader gives no batches any more; 0: waits forever. Needs workers.
  ///
  /// A loader that owns its dataset is then destroyed without waiting for the read. The thread that
  /// hangs is detached, keeps all that it needs alive until the read returns, slots and their
  /// budget included, and `abandoned_readers()` counts it. The thread whose read returns last
  /// destroys dataset, sampler, functions and memory, perhaps while the program's static objects
  /// are destroyed.
  ///
  /// Otherwise the destructor waits for the read and reports it: for a dataset that is referred to
  /// or `borrows`, a sampler that `borrows`, and a `map` function that holds anything and does not
  /// say `static constexpr bool borrows = false`. DataLoader(timeout), which gives up waiting for a
  /// batch.
  std::chrono::milliseconds timeout{0};

  /// Gets the reports of `stall_warning` and `timeout`, on a thread of the loader's; those of reads
  /// that the destructor waits for on the destroying thread, so it must not take a lock that is
  /// held there. Default: the reports are lines on stderr. What it throws ends the range. It must
  /// not destroy the loader.
  std::function<void(const stalled_read&)> on_stall = {};

  /// Once its stop is requested, from any thread, no further run of samples is started. As soon as
  /// those under way are read, all workers end, and the consumer, also one that waits, gets
  /// `cancelled`, then and at every later step. The shorter `run`, the sooner. No counterpart.
  std::stop_token stop = {};

  /// Records what each batch goes through, for a file that shows it: see `trace_recorder`. Null:
  /// nothing is recorded. It is the program's, and should outlive the loop. No counterpart.
  trace_recorder* trace = nullptr;
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
  require_workers("cpus", options.cpus);
  if (options.cpus == 0) refuse_option("cpus", {"must be at least 1, one worker, is 0"});
  if (options.cpus != automatic && options.workers != automatic) {
    refuse_option("cpus", {"is the cap of workers = automatic, but workers is ", options.workers,
                           ": leave one of them out"});
  }
  if (options.prefetch != automatic && options.prefetch > most_slots - 1) {
    refuse_option("prefetch", {options.prefetch, " is above ", most_slots - 1});
  }
  require_valid(options.on_error);
  const auto require_time = [](const char* name, std::chrono::milliseconds time) {
    if (time.count() >= 0) return;
    refuse_option(name, {"must not be negative, is ", time.count(), " ms"});
  };
  require_time("stall_warning", options.stall_warning);
  require_time("timeout", options.timeout);
  if (options.timeout.count() > 0 && options.workers == 0) {
    refuse_option("timeout", {"needs a worker: a read on the consumer's thread can't be left"});
  }
  if (options.timeout.count() > 0 && options.stall_warning >= options.timeout) {
    refuse_option("stall_warning",
                  {"must be shorter than timeout, or there is never a warning: ",
                   options.stall_warning.count(), " ms and ", options.timeout.count(), " ms"});
  }
  if (options.on_stall && options.stall_warning.count() == 0 && options.timeout.count() == 0) {
    refuse_option("on_stall", {"is never called without stall_warning or timeout: set one"});
  }
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
