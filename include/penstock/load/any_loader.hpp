// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <stop_token>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/core/record.hpp>
#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/faults/failure_ledger.hpp>
#include <penstock/load/batch_range.hpp>
#include <penstock/load/detail/loader_core.hpp>
#include <penstock/load/detail/loop_tuner.hpp>
#include <penstock/load/footprint.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/pull_loop.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/memory/support/host_slots.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/support/stage_probe.hpp>
#include <penstock/observe/trace_target.hpp>
#include <penstock/resume/loader_state.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

template <record_type Record, device Device>
class any_loader;

namespace detail {

/// The state of a loop over a loader: the core that delivers the batches, and the lease that the
/// loop holds. Shared by the loader and its ranges.
template <record_type Record, device Device>
class loader_loop {
 public:
  using batch_type = host_batch<Record, Device>;

  /// Creates the core (see the constructor of `loader_core`).
  loader_loop(std::unique_ptr<source_ops> source, const epoch_plan& plan,
              std::shared_ptr<host_slots<Device>> ring, const loader_options& requested,
              const loader_options& options)
      : core_(std::move(source), plan, std::move(ring), requested, options) {}

  [[nodiscard]] loader_core<Device>& core() noexcept { return core_; }

  /// Starts a range and returns its serial number. Called by `batch_range`.
  std::uint64_t start(const batch_position& from, std::uint64_t last_epoch) {
    return core_.start(from, last_epoch);
  }
  /// Releases the current batch and acquires the next batch. Returns false at the end. Called by
  /// `batch_range`.
  bool advance() {
    step_.end();
    failed_batch failed;
    // Releases the slot first, because the next batch may need it. Constructs the lease in place,
    // because a move would cost more than the rest of this function.
    std::destroy_at(&held_);
    ::new (static_cast<void*>(&held_)) batch_type(core_.template next<batch_type>(failed));
    if (failed) std::rethrow_exception(failed.error);
    if (held_) step_.begin(core_.trace(), held_.info());
    if (!held_ && core_.was_cut()) throw_cut();
    return static_cast<bool>(held_);
  }
  [[nodiscard]] batch_type& current() noexcept { return held_; }
  /// Ends the range with the serial number `serial`. Called by `batch_range`.
  void finish(std::uint64_t serial) noexcept {
    if (!core_.is_current(serial)) return;
    step_.end();
    held_ = batch_type{};
    core_.stop();
  }

 private:
  loader_core<Device> core_;
  batch_type held_;
  step_probe step_;
};

/// The source type that a feed uses for `Source`. For a `loader`, this is its `any_loader` base, so
/// that all loaders of the same record and device share one feed type. `Source` may be a reference.
template <class Source>
struct erased_source {
  using type = Source;
};
template <class Source>
struct erased_source<Source&> {
  using type = typename erased_source<Source>::type&;
};

/// Returns the stage that delivers the batches of `loader`. All loaders for the same device use the
/// same stage type.
template <record_type Record, device Device>
[[nodiscard]] std::shared_ptr<loader_core<Device>> stage_of(
    any_loader<Record, Device>& loader) noexcept;

}  // namespace detail

/// A type-erased loader, for a program that chooses the dataset and the sampler at run time or
/// hides them from a header. `any_loader<digit>` is for the CPU device, and `any_loader<digit,
/// cuda_device>` is for a GPU.
///
///     ps::any_loader<digit> make_loader(const flags& chosen);             // in a header
///     using feed_type = ps::transfer<ps::any_loader<digit>>;
///
///     ps::any_loader<digit> loader = chosen.shuffle                       // in a source file
///         ? ps::any_loader{ps::loader{digits, ps::shuffled{.seed = 1}, options}}
///         : ps::any_loader{ps::loader{digits, ps::sequential{}, options}};
///
/// Has all members of a `loader` except its constructors. A `loader` is moved in and continues its
/// work. An `any_loader` can resume from the state of a `loader`, and a `loader` from the state of
/// an `any_loader`. The conversion has no run-time overhead. Movable. Only one thread may consume.
/// A moved-from object supports only assignment and destruction.
template <penstock::record_type Record, penstock::device Device = cpu_device>
class any_loader {
 protected:
  /// @cond derived
  using flow = detail::loader_loop<Record, Device>;
  explicit any_loader(std::shared_ptr<flow> made) : flow_(std::move(made)) {
    core().kept_alive_by(flow_);
  }
  /// @endcond

 public:
  using record_type = Record;
  using device_type = Device;
  using batch_type = host_batch<Record, Device>;
  using range_type = batch_range<flow>;

  any_loader(any_loader&&) noexcept = default;
  /// Ends the work of this loader, as the destructor does, and takes over the work of `other`.
  any_loader& operator=(any_loader&& other) noexcept {
    if (this != &other) {
      shut_down();
      flow_ = std::move(other.flow_);
      pulled_ = other.pulled_;
    }
    return *this;
  }

  /// Ends all threads, and waits for the reads in progress (see also
  /// `loader_options::faults.timeout`). Leases stay valid. An unfinished loop, even on another
  /// thread, throws `cancelled` at its next step.
  ~any_loader() { shut_down(); }

  /// Returns the batches of the epochs from `first` up to but not including `last`, without a pause
  /// between epochs. Samples of epoch `last` are not read.
  [[nodiscard]] range_type epochs(std::uint64_t first, std::uint64_t last) & {
    return range_type{flow_, {first, 0}, last};
  }
  /// Returns the batches of one epoch.
  [[nodiscard]] range_type epoch(std::uint64_t which) & { return epochs(which, which + 1); }
  /// Returns the batches from `from` to the start of epoch `end`. For example, `batches({2, 10},
  /// until_epoch{5})` ends with the last batch of epoch 4. Starts in constant time, even in the
  /// middle of an epoch. The range is empty if `from` is {end, 0}. If `from` is later, `begin()`
  /// throws `option_error`.
  [[nodiscard]] range_type batches(const batch_position& from, until_epoch end) & {
    return range_type{flow_, from, end.value};
  }

  /// Returns the state of the loop, for a checkpoint. The state contains the position of the batch
  /// after the last delivered batch, regardless of read-ahead. After the last batch of an epoch,
  /// the position is the end of that epoch, {e, batches}. For a loop over a transfer, use
  /// `transfer::state`. Throws `option_error` if batches are delivered out of order. Any thread may
  /// call this.
  [[nodiscard]] loader_state state() const { return state_at(core().next_position()); }

  /// Returns the state of a loop whose next batch is `next`. `state_at(batch.position())` is the
  /// state of a loop that has yet to process `batch`. `state_at({e + 1, 0})` is the state of a loop
  /// that has completed epoch e and all work after it. Throws `option_error` if batches are
  /// delivered out of order. Any thread may call this.
  [[nodiscard]] loader_state state_at(const batch_position& next) const {
    return core().state_at(next);
  }

  /// Continues after the batch at which `state` was saved, up to but not including epoch
  /// `last_epoch`, in constant time. The loop receives the same batches as the original loop,
  /// starting at the next batch, even with a different number of workers, prefetch, depth or
  /// device. If the state was saved at the end of epoch `last_epoch` - 1, the range is empty, and
  /// the program continues with its work after that epoch. Throws `state_mismatch`, which lists all
  /// differences, if the batches could differ.
  [[nodiscard]] range_type resume(const loader_state& state, std::uint64_t last_epoch) & {
    return batches(position_of(state), until_epoch{last_epoch});
  }

  /// Returns the position of the batch at which `resume` continues. This is the position passed to
  /// `state_at`, unless the number of ranks has changed. Throws `state_mismatch`, like `resume`.
  /// Any thread may call this.
  [[nodiscard]] batch_position position_of(const loader_state& state) const {
    return core().position_of(state);
  }

  /// @cond misuse
  // Calls to these functions do not compile. The error message names the alternative.
  __attribute__((
      unavailable("penstock: specify the end of the range: loader.batches(from, "
                  "ps::until_epoch{e}) ends before "
                  "epoch e"))) void
  batches(const batch_position& from, std::uint64_t) const;
  __attribute__((
      unavailable("penstock: loop over loader.epoch(e) or loader.epochs(first, last)"))) void
  begin() const;
  __attribute__((
      unavailable("penstock: loop over loader.epoch(e) or loader.epochs(first, last)"))) void
  end() const;
  /// @endcond

  /// Returns the number of batches in an epoch.
  [[nodiscard]] std::uint64_t batches_per_epoch() const noexcept { return core().plan().batches(); }
  /// Returns the number of batches that this loader contributes to a step over all ranks. The
  /// result is 1, unless the sampler specifies batch sizes. In that case, the result is
  /// `batches_per_step()` of the sampler divided by the number of ranks.
  [[nodiscard]] std::uint64_t batches_per_step() const noexcept {
    const std::uint64_t all = core().source().batches_per_step();
    return all == 0 ? 1 : all / core().source().world();
  }
  /// Returns the number of samples in an epoch. If the sampler specifies batch sizes, assumes that
  /// all batches are full.
  [[nodiscard]] std::uint64_t samples_per_epoch() const noexcept { return core().plan().samples(); }
  /// Returns the options passed to the constructor. `automatic` remains `automatic`.
  [[nodiscard]] const loader_options& options() const noexcept {
    return core().requested_options();
  }
  /// Returns the host memory of the loader, including the number of slots and page-locking, the
  /// worker cores, and dataset warnings. Any thread may call this.
  [[nodiscard]] loader_footprint footprint() const { return core().footprint(); }

  /// Returns the number of host slots that leases hold, out of `footprint().slot_count`. If leases
  /// hold all slots, `try_next` returns no batch. Any thread may call this.
  [[nodiscard]] std::size_t held() const noexcept { return core().held(); }

  /// Returns the origin of the exception that ended the last range. Empty if the range did not end
  /// with an exception, or if the exception does not belong to a batch, such as a device error
  /// between two batches. Any thread may call this.
  [[nodiscard]] std::optional<penstock::failure> last_failure() const noexcept {
    return core().last_failure();
  }

  /// Returns the samples that could not be read so far, and the actions of
  /// `loader_options::faults.on_error`. Includes batches that are only read ahead. Empty if the
  /// policy rethrows all exceptions. Any thread may call this.
  [[nodiscard]] failure_report failures() const { return core().failures(); }

  /// Returns the statistics of reads and waits so far (see `loader_stats`). Any thread may call
  /// this, even during a loop. The call takes a few microseconds per worker, and reads the cgroup
  /// files and a file per worker thread.
  [[nodiscard]] loader_stats stats() const { return core().stats(); }

  /// Returns the current values of `workers` and `prefetch` if they are `automatic`, and the
  /// changes that led to them. Any thread may call this, even during a loop. Allocates a list of up
  /// to 32 changes.
  [[nodiscard]] tuning_history tuning() const { return core().tuning(); }

  /// Returns the number of threads that were detached because their read exceeded
  /// `loader_options::faults.timeout`. Any thread may call this.
  [[nodiscard]] std::size_t abandoned_readers() const noexcept {
    return core().abandoned_readers();
  }

  /// Starts an endless loop at `from`, for a program that calls `next` for each batch. Ends the
  /// loop that an earlier call has started. Throws `std::logic_error` while a range over this
  /// loader is live.
  ///
  ///     for (int step = 0; step != steps; ++step) {
  ///       auto batch = loader.next();
  ///       train(batch);
  ///       if (loader.at_epoch_end()) validate();
  ///     }
  void reset(const batch_position& from = {}) {
    if (core().is_current(pulled_)) core().stop();
    pulled_ = core().start(from, detail::endless);
  }
  /// Starts an endless loop, like `reset`, after the batch at which `state` was saved. Throws
  /// `state_mismatch`, like `resume` with two arguments.
  void resume(const loader_state& state) { reset(position_of(state)); }
  /// Returns true if the last batch returned is the last batch of its epoch.
  [[nodiscard]] bool at_epoch_end() const noexcept {
    const batch_position next = core().next_position();
    return next.batch != 0 && next.batch == batches_per_epoch();
  }

  /// @name Members of a `batch_source`. Loops use `epochs` instead. `next` can also be called
  /// without `start`, in which case it starts at batch 0 of epoch 0 (see `reset`). @{
  [[nodiscard]] const Device& device() const noexcept { return core().device(); }
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept {
    return core().layout().template as<Record>();
  }
  void start(const batch_position& from, std::uint64_t last_epoch) {
    core().start(from, last_epoch);
  }
  [[nodiscard]] batch_type next() {
    if (!core().was_started()) reset();
    detail::failed_batch failed;
    batch_type batch = core().template next<batch_type>(failed);
    if (failed) std::rethrow_exception(failed.error);
    return batch;
  }
  [[nodiscard]] batch_type try_next() {
    detail::failed_batch failed;
    batch_type batch = core().template try_next<batch_type>(failed);
    if (failed) std::rethrow_exception(failed.error);
    return batch;
  }
  /// Ends the current range. A loop over `epochs`, or over a feed of this loader, throws
  /// `cancelled` at its next step. To end a loop from another thread, request
  /// `loader_options::stop`.
  void stop() noexcept { core().cut(); }
  [[nodiscard]] bool at_end() const noexcept { return core().at_end(); }
  [[nodiscard]] std::stop_token stop_token() const noexcept { return core().stop_token(); }
  /// Returns the ID of this loader's batches in a trace of `recorder`, or 0 if `recorder` does not
  /// record them.
  [[nodiscard]] std::uint64_t trace_flow(const trace_recorder* recorder) const noexcept {
    return core().trace_flow(recorder);
  }
  /// @}

 private:
  friend std::shared_ptr<detail::loader_core<Device>> detail::stage_of<Record, Device>(
      any_loader&) noexcept;

  void shut_down() noexcept {
    if (flow_) core().shut_down();
  }
  [[nodiscard]] detail::loader_core<Device>& core() const noexcept { return flow_->core(); }

  std::shared_ptr<flow> flow_;  // shared with the ranges, which may outlive this object
  std::uint64_t pulled_ = 0;    // serial number of the loop started by `reset`, or 0
};

namespace detail {

template <record_type Record, device Device>
std::shared_ptr<loader_core<Device>> stage_of(any_loader<Record, Device>& loader) noexcept {
  return {loader.flow_, &loader.core()};
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock

/// Declares or instantiates the code that all loaders on a device share, such as the queue, the
/// thread pool and the slot ring. Every object file that uses this code instantiates it, unless
/// `extern template` defers that to another file. `penstock::compiled` contains the code for
/// `cpu_device`, and `penstock::compiled_cuda` for `cuda_device`. For a custom device, write these
/// lines at global scope, and also `PENSTOCK_TRANSFERS_ON` for its transfers:
///
///     PENSTOCK_LOADERS_ON(extern template, my::device)  // in the header of the device
///     PENSTOCK_LOADERS_ON(template, my::device)         // in one source
#define PENSTOCK_LOADERS_ON(kind, ...)                  \
  kind class penstock::detail::slot_ring<__VA_ARGS__>;  \
  kind class penstock::detail::host_slots<__VA_ARGS__>; \
  kind class penstock::detail::loader_core<__VA_ARGS__>;

#if PENSTOCK_COMPILED
extern template struct penstock::detail::delete_outside_of_work<penstock::cpu_stream_ref>;
PENSTOCK_LOADERS_ON(extern template, penstock::cpu_device)
#endif
