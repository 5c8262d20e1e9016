// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <penstock/data/dataset.hpp>
#include <penstock/faults/detail/read_watch.hpp>
#include <penstock/faults/detail/recovery.hpp>
#include <penstock/load/detail/batch_binder.hpp>
#include <penstock/load/detail/batch_work.hpp>
#include <penstock/load/detail/claim_cursor.hpp>
#include <penstock/load/detail/delivery.hpp>
#include <penstock/load/detail/epoch_plan.hpp>
#include <penstock/load/detail/host_slots.hpp>
#include <penstock/load/detail/run_length.hpp>
#include <penstock/load/footprint.hpp>
#include <penstock/load/options.hpp>
#include <penstock/memory/detail/last_owner.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/threads/float_mode.hpp>
#include <penstock/threads/worker_pool.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What a loader runs on: the workers, the ring of host slots, the order of delivery. `loader` is its
/// owner and its face. One consumer thread calls start, next, try_next and stop; the numbers of
/// batches ("sequence") count on over all ranges of the engine's life.
///
/// The path of a batch: a worker claims a run from the cursor. The opener waits until a batch is
/// wanted, takes a free slot, binds it (`open_next`). Each worker reads its run (`fill`), the last
/// one of a batch announces it (`finish_run`), the consumer takes it (`next`).
template <dataset Dataset, sampler Sampler, device Device>
class engine {
 public:
  using record_type = typename Dataset::record_type;
  using batch_type = host_batch<record_type, Device>;

  engine(Dataset data, const Sampler& order, const Device& where, const loader_options& options)
      : options_((require_valid(options), require_batches_of(order, options), options)),
        dataset_(std::move(data)),
        dataset_size_(dataset_.size()),
        sampler_(order),
        device_(where),
        plan_(order.size(dataset_size_), options.batch_size, options.last_batch),
        layout_(extents_of(dataset_), options.batch_size),
        slots_(make_slots()),
        run_(options, layout_.sample_bytes()),
        runs_(runs_of(run_.least())),
        cursor_(runs_),
        work_(slots_->count()),
        delivery_(slots_->count(), options.in_order),
        binder_(dataset_, dataset_size_, sampler_, plan_),
        recovery_(options.on_error, dataset_size_, slots_->count(), options.batch_size,
                  base_sizes_of(dataset_)),
        watch_(options, names_failed_sample<Dataset>,
               [this](std::uint64_t sample) { return origin_of(dataset_, sample); }),
        cancellation_(make_cancellation(options)),
        hands_(make_hands(dataset_, recovery_, watch_, options.workers, run_.most())),
        pool_(options.workers, work_on{this}, wake_all{this}),
        on_stop_(options.stop, cancel_all{this}) {
    watch_.start([this](std::exception_ptr error, const failure& read) noexcept {
      die(std::move(error), read);
    });
  }

  engine(engine&&) = delete;
  ~engine() { shut_down(); }

  /// `state` is what holds this engine: a reader that is let go keeps it alive.
  void kept_alive_by(const std::shared_ptr<void>& state) noexcept { state_ = state; }

  /// Ends the range and all threads, for good: no batch comes any more. Reads are waited for, but those
  /// beyond the timeout of a dataset that is our own.
  void shut_down() noexcept {
    if (is_in_child()) {
      // Its threads are not here to be waited for, and may have held any lock when the process was
      // copied: nothing is touched, and from now on this keeps itself.
      active_ = false;
      is_shut_down_ = true;
      kept_ = state_.lock();
      return;
    }
    stop();
    end_workers();
    watch_.stop();
    if constexpr (borrows_any) watch_.report_blocked();
    pool_.stop();
    is_shut_down_ = true;
  }

  [[nodiscard]] const loader_options& options() const noexcept { return options_; }
  [[nodiscard]] const Device& device() const noexcept { return device_; }
  [[nodiscard]] const epoch_plan& plan() const noexcept { return plan_; }
  [[nodiscard]] const batch_layout<record_type>& layout() const noexcept { return layout_; }
  [[nodiscard]] const host_slots<record_type, Device>& ring() const noexcept { return *slots_; }
  [[nodiscard]] const batch_position& next_position() const noexcept { return next_position_; }
  [[nodiscard]] std::uint64_t dataset_size() const noexcept { return dataset_size_; }
  [[nodiscard]] const Sampler& order() const noexcept { return sampler_; }
  [[nodiscard]] const std::optional<failure>& last_failure() const noexcept { return failure_; }
  [[nodiscard]] failure_report failures() const { return recovery_.report(); }
  [[nodiscard]] std::size_t abandoned_readers() const noexcept { return abandoned_; }

  /// Begins to read the batches from `from` to the begin of epoch `last_epoch`.
  void start(const batch_position& from, std::uint64_t last_epoch) {
    if (active_) {
      throw std::logic_error(
          "penstock::loader: a range over this loader is still live: leave its loop, or destroy "
          "the range, before another one begins");
    }
    if (is_shut_down_) {
      throw std::logic_error(
          "penstock::loader: the loader of this range is gone: keep it as long as its ranges");
    }
    require_own_process();
    const batch_position first = plan_.normal(from);
    end_seen_ = binder_.begin(first, plan_.count(first, last_epoch));
    active_ = true;
    next_position_ = first;
    failure_.reset();
    demand_.advance();
  }

  /// The next batch, waiting for it; empty at the end of what was started. Throws what the dataset
  /// has thrown for this batch, `leases_exhausted`, `cancelled`, `read_timeout`, or what the device
  /// throws; the range is over then.
  [[nodiscard]] batch_type next() {
    if (at_end()) {
      stop();
      return {};
    }
    try {
      if (delivery_.has_failed()) delivery_.rethrow(failure_);
      return options_.workers == 0 ? read_inline() : take(wait_for_next());
    } catch (...) {
      const auto error = std::current_exception();
      stop();
      std::rethrow_exception(error);
    }
  }

  /// The next batch if it is complete already; else empty. Without workers always empty.
  [[nodiscard]] batch_type try_next() {
    if (at_end() || options_.workers == 0) return {};
    if (delivery_.is_ready(next_) || delivery_.has_failed()) return next();
    require_own_process();
    slots_->nudge();
    return {};
  }

  /// Whether `next` has no batch left to give.
  [[nodiscard]] bool at_end() const noexcept { return !active_ || next_ == end_seen_; }

  /// Ends the range: nothing new is read, reads that run are waited for, their slots come back. The
  /// engine can be started again. Never throws; without a range it does nothing.
  void stop() noexcept {
    if (!active_) return;
    active_ = false;
    if (is_in_child()) return;
    const std::uint64_t opened = binder_.end();
    cancelled_.value.store(opened, std::memory_order_release);
    recovery_.interrupt();
    if (options_.workers == 0) next_ = opened;
    for (; next_ != opened; ++next_) {
      const auto slot = delivery_.wait(next_);
      if (!slot) return end_workers();  // nothing is delivered any more: others may still read
      work_[*slot].take_error();
      slots_->give_back(*slot);
    }
    // Where nothing was under way, an opener may still hang in its sampler.
    if (delivery_.has_failed()) end_workers();
  }

 private:
  /// Whether a thread that hangs may need what is not ours: the sampler's is the same case.
  static constexpr bool borrows_any = borrows<Dataset> || borrows<Sampler>;
  using slot_work = batch_work<order_of<Sampler>>;
  using hands = reading_hands<Dataset>;
  using clock = std::chrono::steady_clock;

  struct work_on {  // what the pool's threads run
    engine* self;
    void operator()(const std::stop_token& stop, std::size_t worker) const {
      self->work(stop, self->hands_[worker]);
    }
  };
  struct wake_all {
    engine* self;
    void operator()() const noexcept {
      self->slots_->close();
      self->demand_.advance();
      self->cursor_.wake();
    }
  };
  struct cancel_all {
    engine* self;
    void operator()() const noexcept {
      self->die(self->cancellation_);
      self->pool_.request_stop();
    }
  };

  std::shared_ptr<host_slots<record_type, Device>> make_slots() const {
    auto granted = reserve_slots(layout_.bytes(), options_);
    const auto count = static_cast<std::size_t>(granted.slot_count());
    return shared_by_leases<host_slots<record_type, Device>, typename Device::stream_ref>(
        device_, layout_, count, slot_memory(options_), std::move(granted));
  }

  /// Whether fork() has made this process out of the one that the threads are in. Without threads
  /// there is nothing to miss.
  [[nodiscard]] bool is_in_child() const noexcept {
    return (options_.workers != 0 || watch_.is_on()) && ::getpid() != process_;
  }
  void require_own_process() const {
    if (!is_in_child()) return;
    throw std::logic_error("penstock::loader: its threads are in process " +
                           std::to_string(process_) +
                           ", which has made this one by fork(): make a loader of its own here, or "
                           "one with workers = 0 "
                           "before the fork");
  }

  [[nodiscard]] std::uint32_t runs_of(std::size_t run) const noexcept {
    return static_cast<std::uint32_t>((options_.batch_size + run - 1) / run);
  }

  static std::exception_ptr make_cancellation(const loader_options& options) {
    if (!options.stop.stop_possible()) return nullptr;
    return std::make_exception_ptr(cancelled("cancelled: loader_options::stop was requested"));
  }

  /// Ends the workers, and waits for them but for those whose read was given up: where the dataset is
  /// our own their threads are let go, else they wait for `shut_down`.
  void end_workers() noexcept {
    const auto is_lost = [this](std::size_t worker) { return watch_.is_given_up(worker); };
    abandoned_ += pool_.stop(is_lost, borrows_any ? nullptr : state_.lock());
  }

  // ---- workers

  void work(const std::stop_token& stop, hands& own) {
    try {
      device_.make_current();
      flushed_denormals::keep_on();
      for (std::uint32_t fruitless = 0; !stop.stop_requested();) {
        claim got = cursor_.next();
        if (got.what == claim::kind::wait) {
          cursor_.wait_past(got.batch, fruitless++);
          continue;
        }
        fruitless = 0;
        if (got.what == claim::kind::open) {
          const auto slot = open_next(stop, own.mark);
          if (!slot) return;
          got.slot = *slot;
          got.run = work_[*slot].first_run();
        }
        fill(got.slot, got.run, own);
        finish_run(got.slot);
      }
    } catch (...) {
      die(std::current_exception());
      throw;
    }
  }

  /// Opener: waits until one more batch is wanted and a slot is free, and binds the two. Nothing when
  /// the engine stops.
  std::optional<std::uint32_t> open_next(const std::stop_token& stop, read_mark* mark) {
    for (;;) {
      const std::uint32_t seen = demand_.load();
      if (stop.stop_requested()) return std::nullopt;
      if (!binder_.is_wanted()) {
        demand_.wait([seen](std::uint32_t now) { return now != seen; });
        continue;
      }
      if (!spare_) spare_ = slots_->acquire();
      if (!spare_) return std::nullopt;
      if (!bind(*spare_, mark)) continue;  // the range ended meanwhile: the slot stays at hand
      const std::uint32_t slot = *std::exchange(spare_, std::nullopt);
      cursor_.publish(static_cast<std::uint32_t>(work_[slot].sequence), slot,
                      work_[slot].first_run());
      return slot;
    }
  }

  /// Binds a slot to the next batch; false when none is wanted any more. Not inlined, as `fill`.
  [[gnu::noinline]] bool bind(std::uint32_t slot, read_mark* mark) noexcept {
    slot_work& batch = work_[slot];
    if (!binder_.bind(batch, mark)) return false;
    const std::size_t run = run_.samples();
    batch.open(runs_ - runs_of(run), runs_, run);
    recovery_.open(slot);
    return true;
  }

  /// Reads run `run` of the batch in `slot`. An exception stays with the batch. A function of its
  /// own, so that no arithmetic of a read moves out of what flushes denormals around its call.
  [[gnu::noinline]] void fill(std::uint32_t slot, std::uint32_t run, hands& own) noexcept {
    slot_work& batch = work_[slot];
    const auto [begin, end] = batch.places_of(run);
    const auto is_over = [&] {
      return batch.sequence < cancelled_.value.load(std::memory_order_acquire) ||
             delivery_.has_failed();
    };
    if (!batch.order || begin == end || is_over()) return;
    const std::span wanted{own.indices.data(), end - begin};
    const batch_view<record_type> all{slots_->data(slot), layout_, 0, batch.info.size};
    if (own.mark != nullptr) own.mark->enter_batch(batch.info.epoch, batch.info.index);
    try {
      batch.pick(plan_, begin, wanted);
      const bool is_timed = run == batch.first_run() && run_.is_timed(batch.sequence);
      const auto began = is_timed ? clock::now() : clock::time_point{};
      own.source.read(slot, wanted, all.subrun(begin, wanted.size()),
                      {options_.seed, batch.info.epoch}, is_over);
      if (is_timed) run_.note(wanted.size(), clock::now() - began);
    } catch (...) {
      const std::size_t at = own.source.failed_at();
      batch.note_error({"read", batch.info.epoch, batch.info.index, begin + at, wanted[at],
                        own.source.is_exact()});
    }
  }

  /// Counts a run down; the last one of the batch announces it.
  void finish_run(std::uint32_t slot) noexcept {
    slot_work& batch = work_[slot];
    if (!batch.finish_run()) return;
    recovery_.close(slot, slots_->data(slot), layout_, batch.info);
    delivery_.announce(batch.sequence, slot);
  }

  /// Nothing can be read any more: a worker failed outside a dataset's read (the device is in error), a
  /// read hangs beyond the timeout, or somebody asked to stop. The consumer gets the exception at its
  /// next step. From any thread.
  void die(std::exception_ptr error, const std::optional<failure>& where = {}) noexcept {
    delivery_.fail(std::move(error), where);
    recovery_.interrupt();
    pool_.look_again();
  }

  // ---- the consumer

  /// The slot of the next batch once it is complete.
  std::uint32_t wait_for_next() {
    // Unless leases end on other threads, nobody but the consumer could give a slot back.
    if (options_.when_held == when_held::fail && slots_->leased() == slots_->count()) {
      slots_->throw_exhausted();
    }
    const bool starving = !delivery_.is_ready(next_);
    if (starving) require_own_process();
    if (starving) slots_->set_starving(true);
    const auto slot = delivery_.wait(next_);
    if (starving) slots_->set_starving(false);
    if (!slot) delivery_.rethrow(failure_);
    return *slot;
  }

  /// Makes the lease of a complete batch, or throws its error.
  batch_type take(std::uint32_t slot) {
    ++next_;
    slot_work& batch = work_[slot];
    auto error = batch.take_error();
    failure where = batch.error_where();
    if (!error) error = recovery_.judge(slot, batch.info, where);
    if (error) {
      if (where.stage == "read") where.origin = origin_of(dataset_, where.sample);
      failure_ = where;
      slots_->give_back(slot);
      std::rethrow_exception(error);
    }
    try {
      batch_type lease{slots_, slot, batch.info};
      next_position_ = {batch.info.epoch, batch.info.index + 1};
      return lease;
    } catch (...) {  // a checked build without memory for what it keeps of a lease
      slots_->give_back(slot);
      throw;
    }
  }

  batch_type read_inline() {
    auto slot = slots_->try_acquire();
    if (!slot && options_.when_held == when_held::wait) slot = slots_->acquire_starving();
    if (!slot && delivery_.has_failed()) delivery_.rethrow(failure_);  // stopped meanwhile
    if (!slot) slots_->throw_exhausted();
    const flushed_denormals as_on_a_worker;  // for the sampler too
    if (!bind(*slot, hands_.front().mark)) {
      slots_->give_back(*slot);
      return {};
    }
    for (std::uint32_t run = work_[*slot].first_run(); run < runs_; ++run) {
      fill(*slot, run, hands_.front());
    }
    if (delivery_.has_failed()) {  // and the batch may not be whole
      slots_->give_back(*slot);
      delivery_.rethrow(failure_);
    }
    recovery_.close(*slot, slots_->data(*slot), layout_, work_[*slot].info);
    return take(*slot);
  }

  loader_options options_;
  ::pid_t process_ = ::getpid();  // where the threads are
  Dataset dataset_;
  std::uint64_t dataset_size_;  // when the plan was made: what it has to be in every epoch
  Sampler sampler_;
  Device device_;
  epoch_plan plan_;
  batch_layout<record_type> layout_;
  std::shared_ptr<host_slots<record_type, Device>> slots_;
  run_length run_;      // samples a run
  std::uint32_t runs_;  // runs a batch, at most

  claim_cursor<> cursor_;
  std::vector<slot_work> work_;  // by slot
  delivery delivery_;

  batch_binder<Dataset, Sampler> binder_;

  detail::waitable_counter demand_;     // moves when more batches are wanted
  std::optional<std::uint32_t> spare_;  // of the opener: a slot at hand
  // Batches below it are not read any more. Every worker looks at it for each run; it stands
  // between what the opener and what the consumer writes for each batch.
  detail::own_line<std::atomic<std::uint64_t>> cancelled_{0};

  std::uint64_t next_ = 0;  // of the consumer: the next batch to take
  std::uint64_t end_seen_ = 0;
  batch_position next_position_;  // of that batch, in order
  bool active_ = false;
  bool is_shut_down_ = false;
  std::optional<failure> failure_;

  recovery recovery_;
  read_watch watch_;
  const std::exception_ptr cancellation_;  // made before it is needed: a stop must not want memory
  std::vector<hands> hands_;               // by worker; without workers the consumer's
  std::size_t abandoned_ = 0;
  std::weak_ptr<void> state_;
  std::shared_ptr<void> kept_;              // in a child process: what holds this engine, for good
  worker_pool<work_on, wake_all> pool_;     // its threads use all of the above
  std::stop_callback<cancel_all> on_stop_;  // last: it uses the pool
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
