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

/// Number of bits in the claim word that count the chunks of a batch.
inline constexpr std::uint32_t claim_chunk_bits = 20;
/// Number of bits in the claim word that identify the host slot.
inline constexpr std::uint32_t claim_slot_bits = 12;

/// The maximum number of chunks in a batch, which is half the range of the chunk bits. A claim that
/// must wait also increments the count, once for each waiting worker.
inline constexpr std::uint32_t max_chunks = 1U << (claim_chunk_bits - 1);
/// The maximum number of host slots in a loader.
inline constexpr std::uint32_t max_slots = 1U << claim_slot_bits;

struct loop_tuning;
struct stall_watching;

}  // namespace detail

/// An option that limits the duration of a read. 0 means no limit. Only the conversion from a
/// duration references the code that watches reads, so a program that sets no limit does not
/// compile that code.
class stall_limit {
 public:
  /// Sets no limit.
  constexpr stall_limit() noexcept = default;

  /// Sets a limit of `time`. 0 means no limit.
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

  /// Returns the limit in milliseconds. 0 means no limit.
  [[nodiscard]] constexpr std::chrono::milliseconds time() const noexcept { return time_; }

  /// @cond internal
  // The functions that watch reads, or null without a limit.
  [[nodiscard]] constexpr const detail::stall_watching* watching() const noexcept {
    return time_.count() > 0 ? watching_ : nullptr;
  }
  /// @endcond

 private:
  std::chrono::milliseconds time_{0};
  const detail::stall_watching* watching_ = nullptr;
};

/// Specifies how the loader treats an incomplete last batch.
enum class last_batch {
  keep,  ///< delivers a shorter last batch; PyTorch: `drop_last=False`
  drop,  ///< omits an incomplete last batch; PyTorch: `drop_last=True`
  pad,   ///< pads it with the first samples of the epoch; `valid()` excludes the padding
};

/// Specifies what happens if the host slots exceed the memory budget, or if the system fails to
/// page-lock them.
enum class budget_action {
  reject,       ///< throws `pinned_budget_exceeded`, or `out_of_memory` if page-locking fails
  fewer_slots,  ///< uses as many slots as fit, at least one; with one slot, nothing is read ahead
};

/// Specifies what happens if the consumer requests a batch while all slots are held by leases. A
/// lease on the consumer thread cannot end while that thread waits. The library cannot detect which
/// leases are on other threads, so the program must specify the action.
enum class exhausted_action {
  fail,  ///< throws `leases_exhausted`
  wait,  ///< waits until another thread ends a lease, indefinitely if no thread does
};

/// The cores on which the workers run. The affinity of the consumer and the process does not
/// change.
enum class worker_affinity {
  /// The cores on the host NUMA node closest to the device, if the process may use them. The same
  /// as `anywhere` if all or no cores of the process are on that node.
  near_device,
  anywhere,  ///< all cores that the process may use
};

/// An option value that is a number or `automatic`. Negative numbers are rejected at run time, by
/// the class that owns the option, because a constructor cannot detect constants.
///
/// If `Tuning` is not void, it contains the code that tunes the option. Only `automatic` references
/// this code, so a program that uses only numbers does not compile it. `Tuning` is declared before
/// this class, and defined in the header of the class that owns the option.
template <class Tuning>
class tunable_count {
 public:
  /// Creates the number 0.
  constexpr tunable_count() noexcept = default;
  /// Creates a number.
  template <std::integral Number>
  constexpr tunable_count(Number count) noexcept  // NOLINT: implicit, as a number is written
      : value_(static_cast<std::size_t>(count)) {}

  /// Creates a number or `automatic`, chosen at run time.
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

  /// Returns the number. Negative numbers and `automatic` convert to a value above all accepted
  /// numbers.
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
  // The value of `automatic`: the minimum signed value, which no program uses.
  static constexpr std::size_t no_number = (std::numeric_limits<std::size_t>::max)() / 2 + 1;

  // The code of `automatic`, or null for a number.
  [[nodiscard]] constexpr const Tuning* tuning() const noexcept { return tuning_; }
  // Returns `automatic` with the maximum `max`.
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

/// A number or `automatic`. This is the type of `automatic`, so that `many ? ps::automatic : 4`
/// compiles.
using count_or_automatic = tunable_count<void>;

/// The value of options that the library chooses. For `loader_options::workers` and `prefetch`, the
/// library adjusts the number from its statistics while the loop runs (see `loader::tuning`). For
/// `tuning.max_workers`, the number is derived from the cores that the process may use.
inline constexpr count_or_automatic automatic{count_or_automatic::no_number};

/// The options in `loader_options::faults`, which specify the handling of failed and hanging reads
/// (see docs/faults.md).
struct loader_fault_options {
  /// Specifies what the loader does if a sample cannot be read. By default, the exception ends the
  /// range.
  error_policy on_error = {};

  /// The duration after which a hanging call is reported, or 0 for never. Applies to reads, to
  /// `order` of the sampler, and to requests for the lengths of a ragged batch. The call is
  /// reported while it hangs, and again each time its duration has doubled. The option costs a
  /// thread, which wakes four times within this duration and at least once a second, and three
  /// uncontended locks per chunk.
  stall_limit stall_warning = {};

  /// The duration after which a hanging call is given up, or 0 to wait indefinitely. The consumer
  /// receives a `read_timeout`, and the loader delivers no further batches. Requires workers. If
  /// the loader does not own the dataset, the destructor still waits for the call. If the loader
  /// owns the dataset, the thread is detached, retains its memory, and is counted in
  /// `abandoned_readers()`.
  stall_limit timeout = {};

  /// Receives the reports of `stall_warning` and `timeout`. The function runs on a thread of the
  /// loader, or on the thread that destroys the loader. Therefore it must not acquire a lock that
  /// the destroying thread holds, and must not destroy the loader. If the function throws, the
  /// consumer receives the exception, and the loader delivers no further batches. By default,
  /// reports are lines on stderr.
  std::function<void(const stall_report&)> on_stall = {};
};

/// The options in `loader_options::memory`, which specify the amount and kind of memory for the
/// host slots (see docs/tuning.md).
struct loader_memory_options {
  /// The maximum amount of memory for the host slots, pinned or not. Use `memory_budget::bytes(n)`,
  /// or `memory_budget::share(s)` of the memory that the process may still allocate, including
  /// cgroup limits. Loaders with copies of the same budget share that budget. The default is a
  /// quarter of the memory that the process may still allocate.
  std::optional<memory_budget> budget = {};

  /// Specifies what happens if the host slots exceed the budget, or if the system fails to
  /// page-lock them, as WSL does beyond a limit. In the second case, `fewer_slots` halves the
  /// number of slots until the system locks them. `prefetch = automatic` always implies
  /// `fewer_slots`. `footprint()` returns the number of slots, and the size that the system failed
  /// to lock. Has no effect on the contents or order of batches.
  budget_action on_budget_exceeded = budget_action::reject;

  /// Specifies what happens if memory cannot be page-locked, even for the minimum number of slots
  /// that `on_budget_exceeded` allows. False throws `out_of_memory`. True continues with all slots
  /// in pageable memory, which is slower, and sets `footprint().pinned` to false. The CPU device
  /// always continues.
  bool pageable_fallback = false;

  /// The batch capacity of each ragged field in values. 0 uses the capacity specified by the
  /// dataset, or `batch_size` times the maximum sample length if the dataset does not specify a
  /// capacity. For a batch with more values, the consumer receives a `ragged_overflow` when the
  /// batch is due, and no sample is truncated. Throws `option_error` if the record has no ragged
  /// field. See docs/ragged.md.
  std::size_t max_values_per_batch = 0;
};

/// The options in `loader_options::instrumentation`, which specify the information recorded about
/// batches.
struct loader_instrumentation_options {
  /// Records the samples of each batch for `batch.indices()` and `batch.replaced()`. Requires 16
  /// bytes per sample of a slot.
  bool indices = false;

  /// The recorder for the stages of each batch (see `trace_recorder`). Null records nothing. The
  /// program owns the recorder, which should outlive the loop.
  trace_target trace = nullptr;
};

/// The options in `loader_options::tuning`, which specify the distribution of work over threads.
/// Tuning has no effect on the contents or order of batches (see docs/tuning.md).
struct loader_tuning_options {
  /// The maximum number of workers for `workers = automatic`, at least 1. The loader starts this
  /// number of threads. `automatic` uses the number of cores in the affinity mask and the cgroup
  /// quota, minus one for the step. Set a larger number for reads that mostly wait. Throws
  /// `option_error` if `workers` is a number.
  count_or_automatic max_workers = automatic;

  /// Number of samples that a worker claims at a time. With 0, the loader chooses a number that is
  /// small enough for all workers to share a batch. The number is larger if samples are small and
  /// reads were measured to be fast.
  std::size_t chunk = 0;

  /// The cores on which the workers run. By default, these are the cores closest to the device in
  /// the affinity mask of the thread that creates the loader. Threads started by a dataset inherit
  /// the binding. If the binding fails, the workers run unbound. `footprint().workers` reports
  /// where the workers run, and the reason.
  worker_affinity affinity = worker_affinity::near_device;
};

/// The options of a `loader`. The constructor of the loader throws `option_error` for invalid
/// values, including negative constants. The error identifies the option by its path, such as
/// `workers` or `faults.timeout`.
///
///     ps::loader_options{.batch_size = 64, .workers = 4, .faults = {.timeout = 10s}}
///
/// Options with a counterpart in PyTorch's DataLoader come first. The groups of other options
/// follow. docs/from_pytorch.md lists all options.
struct loader_options {
  /// Number of samples in a batch. PyTorch: `DataLoader(batch_size=...)`.
  std::size_t batch_size = 1;

  /// Number of threads that read samples. With 0, the consumer thread reads in `++`. The workers
  /// share the dataset, and all of them work on the batch that is needed first. `automatic` uses as
  /// many workers as the loop needs, up to `tuning.max_workers`, and the other threads sleep. A
  /// loop that only polls `try_next` never waits, so `automatic` does not add workers for it.
  /// PyTorch: `DataLoader(num_workers=...)`.
  tunable_count<detail::loop_tuning> workers = 1;

  /// Number of batches read ahead of the consumer, in total and not per worker. The loader has
  /// prefetch + 1 slots. Without workers, nothing is read ahead. With 0, the loader chooses at
  /// least max(2, workers), and up to 8 if batches are small. `automatic` starts with the same
  /// number and allocates slots for up to twice as many batches. PyTorch: `prefetch_factor` times
  /// `num_workers`.
  tunable_count<detail::loop_tuning> prefetch = 0;

  /// The seed of the random bits for each sample. PyTorch: `generator` and `worker_init_fn` of
  /// `DataLoader`.
  std::uint64_t seed = 0;

  /// Specifies how the loader treats an incomplete last batch. PyTorch:
  /// `DataLoader(drop_last=...)`.
  penstock::last_batch last_batch = penstock::last_batch::keep;

  /// Delivers batches in the order of the sampler. If false, delivers batches as they are
  /// completed, in any order. PyTorch: `DataLoader(in_order=...)`.
  bool in_order = true;

  /// Stores batches in page-locked memory. PyTorch: `DataLoader(pin_memory=...)`.
  bool pinned = true;

  /// Specifies what happens if the consumer requests a batch while all slots are held by leases, on
  /// any thread. `wait` is for leases that end on other threads. A stop request ends the wait.
  exhausted_action on_slots_exhausted = exhausted_action::fail;

  /// A token through which any thread may stop the loader. After a stop request, no further chunk
  /// is started. When the reads in progress have returned, all workers end, and the consumer
  /// receives `cancelled` at the current and every later step, even if it is waiting. A smaller
  /// `tuning.chunk` makes the stop faster.
  std::stop_token stop = {};

  /// The maximum distance of prefetch hints ahead of the workers, in stored bytes. 0 disables
  /// hints. The `prefetch_capacity` of the dataset also limits the distance. A cache may plan
  /// farther ahead than it fetches. Has no effect on the contents of batches, and does not use
  /// slots.
  ///
  /// A thread of the loader calls the dataset. The destructor joins that thread, and waits at most
  /// `faults.timeout` if it is set. Throws `option_error` for a sampler that counts draws, such as
  /// `prioritized`, because a hint for a step would count as the draw of that step. See
  /// docs/stores.md.
  std::uint64_t lookahead_bytes = 0;

  /// Options that specify how failed and hanging reads are handled. PyTorch:
  /// `DataLoader(timeout=...)`, which limits the wait for a batch.
  loader_fault_options faults = {};
  /// Options that specify the amount and kind of memory for the host slots.
  loader_memory_options memory = {};
  /// Options that specify which information about batches is recorded.
  loader_instrumentation_options instrumentation = {};
  /// Options that specify how work is distributed over threads.
  loader_tuning_options tuning = {};
};

namespace detail {

/// The maximum number of worker threads in a loader.
inline constexpr std::size_t max_workers = 4096;

/// Throws `option_error` for an invalid value.
inline void require_valid(const loader_options& options) {
  if (options.batch_size == 0) throw_option_error("batch_size", {"must be at least 1, but is 0"});
  const std::size_t workers = options.workers.value();
  const count_or_automatic cap = options.tuning.max_workers;
  const auto require_count = [](const char* name, const auto& count, std::size_t max) {
    if (count.is_automatic() || count.value() <= max) return;
    const std::ptrdiff_t written = count.written();
    if (written < 0) throw_option_error(name, {"must not be negative, but is ", written});
    throw_option_error(name, {written, " is above ", max});
  };
  require_count("workers", options.workers, max_workers);
  require_count("tuning.max_workers", cap, max_workers);
  if (cap == 0)
    throw_option_error("tuning.max_workers", {"must be at least 1 (one worker), but is 0"});
  if (cap != automatic && !options.workers.is_automatic()) {
    throw_option_error(
        "tuning.max_workers",
        {"is the limit of workers = automatic, but workers is ", workers, ": omit one of them"});
  }
  require_count("prefetch", options.prefetch, max_slots - 1);
  const loader_fault_options& faults = options.faults;
  require_valid(faults.on_error);
  const auto require_time = [](const char* name, std::chrono::milliseconds time) {
    if (time.count() >= 0) return;
    throw_option_error(name, {"must not be negative, but is ", time.count(), " ms"});
  };
  const std::chrono::milliseconds warning = faults.stall_warning.time();
  const std::chrono::milliseconds timeout = faults.timeout.time();
  require_time("faults.stall_warning", warning);
  require_time("faults.timeout", timeout);
  if (timeout.count() > 0 && workers == 0) {
    throw_option_error(
        "faults.timeout",
        {"needs at least one worker, because a read on the consumer's thread cannot be abandoned"});
  }
  if (timeout.count() > 0 && warning >= timeout) {
    throw_option_error("faults.stall_warning",
                       {"must be shorter than timeout, because otherwise no warning is printed: ",
                        warning.count(), " ms and ", timeout.count(), " ms"});
  }
  if (faults.on_stall && warning.count() == 0 && timeout.count() == 0) {
    throw_option_error("faults.on_stall",
                       {"is never called without stall_warning or timeout: set one of them"});
  }
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
