// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <stop_token>
#include <type_traits>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/faults/error_policy.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/observe/trace_target.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Number of bits of the claim word that count the chunks of a batch.
inline constexpr std::uint32_t claim_chunk_bits = 20;
/// Number of bits of the claim word that identify the host slot.
inline constexpr std::uint32_t claim_slot_bits = 12;

/// The largest number of chunks in a batch: half the range of the chunk bits. A claim that must
/// wait also increments the count, once for each waiting worker.
inline constexpr std::uint32_t max_chunks = 1U << (claim_chunk_bits - 1);
/// The largest number of host slots of a loader.
inline constexpr std::uint32_t max_slots = 1U << claim_slot_bits;

struct loop_tuning;
struct stall_watching;

}  // namespace detail

/// The value of an option that limits the duration of a read; 0 means no limit. Constructing it
/// from a duration refers to the code that watches reads: a program that sets no limit does not
/// compile that code.
class stall_limit {
 public:
  /// Sets no limit.
  constexpr stall_limit() noexcept = default;

  /// Sets a limit of `time`; 0 means no limit.
  template <class Rep, class Period, class Watching = detail::stall_watching>
    requires std::convertible_to<std::chrono::duration<Rep, Period>, std::chrono::milliseconds>
  constexpr stall_limit(std::chrono::duration<Rep, Period> time) noexcept  // NOLINT: implicit
      : time_(time) {
    static_assert(
        requires { sizeof(Watching); },
        "penstock: a timeout for reads needs its implementation: include "
        "<penstock/load/loader.hpp>");
    watching_ = &Watching::code;
  }

  /// Returns the limit in milliseconds; 0 means no limit.
  [[nodiscard]] constexpr std::chrono::milliseconds time() const noexcept { return time_; }

  /// @cond internal
  // The functions that watch reads; null if no limit is set.
  [[nodiscard]] constexpr const detail::stall_watching* watching() const noexcept {
    return time_.count() > 0 ? watching_ : nullptr;
  }
  /// @endcond

 private:
  std::chrono::milliseconds time_{0};
  const detail::stall_watching* watching_ = nullptr;
};

/// The treatment of a last batch that is not full.
enum class last_batch {
  keep,  ///< delivers a shorter last batch; PyTorch: `drop_last=False`
  drop,  ///< omits the last batch if it is not full; PyTorch: `drop_last=True`
  pad,   ///< pads the last batch with the epoch's first samples; `valid()` excludes the padding
};

/// Selects what a loader does if its host slots exceed the memory budget, or if the system refuses
/// to page-lock them.
enum class budget_action {
  refuse,       ///< throws `pinned_budget_exceeded`, or `out_of_memory` for a refusal of the system
  fewer_slots,  ///< uses as many slots as fit, at least one; with one slot nothing is read ahead
};

/// The action when the consumer requests a batch while leases hold every slot. A lease that never
/// left the consumer's thread can't end while that thread waits. The library can't detect which
/// leases are on other threads, so the program specifies the action.
enum class exhausted_action {
  fail,  ///< throws `leases_exhausted`
  wait,  ///< waits until another thread ends a lease, forever if no thread does
};

/// The cores on which the workers run. The consumer and the affinity mask of the process do not
/// change.
enum class worker_affinity {
  /// The cores of the host's NUMA node that is closest to the device, if the process may use them.
  /// The same as `anywhere` if the process may use only cores of that node, or none of its cores.
  near_device,
  anywhere,  ///< all cores that the process may use
};

/// The value of an option that is a number or `automatic`. A negative number is rejected at run
/// time, by the class that owns the option, because a constructor cannot detect constants.
///
/// If `Tuning` is not void, `automatic` refers to the code that tunes the option: a program that
/// only uses numbers does not compile that code. `Tuning` contains the code. `Tuning` is declared
/// before this class, and defined by the header of the class that owns the option.
template <class Tuning>
class tunable_count {
 public:
  /// Makes the number 0.
  constexpr tunable_count() noexcept = default;
  /// Makes a number.
  template <std::integral Number>
  constexpr tunable_count(Number count) noexcept  // NOLINT: implicit, as a number is written
      : value_(static_cast<std::size_t>(count)) {}

  /// Makes a number or `automatic`, chosen at run time.
  template <std::same_as<tunable_count<void>> Count>
  constexpr tunable_count(Count count) noexcept  // NOLINT: implicit, as `automatic` is written
      : value_(count.value()) {
    static_assert(
        requires { sizeof(Tuning); },
        "penstock: automatic needs its implementation: for a loader include "
        "<penstock/load/loader.hpp>, "
        "for a transfer include <penstock/transfer/transfer.hpp>");
    if (count.is_automatic()) tuning_ = Tuning::template code<void>();
  }

  /// Returns the number. Converts a negative number, and `automatic`, to a value above every
  /// accepted number.
  [[nodiscard]] constexpr std::size_t value() const noexcept { return value_; }
  /// Returns true for `automatic`.
  [[nodiscard]] constexpr bool is_automatic() const noexcept {
    if constexpr (std::is_void_v<Tuning>) return value_ == no_number;
    return tuning_ != nullptr;
  }

  friend constexpr bool operator==(const tunable_count& a, const tunable_count& b) noexcept {
    return a.value_ == b.value_;
  }

  /// @cond internal
  // The value of `automatic`: the smallest negative number, which no program writes.
  static constexpr std::size_t no_number = (std::numeric_limits<std::size_t>::max)() / 2 + 1;

  // The code of `automatic`; null for a number.
  [[nodiscard]] constexpr const Tuning* tuning() const noexcept { return tuning_; }
  // Returns `automatic` with `max` as its maximum.
  [[nodiscard]] constexpr tunable_count up_to(std::size_t max) const noexcept {
    tunable_count resolved = *this;
    resolved.value_ = max;
    return resolved;
  }
  // Returns the number for messages, with its sign.
  [[nodiscard]] constexpr std::ptrdiff_t written() const noexcept {
    return static_cast<std::ptrdiff_t>(value_);
  }
  /// @endcond

 private:
  std::size_t value_ = 0;
  const Tuning* tuning_ = nullptr;
};

/// A number, or `automatic`. This is the type of `automatic`, so that `many ? ps::automatic : 4`
/// compiles.
using count_or_automatic = tunable_count<void>;

/// The value for options that the library chooses. For `loader_options::workers` and `prefetch`,
/// the library chooses and changes the number while the loop runs, from its statistics; see
/// `loader::tuning`. For `tuning.max_workers`, the number is derived from the cores that the
/// process may use.
inline constexpr count_or_automatic automatic{count_or_automatic::no_number};

/// The options in `loader_options::faults`: the handling of reads that fail or hang. See
/// docs/faults.md.
struct loader_fault_options {
  /// The handling of a sample that can't be read. By default the exception ends the range.
  error_policy on_error = {};

  /// The duration after which a hanging call is reported: a read, a sampler's `order`, or the
  /// request for the lengths of a batch of ragged samples. The call is reported while it still
  /// hangs, and again each time its duration has doubled. 0 means never. The option costs a thread,
  /// which wakes four times within this duration and at least once a second, and three uncontended
  /// locks for each chunk.
  stall_limit stall_warning = {};

  /// The duration after which a hanging call is given up; 0 waits forever. The consumer gets a
  /// `read_timeout`, and the loader delivers no further batches. Needs workers. If the loader does
  /// not own the dataset, the destructor still waits for the call. If the loader owns the dataset,
  /// the thread is detached, keeps its memory, and counts in `abandoned_readers()`.
  stall_limit timeout = {};

  /// Receives the reports of `stall_warning` and `timeout`. The function runs on a thread of the
  /// loader, or on the thread that destroys the loader. So it must not take a lock that the
  /// destroying thread holds, and must not destroy the loader. If it throws, the consumer gets the
  /// exception, and the loader delivers no further batches. By default, reports are lines on
  /// stderr.
  std::function<void(const stall_report&)> on_stall = {};
};

/// The options in `loader_options::memory`: the amount and the kind of memory for the host slots.
/// See docs/tuning.md.
struct loader_memory_options {
  /// The maximum amount of memory for the host slots, pinned or not: `memory_budget::bytes(n)`, or
  /// `memory_budget::share(s)` of the memory that the process may still use, including cgroup
  /// limits. Loaders with copies of one budget share that budget. Default: a quarter of the memory
  /// that the process may still use.
  std::optional<memory_budget> budget = {};

  /// The action if the host slots exceed the budget, or if the system refuses to page-lock them, as
  /// WSL does beyond a limit. In the second case `fewer_slots` halves the number of slots until the
  /// system locks them. `prefetch = automatic` always means `fewer_slots`. `footprint()` returns
  /// the number of slots, and the size that the system has refused. Has no effect on the contents
  /// or order of batches.
  budget_action on_budget_exceeded = budget_action::refuse;

  /// The action if memory can't be page-locked, even for the smallest number of slots that
  /// `on_budget_exceeded` allows. False throws `out_of_memory`. True continues with all slots in
  /// ordinary memory, which is slower, and sets `footprint().pinned` to false. The CPU device
  /// always continues.
  bool pageable_fallback = false;

  /// The capacity of a batch, in values, for each ragged field. 0 uses the capacity that the
  /// dataset specifies, or if it specifies none, `batch_size` times its longest sample. For a batch
  /// with more values, the consumer gets a `ragged_overflow` when it is the batch's turn; no sample
  /// is truncated. Throws `option_error` if the record has no ragged field. See docs/ragged.md.
  std::size_t max_values_per_batch = 0;
};

/// The options in `loader_options::instrumentation`: the information that is recorded about
/// batches.
struct loader_instrumentation_options {
  /// Records the samples of each batch for `batch.indices()` and `batch.replaced()`. Takes 16 bytes
  /// for each sample of a slot.
  bool indices = false;

  /// The recorder of each batch's stages, see `trace_recorder`. Null records nothing. The program
  /// owns the recorder, which should outlive the loop.
  trace_target trace = nullptr;
};

/// The options in `loader_options::tuning`: the distribution of work over threads. Tuning has no
/// effect on the contents or order of batches. See docs/tuning.md.
struct loader_tuning_options {
  /// The maximum number of workers for `workers = automatic`, at least 1. The loader starts that
  /// many threads. `automatic` uses the cores of the affinity mask and of the cgroup's quota, minus
  /// one for the step. For reads that mostly wait, set a larger number. Throws `option_error` if
  /// `workers` is a number.
  count_or_automatic max_workers = automatic;

  /// Number of samples that a worker claims at a time. With 0, the loader chooses: few enough that
  /// all workers share a batch, and more if samples are small and were measured to be quick to
  /// read.
  std::size_t chunk = 0;

  /// The cores on which the workers run. By default, these are the cores closest to the device,
  /// within the affinity mask of the thread that makes the loader. Threads that a dataset starts
  /// inherit the binding. If the system refuses the binding, the workers run unbound.
  /// `footprint().workers` reports where the workers run, and why.
  worker_affinity affinity = worker_affinity::near_device;
};

/// The options of a `loader`. The loader's constructor throws `option_error` for bad values,
/// including negative constants. The error identifies the option by its path: `workers`,
/// `faults.timeout`.
///
///     ps::loader_options{.batch_size = 64, .workers = 4, .faults = {.timeout = 10s}}
///
/// Options with a counterpart in PyTorch's DataLoader come first. The groups of other options
/// follow. docs/from_pytorch.md lists all options.
struct loader_options {
  /// Number of samples in a batch. PyTorch: `DataLoader(batch_size=...)`.
  std::size_t batch_size = 1;

  /// Number of threads that read samples. 0 reads on the consumer's thread, inside `++`. The
  /// workers share the dataset, and all of them work on the batch that is needed first. `automatic`
  /// uses as many workers as the loop needs, at most `tuning.max_workers`; the other threads sleep.
  /// A loop that only polls `try_next` never waits, so `automatic` adds no workers for it. PyTorch:
  /// `DataLoader(num_workers=...)`.
  tunable_count<detail::loop_tuning> workers = 1;

  /// Number of batches that are read ahead of the consumer, in total and not for each worker. The
  /// loader has prefetch + 1 slots. Without workers, nothing is read ahead. With 0, the loader
  /// chooses at least max(2, workers), and up to 8 if batches are small. `automatic` starts with
  /// the same number, allocates slots for twice as many batches, and may use them. PyTorch:
  /// `prefetch_factor` times `num_workers`.
  tunable_count<detail::loop_tuning> prefetch = 0;

  /// The seed of the random bits that each sample gets. PyTorch: `generator` and `worker_init_fn`
  /// of `DataLoader`.
  std::uint64_t seed = 0;

  /// The treatment of a last batch that is not full. PyTorch: `DataLoader(drop_last=...)`.
  penstock::last_batch last_batch = penstock::last_batch::keep;

  /// Delivers batches in the sampler's order. If false, delivers the batch that is complete first,
  /// in no particular order. PyTorch: `DataLoader(in_order=...)`.
  bool in_order = true;

  /// Places batches in page-locked memory. PyTorch: `DataLoader(pin_memory=...)`.
  bool pinned = true;

  /// The action when the consumer requests a batch while leases, on its thread or moved to other
  /// threads, hold every slot. `wait` is for leases that end on other threads. A stop request ends
  /// the wait.
  exhausted_action on_slots_exhausted = exhausted_action::fail;

  /// A request through this token stops the loader. Any thread may make the request. After the
  /// request, no further chunk is started. When the reads in progress have returned, all workers
  /// end, and the consumer, even if it is waiting, gets `cancelled` at this and every later step. A
  /// smaller `tuning.chunk` makes the stop faster.
  std::stop_token stop = {};

  /// The maximum distance of prefetch hints ahead of the workers, in stored bytes; 0 sends no
  /// hints. The dataset's `prefetch_capacity` limits the distance, too. A cache may plan farther
  /// ahead than it fetches. The option has no effect on the contents of batches and takes no slots.
  ///
  /// A thread of the loader calls the dataset. The destructor joins that thread, and waits at most
  /// `faults.timeout` if that is set. Throws `option_error` for a sampler that counts draws, such
  /// as `prioritized`, because a hint for a step would count as the draw of that step. See
  /// docs/stores.md.
  std::uint64_t lookahead_bytes = 0;

  /// The handling of reads that fail or hang. PyTorch: `DataLoader(timeout=...)`, which limits the
  /// wait for a batch.
  loader_fault_options faults = {};
  /// The amount and the kind of memory for the host slots.
  loader_memory_options memory = {};
  /// The information that is recorded about batches.
  loader_instrumentation_options instrumentation = {};
  /// The distribution of work over threads.
  loader_tuning_options tuning = {};
};

namespace detail {

/// The largest number of worker threads of a loader.
inline constexpr std::size_t max_workers = 4096;

/// Throws `option_error` for an invalid value.
inline void require_valid(const loader_options& options) {
  if (options.batch_size == 0) refuse_option("batch_size", {"must be at least 1, but is 0"});
  const std::size_t workers = options.workers.value();
  const count_or_automatic cap = options.tuning.max_workers;
  const auto require_count = [](const char* name, const auto& count, std::size_t max) {
    if (count.is_automatic() || count.value() <= max) return;
    const std::ptrdiff_t written = count.written();
    if (written < 0) refuse_option(name, {"must not be negative, but is ", written});
    refuse_option(name, {written, " is above ", max});
  };
  require_count("workers", options.workers, max_workers);
  require_count("tuning.max_workers", cap, max_workers);
  if (cap == 0) refuse_option("tuning.max_workers", {"must be at least 1 (one worker), but is 0"});
  if (cap != automatic && !options.workers.is_automatic()) {
    refuse_option("tuning.max_workers", {"is the limit of workers = automatic, but workers is ",
                                         workers, ": omit one of them"});
  }
  require_count("prefetch", options.prefetch, max_slots - 1);
  const loader_fault_options& faults = options.faults;
  require_valid(faults.on_error);
  const auto require_time = [](const char* name, std::chrono::milliseconds time) {
    if (time.count() >= 0) return;
    refuse_option(name, {"must not be negative, but is ", time.count(), " ms"});
  };
  const std::chrono::milliseconds warning = faults.stall_warning.time();
  const std::chrono::milliseconds timeout = faults.timeout.time();
  require_time("faults.stall_warning", warning);
  require_time("faults.timeout", timeout);
  if (timeout.count() > 0 && workers == 0) {
    refuse_option(
        "faults.timeout",
        {"needs at least one worker, because a read on the consumer's thread cannot be abandoned"});
  }
  if (timeout.count() > 0 && warning >= timeout) {
    refuse_option("faults.stall_warning",
                  {"must be shorter than timeout, because otherwise no warning is printed: ",
                   warning.count(), " ms and ", timeout.count(), " ms"});
  }
  if (faults.on_stall && warning.count() == 0 && timeout.count() == 0) {
    refuse_option("faults.on_stall",
                  {"is never called without stall_warning or timeout: set one of them"});
  }
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
