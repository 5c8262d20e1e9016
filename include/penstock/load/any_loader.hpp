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
#include <penstock/load/footprint.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/memory/support/host_slots.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/support/trace.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/resume/loader_state.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

template <record_type Record, device Device>
class any_loader;

namespace detail {

/// What a loader shares with its ranges: the core, and the batch that a loop is at.
template <record_type Record, device Device>
class loader_flow {
 public:
  using batch_type = host_batch<Record, Device>;

  /// See `loader_core`.
  loader_flow(std::unique_ptr<source_ops> source, const epoch_plan& plan,
              std::shared_ptr<host_slots<Device>> ring, const loader_options& asked,
              const loader_options& options)
      : core_(std::move(source), plan, std::move(ring), asked, options) {}

  [[nodiscard]] loader_core<Device>& core() noexcept { return core_; }

  /// For a `batch_range`: starts to read; the range's serial number.
  std::uint64_t start(const batch_position& from, std::uint64_t last_epoch) {
    return core_.start(from, last_epoch);
  }
  /// For a `batch_range`: releases the current batch and takes the next one; false at the end.
  bool advance() {
    step_.end();
    failed_batch failed;
    // The release comes before the next batch is waited for, which may need the slot. In place: a
    // lease that is moved costs more than all else here.
    std::destroy_at(&held_);
    ::new (static_cast<void*>(&held_)) batch_type(core_.template next<batch_type>(failed));
    if (failed) std::rethrow_exception(failed.error);
    if (held_) step_.begin(core_.trace(), held_.info());
    return static_cast<bool>(held_);
  }
  [[nodiscard]] batch_type& current() noexcept { return held_; }
  /// For a `batch_range`: ends the range that `serial` names.
  void finish(std::uint64_t serial) noexcept {
    if (!core_.is_current(serial)) return;
    step_.end();
    held_ = batch_type{};
    core_.stop();
  }

 private:
  loader_core<Device> core_;
  batch_type held_;
  noted_step step_;
};

/// What a feed takes for `Source`, or a reference to it: of a `loader` the `any_loader`, so that
/// all loaders of a record and a device have one feed, compiled once.
template <class Source>
struct fed {
  using type = Source;
};
template <class Source>
struct fed<Source&> {
  using type = typename fed<Source>::type&;
};

/// What a feed asks: of a loader the core, which all loaders of a device share; a class derived
/// from one may have a `next` of its own, and is asked itself.
template <record_type Record, device Device>
[[nodiscard]] auto fed_by(any_loader<Record, Device>& loader) noexcept
    -> std::shared_ptr<loader_core<Device>>;
template <class Source>
[[nodiscard]] std::shared_ptr<Source> fed_by(Source& source) noexcept {
  return {std::shared_ptr<void>{}, &source};
}

}  // namespace detail

/// A loader whose dataset and sampler are not known before the program runs, or are not to be seen
/// in a header: `any_loader<digit>` for the CPU device, `any_loader<digit, cuda_device>` for a GPU.
///
///     ps::any_loader<digit> make_loader(const flags& chosen);             // in a header
///     using feed_type = ps::transfer<ps::any_loader<digit>>;
///
///     ps::any_loader<digit> loader = chosen.shuffle                       // in a source file
///         ? ps::any_loader{ps::loader{digits, ps::shuffled{.seed = 1}, options}}
///         : ps::any_loader{ps::loader{digits, ps::sequential{}, options}};
///
/// What a `loader` is without its constructors: one is moved in, what has gone on in it goes on,
/// and states taken from one resume the other. Costs nothing. Movable; one thread consumes. A
/// moved-from object may only be assigned to and destroyed.
template <penstock::record_type Record, penstock::device Device = cpu_device>
class any_loader {
 protected:
  /// @cond derived
  using flow = detail::loader_flow<Record, Device>;
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
  /// Ends what this loader ran, as its destructor does, and takes over what `other` runs.
  any_loader& operator=(any_loader&& other) noexcept {
    if (this != &other) {
      shut_down();
      flow_ = std::move(other.flow_);
    }
    return *this;
  }

  /// Ends all threads as soon as the reads under way return, see also
  /// `loader_options::faults.timeout`. Leases stay valid, ranges end.
  ~any_loader() { shut_down(); }

  /// The batches of the epochs `first` to `last`, the latter not included, without a pause between
  /// epochs; nothing of `last` is read.
  [[nodiscard]] range_type epochs(std::uint64_t first, std::uint64_t last) & {
    return range_type{flow_, {first, 0}, last};
  }
  /// The batches of one epoch.
  [[nodiscard]] range_type epoch(std::uint64_t which) & { return epochs(which, which + 1); }
  /// The batches from `from` up to, but not including, epoch `last_epoch`. Starts in constant time,
  /// also in the middle of an epoch.
  [[nodiscard]] range_type batches(const batch_position& from, std::uint64_t last_epoch) & {
    return range_type{flow_, from, last_epoch};
  }

  /// The position of the next batch, for a checkpoint: the one after the last batch delivered,
  /// regardless of read-ahead; after the last one of an epoch that epoch's end, {e, batches}. For a
  /// loop over a transfer see `transfer::state`. Throws `option_error` where batches come out of
  /// order. From any thread.
  [[nodiscard]] loader_state state() const { return state_at(core().next_position()); }

  /// The state of a loop whose next batch is `next`: `state_at(batch.position())` that of one which
  /// has `batch` still to do, `state_at({e + 1, 0})` that of one which has done all that follows
  /// epoch e. Throws `option_error` where batches come out of order. From any thread.
  [[nodiscard]] loader_state state_at(const batch_position& next) const {
    return core().state_at(next);
  }

  /// Continues after the batch at which `state` was taken, up to but not including epoch
  /// `last_epoch`, in constant time: with the very next batch and the same ones from then on, also
  /// with other workers, prefetch, depth or device. From an epoch's end to the next epoch there is
  /// no batch: the loop does nothing, and what follows the epoch comes next. Throws
  /// `state_mismatch`, naming every difference, where the batches could not be the same.
  [[nodiscard]] range_type resume(const loader_state& state, std::uint64_t last_epoch) & {
    return batches(position_of(state), last_epoch);
  }

  /// The position of the batch with which `resume` goes on: what `state_at` was given, unless the
  /// world is another one. Throws `state_mismatch`, as `resume`. From any thread.
  [[nodiscard]] batch_position position_of(const loader_state& state) const {
    return core().position_of(state);
  }

  /// @cond misuse
  // A loader is no range, its epochs are: calling these does not compile, and says so.
  __attribute__((
      unavailable("penstock: loop over loader.epoch(e) or loader.epochs(first, last)"))) void
  begin() const;
  __attribute__((
      unavailable("penstock: loop over loader.epoch(e) or loader.epochs(first, last)"))) void
  end() const;
  /// @endcond

  /// How many batches an epoch has.
  [[nodiscard]] std::uint64_t batches_per_epoch() const noexcept { return core().plan().batches(); }
  /// How many batches of this loader are its part of a step over all ranks: 1, or with a sampler
  /// whose batches have each its own number of samples its `batches_per_step()` divided by the
  /// world.
  [[nodiscard]] std::uint64_t batches_per_step() const noexcept {
    const std::uint64_t all = core().source().batches_per_step();
    return all == 0 ? 1 : all / core().source().world();
  }
  /// How many samples an epoch has; with a sampler whose batches have each its own number of
  /// samples how many an epoch of full batches would have.
  [[nodiscard]] std::uint64_t samples_per_epoch() const noexcept { return core().plan().samples(); }
  /// What the loader was made with; `automatic` as it was written.
  [[nodiscard]] const loader_options& options() const noexcept { return core().asked(); }
  /// The memory that was taken, the number of slots, whether they are page-locked, where the
  /// workers run, and what the dataset says of itself. From any thread.
  [[nodiscard]] loader_footprint footprint() const { return core().footprint(); }

  /// How many host slots leases hold now, of `footprint().slot_count`: with all of them held
  /// `try_next` gives nothing any more. From any thread.
  [[nodiscard]] std::size_t held() const noexcept { return core().held(); }

  /// The place of the exception that ended the last range; empty if none did, or if it belongs to
  /// no batch, such as a device's failure between two. From any thread.
  [[nodiscard]] std::optional<penstock::failure> last_failure() const noexcept {
    return core().last_failure();
  }

  /// What could not be read so far and what was done about it by `loader_options::faults.on_error`,
  /// including batches that are only read ahead; empty where every exception simply propagates.
  /// From any thread.
  [[nodiscard]] failure_report failures() const { return core().failures(); }

  /// What has been read and waited for so far, see `loader_stats`. From any thread, also while a
  /// loop runs; costs some microseconds a worker, and a look at files of the container's.
  [[nodiscard]] loader_stats stats() const { return core().stats(); }

  /// What `workers` and `prefetch` have come to where they are `automatic`, and by which moves.
  /// From any thread, also while a loop runs; allocates a list of at most 32.
  [[nodiscard]] tuning_history tuning() const { return core().tuning(); }

  /// How many threads were detached because their read hung beyond
  /// `loader_options::faults.timeout`. From any thread.
  [[nodiscard]] std::size_t abandoned_readers() const noexcept {
    return core().abandoned_readers();
  }

  /// @name The members that make a `batch_source`; a loop uses `epochs` instead.
  /// @{
  [[nodiscard]] const Device& device() const noexcept { return core().device(); }
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept {
    return core().layout().template as<Record>();
  }
  void start(const batch_position& from, std::uint64_t last_epoch) {
    core().start(from, last_epoch);
  }
  [[nodiscard]] batch_type next() {
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
  void stop() noexcept { core().stop(); }
  [[nodiscard]] bool at_end() const noexcept { return core().at_end(); }
  [[nodiscard]] std::stop_token stop_token() const noexcept { return core().stop_token(); }
  /// What the batches are called in a trace of `recorder`; 0 where they are not recorded there.
  [[nodiscard]] std::uint64_t trace_flow(const trace_recorder* recorder) const noexcept {
    return core().trace_flow(recorder);
  }
  /// @}

 private:
  friend auto detail::fed_by<Record, Device>(any_loader& loader) noexcept
      -> std::shared_ptr<detail::loader_core<Device>>;

  void shut_down() noexcept {
    if (flow_) core().shut_down();
  }
  [[nodiscard]] detail::loader_core<Device>& core() const noexcept { return flow_->core(); }

  std::shared_ptr<flow> flow_;  // shared with the ranges: the loader may move, and even go
};

namespace detail {

template <record_type Record, device Device>
auto fed_by(any_loader<Record, Device>& loader) noexcept -> std::shared_ptr<loader_core<Device>> {
  return {loader.flow_, &loader.core()};
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock

/// What all loaders on a device share, whatever they read: the queue, the pool, the ring of slots.
/// Every object that uses it instantiates it, unless `extern template` leaves that to another:
/// `penstock::compiled` has it of `cpu_device`, `penstock::compiled_cuda` of `cuda_device`. For a
/// device of your own, at global scope, and for its transfers likewise `PENSTOCK_TRANSFERS_ON`:
///
///     PENSTOCK_LOADERS_ON(extern template, my::device)  // in the header of the device
///     PENSTOCK_LOADERS_ON(template, my::device)         // in one source
#define PENSTOCK_LOADERS_ON(kind, ...)                  \
  kind class penstock::detail::host_slots<__VA_ARGS__>; \
  kind class penstock::detail::loader_core<__VA_ARGS__>;

#if PENSTOCK_COMPILED
extern template struct penstock::detail::delete_outside_of_work<penstock::cpu_stream_ref>;
PENSTOCK_LOADERS_ON(extern template, penstock::cpu_device)
#endif
