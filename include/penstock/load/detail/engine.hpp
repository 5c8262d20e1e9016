// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/load/detail/ahead/teller.hpp>
#include <penstock/load/detail/batch_binder.hpp>
#include <penstock/load/detail/batch_work.hpp>
#include <penstock/load/detail/delivery.hpp>
#include <penstock/load/detail/faults/guarded_reader.hpp>
#include <penstock/load/detail/faults/make_readers.hpp>
#include <penstock/load/detail/faults/read_guard.hpp>
#include <penstock/load/detail/make_slots.hpp>
#include <penstock/load/detail/plan/claim_cursor.hpp>
#include <penstock/load/detail/plan/finish_batch.hpp>
#include <penstock/load/detail/plan/run_length.hpp>
#include <penstock/load/detail/plan/schedule.hpp>
#include <penstock/load/detail/plan/slots_wanted.hpp>
#include <penstock/load/detail/ragged/ragged_batches.hpp>
#include <penstock/load/detail/tuning/resolved_options.hpp>
#include <penstock/load/detail/tuning/seats.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/loader_observer.hpp>
#include <penstock/memory/support/host_slots.hpp>
#include <penstock/observe/support/stage_mark.hpp>
#include <penstock/observe/support/trace_writer.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/threads/float_mode.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The path of a batch up to its announcement. A worker claims a run from the cursor. The opener
/// waits until a batch is wanted (`schedule`), takes a free slot, and binds it. Each worker reads
/// its run (`guarded_reader`), the last one announces it (`delivery`). `consumer` owns the `crew`.
template <dataset Dataset, sampler Sampler, device Device>
class engine {
 public:
  using record_type = typename Dataset::record_type;
  using slots_type = host_slots<record_type, Device>;
  using slot_work = batch_work<order_of<Sampler>>;

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
        readers_(make_readers(dataset_, guard_, options_.workers, run_.most())),
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
  [[nodiscard]] detail::teller<Dataset, Sampler>& teller() noexcept { return teller_; }
  /// What the batch in a slot is; for the consumer once it was announced.
  [[nodiscard]] slot_work& batch_in(std::uint32_t slot) noexcept { return work_[slot]; }
  [[nodiscard]] batch_view<record_type> view_of(std::uint32_t slot) const noexcept {
    return {slots_->data(slot), layout_, 0, work_[slot].info.size};
  }

  /// A worker's loop, until `stop` is requested and `wake` called. Throws what the device throws.
  void work(const std::stop_token& stop, std::size_t worker) {
    device_.make_current();
    flushed_denormals::keep_on();
    guarded_reader<Dataset>& reader = readers_[worker];
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
  bool open_next(const std::stop_token& stop, guarded_reader<Dataset>& reader, meters& seen,
                 claim& got) {
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
  [[gnu::noinline]] bool bind_next(std::uint32_t slot, const guarded_reader<Dataset>& reader,
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
  [[gnu::noinline]] void read(std::uint32_t slot, std::uint32_t run,
                              guarded_reader<Dataset>& reader, meters& seen) noexcept {
    slot_work& batch = work_[slot];
    const auto [begin, end] = batch.places_of(run);
    if (!batch.order || begin == end || is_unwanted(batch)) return;
    [[maybe_unused]] const stage_mark mark{marked_stage::read, batch.info.batch};
    const trace_scope traced{seen.trace(), trace_stage::read, batch.info, end - begin};
    const auto wanted = reader.indices(end - begin);
    try {
      batch.pick(schedule_.plan(), begin, wanted);
      slots_->lists.note(slot, begin, wanted);
      const bool is_timed = run == batch.first_run() && run_.is_timed(batch.sequence);
      const auto began = is_timed ? steady_clock::now() : steady_clock::time_point{};
      reader.read(
          slot, batch.info, wanted, view_of(slot).subrun(begin, wanted.size()),
          {options_.seed, batch.info.epoch}, [&] { return is_unwanted(batch); },
          seen.reads().begin(batch.sequence, wanted.size()));
      seen.reads().end(wanted);
      if (is_timed) run_.note(wanted.size(), steady_clock::now() - began);
    } catch (...) {
      batch.note_error(reader.where());
    }
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
  std::vector<guarded_reader<Dataset>> readers_;  // by worker; without workers the consumer's
  loader_observer observer_;
  detail::seats seats_;
  detail::teller<Dataset, Sampler> teller_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
