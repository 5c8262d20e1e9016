// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>

#include <concepts>
#include <type_traits>

#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/device/device.hpp>
#include <penstock/load/options.hpp>
#include <penstock/order/sampler.hpp>

/// @file
/// What `loader{...}` says when its arguments are not those of a loader. A deduction guide that
/// names `loaded` checks them before the class's own constraints do, so that a sentence comes
/// first, ahead of the compiler's account of why no guide fits. Right arguments cost the
/// instantiation of one empty class.

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/device/cpu_device.hpp>
#include <penstock/faults/failure_ledger.hpp>
#include <penstock/load/batch_range.hpp>
#include <penstock/load/detail/consumer.hpp>
#include <penstock/load/footprint.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/support/failed_batch.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/support/trace.hpp>
#include <penstock/order/support/fingerprint.hpp>
#include <penstock/order/support/word_hash.hpp>
#include <penstock/resume/loader_state.hpp>
#include <penstock/threads/float_mode.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The arguments of a loader, each of which must be what its place asks for.
template <class Data, class Sampler, class Device>
struct loaded {
  static_assert((require_dataset<std::remove_cvref_t<Data>>(), true));
  static_assert(sampler<Sampler>,
                "penstock::loader: a sampler comes after the dataset, as in loader{data, "
                "ps::shuffled{.seed = 1}, {.batch_size = 64}}");
  static_assert(device<Device>,
                "penstock::loader: a device comes after the sampler, as in loader{data, "
                "ps::sequential{}, ps::cpu_device{}, {.batch_size = 64}}");
  using dataset_type = stored_dataset_t<Data>;
};

/// Arguments that miss a sampler.
template <class Data>
struct loaded_without_sampler {
  static_assert((require_dataset<std::remove_cvref_t<Data>>(), true));
  static_assert(!dataset<std::remove_cvref_t<Data>>,
                "penstock::loader: a sampler is missing, which says the order: loader{data, "
                "ps::shuffled{.seed = 1}, {.batch_size = 64}}, or ps::sequential{}");
  using dataset_type = stored_dataset_t<Data>;
};

/// Arguments that miss the options: the last one is none.
template <class Data, class Last>
struct loaded_without_options {
  static_assert((require_dataset<std::remove_cvref_t<Data>>(), true));
  // Options: clang 14 looks in here before it looks at what a guide requires.
  static_assert(!dataset<std::remove_cvref_t<Data>> || std::convertible_to<Last, loader_options>,
                "penstock::loader: options are missing, which come last: loader{data, "
                "ps::shuffled{.seed = 1}, {.batch_size = 64}}");
  using dataset_type = stored_dataset_t<Data>;
};

/// Arguments whose options do not come last.
template <class Data>
struct loaded_with_early_options {
  static_assert((require_dataset<std::remove_cvref_t<Data>>(), true));
  static_assert(!dataset<std::remove_cvref_t<Data>>,
                "penstock::loader: options come last: loader{data, ps::shuffled{.seed = 1}, "
                "{.batch_size = 64}}");
  using dataset_type = stored_dataset_t<Data>;
};

/// What a loader shares with its ranges: the batches that come, the one that the loop is at, and
/// the state of a loop.
template <dataset Dataset, sampler Sampler, device Device>
class loader_flow {
 public:
  using consumer_type = consumer<Dataset, Sampler, Device>;
  using batch_type = typename consumer_type::batch_type;

  template <class Data>
  loader_flow(Data&& data, const Sampler& order, const Device& device,
              const loader_options& options)
      : reads_(Dataset(std::forward<Data>(data)), order, device, options) {}

  [[nodiscard]] consumer_type& reads() noexcept { return reads_; }

  /// For a `batch_range`: starts to read; the range's serial number.
  std::uint64_t start(const batch_position& from, std::uint64_t last_epoch) {
    return reads_.start(from, last_epoch);
  }
  /// For a `batch_range`: releases the current batch and takes the next one; false at the end.
  bool advance() {
    step_.end();
    held_ = batch_type{};  // the release: before the next is waited for, it may need the slot
    failed_batch failed;
    held_ = reads_.next(failed);
    if (failed) std::rethrow_exception(failed.error);
    if (held_) step_.begin(reads_.trace(), held_.info());
    return static_cast<bool>(held_);
  }
  [[nodiscard]] batch_type& current() noexcept { return held_; }
  /// For a `batch_range`: ends the range that `serial` names.
  void finish(std::uint64_t serial) noexcept {
    if (!reads_.is_last(serial)) return;
    step_.end();
    held_ = batch_type{};
    reads_.stop();
  }

  /// The state of a loop whose next batch is `next`. Throws `option_error` where batches come out
  /// of order. From any thread.
  [[nodiscard]] loader_state state_at(const batch_position& next) {
    const auto& engine = reads_.engine();
    const loader_options& options = engine.options();
    if (!options.in_order) {
      throw option_error("in_order",
                         "must be true for a state, is false: batches that come as they are ready "
                         "leave no place to continue from");
    }
    std::call_once(asked_, [&] {
      const flushed_denormals as_on_a_worker;
      fingerprint_ = order_fingerprint(global_sampler(engine.order()), engine.dataset_size());
      if (const std::uint64_t chosen = fingerprint_of(engine.dataset()); chosen != 0) {
        word_hash both{fingerprint_};
        both.add(chosen);
        fingerprint_ = both.value();
      }
    });
    const auto& plan = engine.schedule().plan();
    const std::uint64_t world = world_size(engine.order());
    return {.version = loader_state{}.version,
            .last = static_cast<std::uint32_t>(options.last_batch),
            .epoch = next.epoch,
            .batch = next.batch,
            .dataset = engine.dataset_size(),
            .samples = plan.samples() * world,
            .batch_size = options.batch_size * world,
            .seed = options.seed,
            .order = fingerprint_};
  }

 private:
  consumer_type reads_;
  batch_type held_;
  noted_step step_;
  std::once_flag asked_;           // guards the next: states may be asked for on several threads
  std::uint64_t fingerprint_ = 0;  // of order and choices, once a state was asked for
};

}  // namespace detail

/// Reads batches of a dataset in the order of a sampler, on worker threads, into a fixed ring of
/// host slots. A loop over it gets leases of host memory; `transfer` carries them to a device.
///
///     ps::loader loader{digits | ps::map(augment), ps::shuffled{.seed = 1}, {.batch_size = 64}};
///     for (auto& batch : loader.epochs(0, 5)) use(ps::get<"image">(batch), batch.size());
///
/// An lvalue dataset is referred to and must outlive the loader; an rvalue is moved in. All memory
/// is taken, and all threads are started, at construction. The same dataset, sampler and seed give
/// the same batches, bit by bit, for any number of workers and any prefetch. Movable; one thread
/// consumes.
///
/// In a child made by fork() a loader with threads may only be destroyed, which returns at once and
/// keeps its memory; a range throws `std::logic_error` as soon as it would wait. One with `workers
/// = 0` and no watch has no threads, and works in both processes.
///
/// Its threads block no signals: a handler of the program's may run on them. To prevent that, block
/// the signals (pthread_sigmask) around the construction; threads start with the mask of their
/// creator. A wait may change errno.
///
/// Construction throws `option_error`, `empty_dataset`, `layout_error`, `pinned_budget_exceeded`,
/// `out_of_memory`, `std::system_error` (threads), what the device throws, and what the dataset's
/// size and extents do.
template <dataset Dataset, sampler Sampler, device Device = cpu_device>
class loader {
  using flow = detail::loader_flow<Dataset, Sampler, Device>;

 public:
  using record_type = typename Dataset::record_type;
  using device_type = Device;
  using batch_type = host_batch<record_type, Device>;
  using range_type = batch_range<flow>;

  /// Checks the options, takes all memory and starts the workers.
  template <class Data>
  loader(Data&& data, const Sampler& order, const Device& device, const loader_options& options)
      : flow_(std::make_shared<flow>(std::forward<Data>(data), order, device, options)) {
    reads().kept_alive_by(flow_);
  }

  /// Without a device: batches in host memory.
  template <class Data>
  loader(Data&& data, const Sampler& order, const loader_options& options)
      : loader(std::forward<Data>(data), order, Device{}, options) {}

  loader(loader&&) noexcept = default;
  /// Ends what this loader ran, as its destructor does, and takes over what `other` runs.
  loader& operator=(loader&& other) noexcept {
    if (this != &other) {
      shut_down();
      flow_ = std::move(other.flow_);
    }
    return *this;
  }

  /// Ends all threads as soon as the reads under way return, see also `loader_options::timeout`.
  /// Leases stay valid, ranges end.
  ~loader() { shut_down(); }

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
  [[nodiscard]] loader_state state() const { return state_at(reads().next_position()); }

  /// The state of a loop whose next batch is `next`: `state_at(batch.position())` that of one which
  /// has `batch` still to do, `state_at({e + 1, 0})` that of one which has done all that follows
  /// epoch e. Throws `option_error` where batches come out of order. From any thread.
  [[nodiscard]] loader_state state_at(const batch_position& next) const {
    return flow_->state_at(next);
  }

  /// Continues after the batch at which `state` was taken, up to but not including epoch
  /// `last_epoch`, in constant time: with the very next batch and the same ones from then on, also
  /// with other workers, prefetch, depth or device. From an epoch's end to the next epoch there is
  /// no batch: the loop does nothing, and what follows the epoch comes next. Throws
  /// `state_mismatch`, naming every difference, where the batches could not be the same.
  [[nodiscard]] range_type resume(const loader_state& state, std::uint64_t last_epoch) & {
    require_same_order(state, state_at({}));
    return batches({state.epoch, state.batch}, last_epoch);
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
  [[nodiscard]] std::uint64_t batches_per_epoch() const noexcept {
    return engine().schedule().plan().batches();
  }
  /// How many samples an epoch has.
  [[nodiscard]] std::uint64_t samples_per_epoch() const noexcept {
    return engine().schedule().plan().samples();
  }
  /// What the loader was made with; `automatic` as it was written.
  [[nodiscard]] const loader_options& options() const noexcept { return reads().asked(); }
  /// The memory that was taken, the number of slots, whether they are page-locked, where the workers
  /// run, and what the dataset says of itself. From any thread.
  [[nodiscard]] loader_footprint footprint() const {
    return detail::footprint_taken(engine().dataset(), *engine().ring(), engine().options(),
                                   reads().where());
  }

  /// How many host slots leases hold now, of `footprint().slot_count`: with all of them held
  /// `try_next` gives nothing any more. From any thread.
  [[nodiscard]] std::size_t held() const noexcept { return engine().ring()->leased(); }

  /// The place of the exception that ended the last range; empty if none did, or if it belongs to
  /// no batch, such as a device's failure between two. From any thread.
  [[nodiscard]] std::optional<penstock::failure> last_failure() const noexcept {
    return reads().last_failure();
  }

  /// What could not be read so far and what was done about it by `loader_options::on_error`,
  /// including batches that are only read ahead; empty where every exception simply propagates.
  /// From any thread.
  [[nodiscard]] failure_report failures() const { return engine().guard().report(); }

  /// What has been read and waited for so far, see `loader_stats`. From any thread, also while a
  /// loop runs; costs some microseconds a worker, and a look at files of the container's.
  [[nodiscard]] loader_stats stats() const { return engine().observer().snapshot(); }

  /// What `workers` and `prefetch` have come to where they are `automatic`, and by which moves.
  /// From any thread, also while a loop runs; allocates a list of at most 32.
  [[nodiscard]] tuning_history tuning() const { return reads().tuning(); }

  /// How many threads were detached because their read hung beyond `loader_options::timeout`.
  /// From any thread.
  [[nodiscard]] std::size_t abandoned_readers() const noexcept {
    return reads().abandoned_readers();
  }

  /// @name The members that make a `batch_source`; a loop uses `epochs` instead.
  /// @{
  [[nodiscard]] const Device& device() const noexcept { return engine().device(); }
  [[nodiscard]] const batch_layout<record_type>& layout() const noexcept {
    return engine().layout();
  }
  void start(const batch_position& from, std::uint64_t last_epoch) {
    reads().start(from, last_epoch);
  }
  [[nodiscard]] batch_type next() {
    detail::failed_batch failed;
    batch_type batch = next(failed);
    if (failed) std::rethrow_exception(failed.error);
    return batch;
  }
  [[nodiscard]] batch_type try_next() {
    detail::failed_batch failed;
    batch_type batch = try_next(failed);
    if (failed) std::rethrow_exception(failed.error);
    return batch;
  }
  /// For a `transfer`: as above, but an error comes as a value.
  [[nodiscard]] batch_type next(detail::failed_batch& failed) { return reads().next(failed); }
  /// As above.
  [[nodiscard]] batch_type try_next(detail::failed_batch& failed) {
    return reads().try_next(failed);
  }
  void stop() noexcept { reads().stop(); }
  [[nodiscard]] bool at_end() const noexcept { return reads().at_end(); }
  [[nodiscard]] std::stop_token stop_token() const noexcept { return options().stop; }
  /// What the batches are called in a trace of `recorder`; 0 where they are not recorded there.
  [[nodiscard]] std::uint64_t trace_flow(const trace_recorder* recorder) const noexcept {
    return recorder == options().trace ? engine().observer().trace_flow() : 0;
  }
  /// @}

 private:
  template <penstock::record_type, penstock::device>
  friend class any_loader;

  void shut_down() noexcept {
    if (flow_) reads().shut_down();
  }
  [[nodiscard]] typename flow::consumer_type& reads() const noexcept { return flow_->reads(); }
  [[nodiscard]] const auto& engine() const noexcept { return reads().engine(); }

  std::shared_ptr<flow> flow_;  // shared with the ranges: the loader may move, and even go
};

/// An lvalue dataset is referred to, an rvalue is moved in.
template <class Data, class Sampler, class Device>
loader(Data&&, const Sampler&, const Device&, loader_options)
    -> loader<typename detail::loaded<Data, Sampler, Device>::dataset_type, Sampler, Device>;
/// Without a device: batches in host memory, by the CPU device.
template <class Data, class Sampler>
loader(Data&&, const Sampler&, loader_options)
    -> loader<typename detail::loaded<Data, Sampler, cpu_device>::dataset_type, Sampler>;

/// @cond misuse
// For what is no loader's arguments: each says in a sentence what is wrong.
template <class Data>
loader(Data&&, loader_options)
    -> loader<typename detail::loaded_without_sampler<Data>::dataset_type, sequential>;
template <class Data, class Sampler>
  requires(!std::convertible_to<Sampler, loader_options>)
loader(Data&&, const Sampler&)
    -> loader<typename detail::loaded_without_options<Data, Sampler>::dataset_type, sequential>;
template <class Data, class Sampler, class Device>
  requires(!std::convertible_to<Device, loader_options>)
loader(Data&&, const Sampler&, const Device&)
    -> loader<typename detail::loaded_without_options<Data, Device>::dataset_type, sequential>;
template <class Data, class Sampler>
loader(Data&&, loader_options, const Sampler&)
    -> loader<typename detail::loaded_with_early_options<Data>::dataset_type, sequential>;
template <class Data, class First, class Second>
loader(Data&&, loader_options, const First&, const Second&)
    -> loader<typename detail::loaded_with_early_options<Data>::dataset_type, sequential>;
template <class Data, class Sampler, class Device>
loader(Data&&, const Sampler&, loader_options, const Device&)
    -> loader<typename detail::loaded_with_early_options<Data>::dataset_type, sequential>;
/// @endcond

}  // namespace PENSTOCK_ABI
}  // namespace penstock
