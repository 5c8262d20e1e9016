// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/support/cache_line.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/load/detail/ahead/teller.hpp>
#include <penstock/load/detail/delivery.hpp>
#include <penstock/load/detail/faults/guarded_reader.hpp>
#include <penstock/load/detail/faults/read_guard.hpp>
#include <penstock/load/detail/plan/claim_cursor.hpp>
#include <penstock/load/detail/plan/plan.hpp>
#include <penstock/load/detail/plan/schedule.hpp>
#include <penstock/load/detail/ragged/ragged_batches.hpp>
#include <penstock/load/detail/tuning/resolved_options.hpp>
#include <penstock/load/detail/tuning/seats.hpp>
#include <penstock/load/footprint.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/failed_batch.hpp>
#include <penstock/load/support/loader_observer.hpp>
#include <penstock/memory/support/host_slots.hpp>
#include <penstock/memory/support/last_owner.hpp>
#include <penstock/memory/support/sample_lists.hpp>
#include <penstock/observe/support/stage_mark.hpp>
#include <penstock/observe/support/trace_writer.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/order/support/stages.hpp>
#include <penstock/threads/float_mode.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The batch that a slot is bound to. Written by the opener before it publishes the cursor, read by
/// the workers that claim a run of it; `remaining_` hands it on to the worker that announces it.
template <class Order>
class alignas(cache_line) batch_work {
 public:
  batch_info info;
  std::uint64_t sequence = 0;  ///< the batch's number over the engine's life
  std::uint64_t opened = 0;    ///< when, in ticks of the statistics
  std::optional<Order> order;  ///< of its epoch; empty where making it has failed: nothing is read

  /// Opener only: the batch is this one from now on, and has no error yet.
  void bind(const batch_info& which, std::uint64_t number,
            const std::optional<Order>& of) noexcept {
    static_assert(std::is_trivially_copyable_v<Order>, "copied under a lock, and never throws");
    info = which;
    sequence = number;
    order = of;
    failed_.error = nullptr;
  }

  /// Opener only: the runs `first` to `last`, the latter not included, are to be finished, of
  /// `samples` samples each.
  void reset(std::uint32_t first, std::uint32_t last, std::size_t samples) noexcept {
    first_run_ = first;
    run_samples_ = samples;
    remaining_.store(last - first, std::memory_order_relaxed);
  }
  /// The first of those runs.
  [[nodiscard]] std::uint32_t first_run() const noexcept { return first_run_; }
  /// The places of the batch's samples that a run reads, the end not included; none where the batch
  /// is shorter.
  [[nodiscard]] std::pair<std::size_t, std::size_t> places_of(std::uint32_t run) const noexcept {
    const std::size_t begin = (std::min)(std::size_t{run - first_run_} * run_samples_, info.size);
    return {begin, (std::min)(begin + run_samples_, info.size)};
  }

  /// The dataset indices of the batch's samples from its place `begin` on, see `pick_samples`.
  void pick(const epoch_plan& plan, std::size_t begin,
            std::span<std::uint64_t> out) const noexcept {
    pick_samples(*order, plan, info, begin, out);
  }

  /// Counts a run down, also one that threw; true for the last one.
  bool finish_run() noexcept { return remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

  /// Keeps `one` unless one of an earlier place in the batch is kept already.
  void note_failed(failed_batch one) noexcept {
    const std::lock_guard lock{failed_mutex_};
    if (failed_ && failed_.place->position <= one.place->position) return;
    failed_ = std::move(one);
  }

  /// After the last run: what stands for the batch, if anything does.
  [[nodiscard]] failed_batch& failed() noexcept { return failed_; }

 private:
  // Invariant: the runs of this batch that are not finished. The step to 0 is acq_rel, so the
  // worker that makes it sees all that the others have written, and announces the batch.
  std::atomic<std::uint32_t> remaining_{0};
  std::uint32_t first_run_ = 0;
  std::size_t run_samples_ = 0;
  std::mutex failed_mutex_;
  failed_batch failed_;
};

/// Gives each batch of the schedule the order of its epoch. For the opener, one thread at a time.
///
/// The order of an epoch is made once a range, outside any lock: a sampler may take its time, or
/// hang, and the consumer can end the range all the same. What the sampler or the dataset's `size`
/// throws stays with the batch that was to be bound, as an exception of a read does, and comes at
/// its turn.
template <dataset Dataset, sampler Sampler>
class batch_binder {
 public:
  using work = batch_work<order_of<Sampler>>;

  /// For the dataset's `size` samples, which it must keep, in the order of `order`. Refers to all
  /// but the size.
  batch_binder(const Dataset& data, std::uint64_t size, const Sampler& order,
               schedule& batches) noexcept
      : data_(&data), size_(size), sampler_(&order), schedule_(&batches) {}

  /// Opener: makes `batch` the next one, with its order or the exception of making it; `reader`
  /// shows what goes on meanwhile. False when the range has ended before it was bound: `batch` is
  /// unchanged.
  [[nodiscard]] bool bind(work& batch, const guarded_reader& reader) noexcept {
    const auto next = schedule_->next();
    if (!next) return false;
    if (!made_for_ || made_for_->range != next->range || made_for_->at.epoch != next->at.epoch) {
      make_order(*next, reader);
    }
    const auto number = schedule_->bind(*next);
    if (!number) return false;
    batch.bind(schedule_->plan().at(next->at), *number, order_);
    if (error_) batch.note_failed({error_, failure{"order", next->at.epoch, next->at.batch}});
    return true;
  }

 private:
  void make_order(const schedule::place& next, const guarded_reader& reader) noexcept {
    order_.reset();
    error_ = nullptr;
    made_for_ = next;
    const auto shown = reader.shows_order(next.at.epoch, next.at.batch);
    try {
      const std::uint64_t now = data_->size();
      if (now != size_) throw dataset_changed(size_, now, next.at.epoch);
      order_.emplace(sampler_->order(size_, next.at.epoch));
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  const Dataset* data_;
  std::uint64_t size_;
  const Sampler* sampler_;
  schedule* schedule_;

  // Of the opener, which hands them on to the next one with the claim cursor.
  std::optional<schedule::place> made_for_;
  std::optional<order_of<Sampler>> order_;  // of that epoch; empty where making it has thrown
  std::exception_ptr error_;
};

/// The readers of `count` threads for runs of at most `most` samples, into batches of `layout`;
/// without threads the consumer's.
template <dataset D>
[[nodiscard]] std::vector<guarded_reader> make_readers(
    const D& data, const batch_layout<typename D::record_type>& layout, read_guard& guard,
    std::size_t count, std::size_t most) {
  std::vector<guarded_reader> all;
  do {
    all.emplace_back(std::make_unique<chunk_reader_of<D>>(data, layout), guard, all.size(), most);
  } while (all.size() < count);
  return all;
}

/// The host slots of a loader, as many as its options ask for and its budget grants. Throws
/// `pinned_budget_exceeded`, `out_of_memory`, and what the device throws.
template <record_type Record, device Device>
[[nodiscard]] std::shared_ptr<host_slots<Record, Device>> make_slots(
    const Device& device, const batch_layout<Record>& layout, const loader_options& options) {
  auto granted = reserve_slots(layout.bytes(), options);
  const auto count = static_cast<std::size_t>(granted.slot_count());
  auto ring = shared_by_leases<host_slots<Record, Device>, typename Device::stream_ref>(
      device, layout, count, slot_memory(options), std::move(granted));
  if (options.indices) ring->lists = sample_lists{count, options.batch_size};
  return ring;
}

/// Does with a batch that is read, `all`, what its dataset does with whole batches, see
/// `map_batch`. What that throws stays with the batch. A function of its own, so that no arithmetic
/// moves out of what flushes denormals around its call.
template <dataset D, class Work>
[[gnu::noinline]] void finish_batch(const D& data, Work& batch,
                                    const batch_view<typename D::record_type>& all,
                                    std::uint64_t seed) noexcept {
  if (!batch.order || batch.failed() || all.size() == 0) return;
  try {
    sample_generator rng{{seed, batch.info.epoch, batch_stage}, batch.info.batch};
    data.finish_batch(all, rng);
  } catch (...) {
    batch.note_failed(
        {std::current_exception(), failure{"batch", batch.info.epoch, batch.info.batch}});
  }
}

/// The path of a batch up to its announcement. A worker claims a run from the cursor. The opener
/// waits until a batch is wanted (`schedule`), takes a free slot, and binds it. Each worker reads
/// its run (`guarded_reader`), the last one announces it (`delivery`). `consumer` owns the `crew`.
template <dataset Dataset, sampler Sampler, device Device>
class engine {
 public:
  using record_type = typename Dataset::record_type;
  using slots_type = host_slots<record_type, Device>;
  using slot_work = batch_work<order_of<Sampler>>;
  static constexpr bool tells = looks_ahead<Dataset>;  ///< whether there is a `teller`

  engine(Dataset data, const Sampler& order, const Device& device, const loader_options& options)
      : options_((require_valid(options), require_batches_of(order, options), resolved(options))),
        dataset_(std::move(data)),
        dataset_size_(dataset_.size()),
        sampler_(order),
        device_(device),
        schedule_({order.size(dataset_size_), options.batch_size, options.last_batch}),
        layout_(extents_for(extents_of(dataset_), options), options.batch_size),
        slots_(make_slots(device_, layout_, options_)),
        run_(options_, layout_.sample_bytes()),
        cursor_(run_.runs()),
        work_(slots_->count()),
        delivery_(slots_->count(), options.in_order),
        binder_(dataset_, dataset_size_, sampler_, schedule_),
        guard_(options.on_error, {options.stall_warning, options.timeout, options.on_stall},
               facts_of(dataset_, dataset_size_),
               {std::max<std::size_t>(1, options_.workers), slots_->count(), options.batch_size}),
        readers_(make_readers(dataset_, layout_, guard_, options_.workers, run_.most())),
        observer_(options_.workers, run_.most(), fixed_bytes(layout_)),
        seats_(options_.workers, first_workers(options_)),
        teller_(dataset_, dataset_size_, sampler_, schedule_, layout_, options_, observer_) {
    guard_.list_to(slots_->lists);
    observer_.trace_to(options.trace);
    slots_->leases().trace_to(options.trace, observer_.trace_flow(), "host slot", slots_->count());
  }
  engine(engine&&) = delete;

  [[nodiscard]] const loader_options& options() const noexcept { return options_; }
  [[nodiscard]] const Device& device() const noexcept { return device_; }
  [[nodiscard]] const Dataset& dataset() const noexcept { return dataset_; }
  [[nodiscard]] const Sampler& order() const noexcept { return sampler_; }
  [[nodiscard]] std::uint64_t dataset_size() const noexcept { return dataset_size_; }
  [[nodiscard]] const batch_layout<record_type>& layout() const noexcept { return layout_; }
  [[nodiscard]] const std::shared_ptr<slots_type>& ring() const noexcept { return slots_; }
  [[nodiscard]] const detail::schedule& schedule() const noexcept { return schedule_; }
  [[nodiscard]] detail::schedule& schedule() noexcept { return schedule_; }
  [[nodiscard]] detail::delivery& delivery() noexcept { return delivery_; }
  [[nodiscard]] const read_guard& guard() const noexcept { return guard_; }
  [[nodiscard]] read_guard& guard() noexcept { return guard_; }
  [[nodiscard]] const loader_observer& observer() const noexcept { return observer_; }
  [[nodiscard]] loader_observer& observer() noexcept { return observer_; }
  [[nodiscard]] detail::seats& seats() noexcept { return seats_; }
  [[nodiscard]] teller_for<Dataset, Sampler>& teller() noexcept { return teller_; }
  /// What the batch in a slot is; for the consumer once it was announced.
  [[nodiscard]] slot_work& batch_in(std::uint32_t slot) noexcept { return work_[slot]; }
  [[nodiscard]] batch_view<record_type> view_of(std::uint32_t slot) const noexcept {
    return {slots_->data(slot), layout_, 0, work_[slot].info.size};
  }

  /// A worker's loop, until `stop` is requested and `wake` called. Throws what the device throws.
  void work(const std::stop_token& stop, std::size_t worker) {
    device_.make_current();
    flushed_denormals::keep_on();
    guarded_reader& reader = readers_[worker];
    meters& seen = observer_.reader(worker);
    const auto timed = seen.for_work();
    for (std::uint32_t fruitless = 0; !stop.stop_requested();) {
      if (!seats_.is_open(worker)) [[unlikely]] {
        leave_until_open(seats_, worker, cursor_, seen);
        continue;
      }
      claim got = cursor_.next();
      if (got.what == claim::kind::wait) {
        const auto waits = seen.for_opener();
        cursor_.wait_past(got.batch, fruitless++);
        continue;
      }
      fruitless = 0;
      if (got.what == claim::kind::open && !open_next(stop, reader, seen, got)) return;
      read(got.slot, got.run, reader, seen);
      if (!work_[got.slot].finish_run()) continue;
      end_batch(got.slot, seen);
      delivery_.announce(work_[got.slot].sequence, got.slot);
    }
  }
  /// Wakes all workers, permanently: after a stop request.
  void wake() noexcept {
    slots_->close();
    schedule_.wake();
    cursor_.wake();
    seats_.close();
  }

  /// Without workers: binds a slot to the next batch and reads it on the calling thread, with all
  /// that a worker does. False when none is wanted.
  bool read_inline(std::uint32_t slot) {
    const flushed_denormals as_on_a_worker;  // for the sampler too
    meters& seen = observer_.reader(0);
    if (!bind_next(slot, readers_.front(), seen)) return false;
    for (std::uint32_t run = work_[slot].first_run(); run < run_.runs(); ++run)
      read(slot, run, readers_.front(), seen);
    end_batch(slot, seen);
    return true;
  }

 private:
  using steady_clock = std::chrono::steady_clock;
  using meters = worker_meters<tick_clock>;

  /// Opener: waits until one more batch is wanted and a slot is free, and binds the two. `got` is
  /// its first run then. False when the engine stops.
  bool open_next(const std::stop_token& stop, guarded_reader& reader, meters& seen, claim& got) {
    while (schedule_.wait_until_wanted(stop, seen)) {
      if (!spare_) {
        [[maybe_unused]] const stage_mark mark{marked_stage::wait_for_slot};
        spare_ = slots_->acquire(seen);
      }
      if (!spare_) return false;
      if (!bind_next(*spare_, reader, seen)) continue;  // the range has ended: the slot stays
      got.slot = *std::exchange(spare_, std::nullopt);
      got.run = work_[got.slot].first_run();
      cursor_.publish(static_cast<std::uint32_t>(work_[got.slot].sequence), got.slot, got.run);
      return true;
    }
    return false;
  }

  /// Binds a slot to the next batch; false when none is wanted any more. Not inlined, as `read`.
  [[gnu::noinline]] bool bind_next(std::uint32_t slot, const guarded_reader& reader,
                                   const meters& seen) noexcept {
    slot_work& batch = work_[slot];
    if (!binder_.bind(batch, reader)) return false;
    teller_.note_opened(batch.sequence);
    if constexpr (tells_lengths<Dataset>) place_samples(dataset_, schedule_, batch, view_of(slot));
    batch.opened = seen.open();
    const std::size_t samples = run_.samples();
    batch.reset(run_.first_run(samples), run_.runs(), samples);
    guard_.begin_batch(slot);
    return true;
  }

  /// Reads run `run` of the batch in `slot`. An exception stays with the batch. A function of its
  /// own, so that no arithmetic of a read moves out of what flushes denormals around its call.
  [[gnu::noinline]] void read(std::uint32_t slot, std::uint32_t run, guarded_reader& reader,
                              meters& seen) noexcept {
    slot_work& batch = work_[slot];
    const auto [begin, end] = batch.places_of(run);
    if (!batch.order || begin == end || is_unwanted(batch)) return;
    [[maybe_unused]] const stage_mark mark{marked_stage::read, batch.info.batch};
    const trace_scope traced{seen.trace(), trace_stage::read, batch.info, end - begin};
    const auto wanted = reader.indices(end - begin);
    batch.pick(schedule_.plan(), begin, wanted);
    slots_->lists.note(slot, begin, wanted);
    const bool is_timed = run == batch.first_run() && run_.is_timed(batch.sequence);
    const auto began = is_timed ? steady_clock::now() : steady_clock::time_point{};
    const random_key key{options_.seed, batch.info.epoch};
    const auto is_over = [&] { return is_unwanted(batch); };
    failed_batch* const failed =
        reader.read({slot, batch.info, slots_->data(slot), begin, wanted, key}, is_over,
                    seen.reads().begin(batch.sequence, wanted.size()));
    if (failed != nullptr) return batch.note_failed(std::move(*failed));
    seen.reads().end(wanted);
    if (is_timed) run_.note(wanted.size(), steady_clock::now() - began);
  }

  [[nodiscard]] bool is_unwanted(const slot_work& batch) const noexcept {
    return schedule_.is_cancelled(batch.sequence) || delivery_.has_failed();
  }

  /// The batch in `slot` is read.
  void end_batch(std::uint32_t slot, meters& seen) noexcept {
    slot_work& batch = work_[slot];
    teller_.note_read(batch.sequence);
    guard_.end_batch(slot, slots_->data(slot), layout_, batch.info);
    if constexpr (tells_lengths<Dataset>) note_values(seen.reads(), teller_, batch, view_of(slot));
    if constexpr (finishes_batches<Dataset>)
      if (!is_unwanted(batch)) finish_batch(dataset_, batch, view_of(slot), options_.seed);
    seen.close(batch.opened);
  }

  loader_options options_;
  Dataset dataset_;
  std::uint64_t dataset_size_;  // when the plan was made: what it has to be in every epoch
  Sampler sampler_;
  Device device_;
  detail::schedule schedule_;
  batch_layout<record_type> layout_;
  std::shared_ptr<slots_type> slots_;
  run_length run_;
  claim_cursor<> cursor_;
  std::vector<slot_work> work_;  // by slot
  detail::delivery delivery_;
  batch_binder<Dataset, Sampler> binder_;
  std::optional<std::uint32_t> spare_;  // of the opener: a slot at hand
  read_guard guard_;
  std::vector<guarded_reader> readers_;  // by worker; without workers the consumer's
  loader_observer observer_;
  detail::seats seats_;
  [[no_unique_address]] teller_for<Dataset, Sampler> teller_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
