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
#include <stop_token>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/core/support/fork_guard.hpp>
#include <penstock/device/device.hpp>
#include <penstock/load/batch_range.hpp>
#include <penstock/load/detail/active_workers.hpp>
#include <penstock/load/detail/batch_work.hpp>
#include <penstock/load/detail/claim_cursor.hpp>
#include <penstock/load/detail/delivery.hpp>
#include <penstock/load/detail/guarded_reader.hpp>
#include <penstock/load/detail/loop_tuner.hpp>
#include <penstock/load/detail/plan.hpp>
#include <penstock/load/detail/read_guard.hpp>
#include <penstock/load/detail/schedule.hpp>
#include <penstock/load/detail/source_ops.hpp>
#include <penstock/load/detail/worker_binding.hpp>
#include <penstock/load/footprint.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/loader_observer.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/memory/support/host_slots.hpp>
#include <penstock/memory/support/sample_lists.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/support/trace.hpp>
#include <penstock/observe/support/trace_writer.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/order/random.hpp>
#include <penstock/resume/loader_state.hpp>
#include <penstock/threads/float_mode.hpp>
#include <penstock/threads/support/shared_value.hpp>
#include <penstock/threads/worker_pool.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What a consumer gets once `stop` is requested; null where it can't be.
[[nodiscard]] inline std::exception_ptr cancellation_of(const std::stop_token& stop) {
  if (!stop.stop_possible()) return nullptr;
  return std::make_exception_ptr(cancelled("cancelled: loader_options::stop was requested"));
}

/// A loader without the types of its dataset, sampler and record: the whole way of a batch, from
/// the claim of its chunks to the consumer.
///
/// Workers claim chunks from the cursor. The opener waits until a batch is wanted (`schedule`),
/// takes a free slot, and binds it. Each worker reads its chunk (`guarded_reader`), the last one
/// announces the batch (`delivery`). The consumer's thread starts ranges, takes what is announced,
/// and ends ranges and threads.
template <device Device>
class loader_core {
 public:
  using device_type = Device;
  using ring_type = host_slots<Device>;
  using batch_type = host_lease<Device>;

  /// `asked` with numbers in place of `automatic`. Throws `option_error` where no loader can work
  /// with them.
  [[nodiscard]] static loader_options checked(const loader_options& asked);
  /// The host slots of a loader, as many as its resolved options ask for and its budget grants.
  /// Throws `pinned_budget_exceeded`, `out_of_memory`, and what the device throws.
  [[nodiscard]] static std::shared_ptr<ring_type> make_slots(const Device& device,
                                                             const slot_layout& layout,
                                                             const loader_options& options);

  /// Starts all threads. Batches by `plan`, in the slots of `ring`; `asked` is what the user wrote,
  /// `options` that with numbers in place of `automatic`.
  loader_core(std::unique_ptr<source_ops> source, const epoch_plan& plan,
              std::shared_ptr<ring_type> ring, const loader_options& asked,
              const loader_options& options);
  loader_core(loader_core&&) = delete;
  ~loader_core();

  /// `state` is what holds this object: the thread of a reader that is abandoned keeps it alive.
  void kept_alive_by(const std::shared_ptr<void>& state) noexcept { state_ = state; }

  /// Ends the range and all threads, permanently. Waits for reads, except those beyond the timeout
  /// of a dataset that the loader owns.
  void shut_down() noexcept;

  /// @name From any thread
  /// @{
  [[nodiscard]] const loader_options& asked() const noexcept { return asked_; }
  [[nodiscard]] const loader_options& options() const noexcept { return options_; }
  [[nodiscard]] const source_ops& source() const noexcept { return *source_; }
  [[nodiscard]] const epoch_plan& plan() const noexcept { return schedule_.plan(); }
  [[nodiscard]] failure_report failures() const;
  /// The position of the batch after the one that was taken last, in order.
  [[nodiscard]] batch_position next_position() const noexcept { return next_position_.load(); }
  /// The place of the exception that ended the last range.
  [[nodiscard]] std::optional<failure> last_failure() const noexcept { return failure_.load(); }
  /// How many threads were detached.
  [[nodiscard]] std::size_t abandoned_readers() const noexcept { return abandoned_.load(); }
  /// What was chosen while the loop ran.
  [[nodiscard]] tuning_history tuning() const;
  /// What was taken.
  [[nodiscard]] loader_footprint footprint() const;
  [[nodiscard]] loader_stats stats() const { return observer_.snapshot(); }
  [[nodiscard]] const Device& device() const noexcept { return slots_->device(); }
  [[nodiscard]] const slot_layout& layout() const noexcept { return layout_; }
  /// How many slots leases hold.
  [[nodiscard]] std::size_t held() const noexcept { return slots_->leased(); }
  [[nodiscard]] std::stop_token stop_token() const noexcept { return options_.stop; }
  /// What the batches are called in a trace of `recorder`; 0 where they are not recorded there.
  [[nodiscard]] std::uint64_t trace_flow(const trace_recorder* recorder) const noexcept {
    return recorder == options_.observe.trace ? observer_.trace_flow() : 0;
  }
  /// The state of a loop whose next batch is `next`. Throws `option_error` where batches come out
  /// of order.
  [[nodiscard]] loader_state state_at(const batch_position& next) const;
  /// Where a loop goes on from `state`. Throws `state_mismatch`.
  [[nodiscard]] batch_position position_of(const loader_state& state) const;
  /// @}

  // ---- The consumer's thread

  /// What it records; or null.
  [[nodiscard]] trace_writer* trace() noexcept { return seen().trace(); }
  /// Whether `serial` names the range that was started last.
  [[nodiscard]] bool is_current(std::uint64_t serial) const noexcept {
    return range_.is_current(serial);
  }
  /// Starts to read the batches from `from` to the start of epoch `last_epoch`. Returns the range's
  /// serial number.
  std::uint64_t start(const batch_position& from, std::uint64_t last_epoch);

  /// A lease of the next batch, waiting for it; empty at the end of what was started, and where
  /// `failed` says what is in its place: what the dataset has thrown for this batch,
  /// `leases_exhausted`, `cancelled`, `read_timeout`, or what the device throws. The range is over
  /// then. `Lease` is that of a record, or of any.
  template <class Lease = batch_type>
  [[nodiscard]] Lease next(failed_batch& failed) noexcept {
    return leased<Lease>(next_slot(failed), failed);
  }
  /// As `next`, if the batch is complete already; else empty. Without workers always empty.
  template <class Lease = batch_type>
  [[nodiscard]] Lease try_next(failed_batch& failed) noexcept {
    return leased<Lease>(try_next_slot(failed), failed);
  }

  /// Whether `next` has no batch left to give.
  [[nodiscard]] bool at_end() const noexcept { return !range_.is_live() || next_ == end_; }

  /// Ends the range: nothing new is read, reads under way are waited for, their slots come back.
  /// Another one can be started. Without a range it does nothing.
  void stop() noexcept;

 private:
  using steady_clock = std::chrono::steady_clock;
  using meters = worker_meters<tick_clock>;

  // ---- Workers

  /// A worker's loop, until `stop` is requested and `wake` called. Throws what the device throws.
  void work(const std::stop_token& stop, std::size_t worker) {
    slots_->device().make_current();
    flushed_denormals::keep_on();
    guarded_reader& reader = readers_[worker];
    meters& seen = observer_.reader(worker);
    const auto timed = seen.for_work();
    for (std::uint32_t fruitless = 0; !stop.stop_requested();) {
      if (!active_workers_.is_open(worker)) [[unlikely]] {
        leave_until_open(active_workers_, worker, cursor_, seen);
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
      read(got.slot, got.chunk, reader, seen);
      if (!work_[got.slot].finish_chunk()) continue;
      end_batch(got.slot, seen);
      delivery_.announce(work_[got.slot].sequence, got.slot);
    }
  }
  /// Wakes all workers, permanently: after a stop request.
  void wake() noexcept {
    slots_->close();
    schedule_.wake();
    cursor_.wake();
    active_workers_.close();
  }

  /// Opener: waits until one more batch is wanted and a slot is free, and binds the two. `got` is
  /// its first chunk then. False when the loader stops.
  bool open_next(const std::stop_token& stop, const guarded_reader& reader, meters& seen,
                 claim& got) {
    while (const auto next = schedule_.wait_until_wanted(stop, seen)) {
      if (!spare_) {
        [[maybe_unused]] const stage_mark mark{marked_stage::wait_for_slot};
        spare_ = slots_->acquire(seen);
      }
      if (!spare_) return false;
      if (!bind(*next, *spare_, reader, seen)) continue;  // the range has ended: the slot stays
      got.slot = *std::exchange(spare_, std::nullopt);
      got.chunk = work_[got.slot].first_chunk();
      cursor_.publish(static_cast<std::uint32_t>(work_[got.slot].sequence), got.slot, got.chunk);
      return true;
    }
    return false;
  }

  /// Opener: binds `slot` to the next batch of the schedule; false when it is not wanted any more.
  ///
  /// The order of an epoch is made once a range, outside any lock: a sampler may take its time, or
  /// hang, and the consumer can end the range all the same; so may a dataset that is asked for
  /// lengths. What the sampler, `size` or `length` throws stays with the batch, as an exception of
  /// a read does.
  [[gnu::noinline]] bool bind(const schedule::place& next, std::uint32_t slot,
                              const guarded_reader& reader, const meters& seen) noexcept {
    const std::uint64_t opened = seen.open();  // first: without workers the consumer waits for all
    if (!ordered_for_ || ordered_for_->range != next.range ||
        ordered_for_->at.epoch != next.at.epoch) {
      make_order(next, reader);
    }
    if (!schedule_.bind(next)) return false;
    batch_work& batch = work_[slot];
    batch.bind(plan().at(next.at), next.number, source_->bind_order(slot));
    if (order_error_) [[unlikely]]
      batch.note_failed({order_error_, failure{"order", next.at.epoch, next.at.batch}});
    if (ahead_ != nullptr) ahead_->note_opened(batch.sequence);
    if (facts_.is_placed) {
      const auto shown = reader.shows_lengths(next.at.epoch, next.at.batch);
      source_->place(slot, plan(), batch, slots_->data(slot));
    }
    batch.opened = opened;
    const std::size_t samples = chunk_length_.samples();
    batch.reset(chunk_length_.first_chunk(samples), chunk_length_.chunks(), samples);
    guard_.begin_batch(slot);
    return true;
  }
  void make_order(const schedule::place& next, const guarded_reader& reader) noexcept {
    order_error_ = nullptr;
    ordered_for_ = next;
    const auto shown = reader.shows_order(next.at.epoch, next.at.batch);
    try {
      source_->make_order(next.at.epoch);
    } catch (...) {
      order_error_ = std::current_exception();
    }
  }

  /// Reads chunk `which` of the batch in `slot`. A function of its own, so that no arithmetic of a
  /// read moves out of what flushes denormals around its call.
  [[gnu::noinline]] void read(std::uint32_t slot, std::uint32_t which, guarded_reader& reader,
                              meters& seen) noexcept {
    batch_work& batch = work_[slot];
    const auto [begin, end] = batch.places_of(which);
    if (!batch.has_order || begin == end || is_unwanted(batch)) return;
    [[maybe_unused]] const stage_mark mark{marked_stage::read, batch.info.batch};
    const trace_scope traced{seen.trace(), trace_stage::read, batch.info, end - begin};
    const auto wanted = reader.indices(end - begin);
    pick_samples(order_in_slot{source_.get(), slot}, plan(), batch.info, begin, wanted);
    slots_->lists.note(slot, begin, wanted);
    const bool is_timed = which == batch.first_chunk() && chunk_length_.is_timed(batch.sequence);
    const auto began = is_timed ? steady_clock::now() : steady_clock::time_point{};
    const random_key key{options_.seed, batch.info.epoch};
    const auto is_over = [&] { return is_unwanted(batch); };
    failed_batch* const failed =
        reader.read({slot, batch.info, slots_->data(slot), begin, wanted, key}, is_over,
                    seen.reads().begin(batch.sequence, wanted.size()));
    if (failed != nullptr) [[unlikely]]
      return batch.note_failed(std::move(*failed));
    seen.reads().end(wanted);
    if (is_timed) chunk_length_.note(wanted.size(), steady_clock::now() - began);
  }
  [[nodiscard]] bool is_unwanted(const batch_work& batch) const noexcept {
    return schedule_.is_cancelled(batch.sequence) || delivery_.has_failed();
  }

  /// The batch in `slot` is read.
  void end_batch(std::uint32_t slot, meters& seen) noexcept {
    batch_work& batch = work_[slot];
    if (ahead_ != nullptr) ahead_->note_read(batch.sequence);
    guard_.end_batch(slot, slots_->data(slot), layout_, batch.info);
    if (facts_.is_ragged && batch.has_order) {
      const std::uint64_t bytes = value_bytes(slot);
      const std::uint64_t samples = batch.info.size;
      seen.reads().note_values(bytes);
      if (ahead_ != nullptr) ahead_->note_values(samples, bytes + layout_.fixed_bytes() * samples);
    }
    if (facts_.finishes_batches && !is_unwanted(batch)) {
      source_->finish_batch(batch, slots_->data(slot), options_.seed);
    }
    seen.close(batch.opened);
  }
  /// The bytes of the ragged values of the batch in `slot`.
  [[nodiscard]] std::uint64_t value_bytes(std::uint32_t slot) const noexcept {
    return layout_.value_bytes(slots_->data(slot), work_[slot].info.size);
  }

  // ---- Threads

  /// What has to be there before the first thread. Throws what readers throw.
  void prepare() {
    source_->take_slots(slots_->count());
    do {
      readers_.emplace_back(source_->make_reader(), guard_, readers_.size(), chunk_length_.most());
    } while (readers_.size() < options_.workers);
    if (options_.observe.indices) {
      slots_->lists = sample_lists{slots_->count(), options_.batch_size};
    }
    guard_.list_to(slots_->lists);
    observer_.trace_to(options_.observe.trace);
    slots_->leases().trace_to(options_.observe.trace, observer_.trace_flow(), "host slot",
                              slots_->count());
    if (has_automatic(options_)) {
      tuner_.emplace(options_, slots_->count(), layout_.bytes(), schedule_, active_workers_,
                     observer_);
    }
  }

  /// What the threads of a pool do. Both pools are of one type: compiled once.
  enum class role : unsigned char { worker, lookahead };
  struct body {  // what they run
    loader_core* self;
    role what;
    void operator()(const std::stop_token& stop, std::size_t worker) const {
      if (what == role::lookahead) return self->ahead_->work();
      try {
        self->binding_.take();
        self->work(stop, worker);
      } catch (...) {
        // The pool tells what no consumer has got: that of others is no news.
        if (self->fail_all({std::current_exception()})) throw;
      }
    }
  };
  struct waker {  // what wakes them after a stop request
    loader_core* self;
    role what;
    void operator()() const noexcept {
      if (what == role::worker) return self->wake();
      if (self->ahead_ != nullptr) self->ahead_->end();
    }
  };
  struct cancel_all {
    loader_core* self;
    void operator()() const noexcept {
      self->fail_all({self->cancellation_});
      self->pool_.request_stop();
      self->lookahead_.request_stop();
    }
  };

  /// Nothing can be read any more: a worker failed outside a dataset's read (the device is in
  /// error), a read hangs beyond the timeout, or a stop was requested. The consumer gets the
  /// exception at its next step, unless there is one already: false. From any thread.
  [[gnu::cold]] bool fail_all(failed_batch error) noexcept {
    const bool is_first = delivery_.fail(std::move(error));
    guard_.interrupt();
    pool_.look_again();
    return is_first;
  }

  /// Ends the workers, and waits for all whose read was not given up. The threads of the others are
  /// detached, and keep what holds this alive until their read returns, where the loader owns all
  /// that they use; else they wait for `end_others`.
  void end_workers() noexcept {
    const auto is_lost = [this](std::size_t worker) { return guard_.is_given_up(worker); };
    abandoned_ += pool_.stop(is_lost, facts_.borrows ? nullptr : state_.lock());
  }
  /// After `end_workers`: ends all other threads, and waits for them; for the call that the one
  /// that tells is in, with a timeout no longer than that. It is detached then, as a worker.
  void end_others() noexcept {
    guard_.stop(facts_.borrows);
    pool_.stop();
    if (lookahead_.size() == 0) return;
    const auto state = state_.lock();
    if (state != nullptr && !facts_.borrows && options_.faults.timeout.count() > 0) {
      lookahead_.request_stop();
      const bool is_silent = ahead_->wait_until_silent(options_.faults.timeout);
      lookahead_.stop([&](std::size_t) { return !is_silent; }, state);
    }
    lookahead_.stop();
  }

  // ---- The consumer's thread

  [[nodiscard]] bool has_workers() const noexcept { return options_.workers != 0; }
  [[nodiscard]] bool waits_for_leases() const noexcept {
    return options_.when_held == held_action::wait;
  }
  [[nodiscard]] consumer_meters<tick_clock>& seen() noexcept { return observer_.of_consumer(); }
  /// Throws in a child made by fork().
  void require_threads() const {
    process_.require("loader",
                     "make a loader of its own here, or one with workers = 0 before the fork");
  }

  [[nodiscard]] std::optional<std::uint32_t> next_slot(failed_batch& failed) noexcept;
  [[nodiscard]] std::optional<std::uint32_t> try_next_slot(failed_batch& failed) noexcept;

  /// The lease of `slot`, if there is one.
  template <class Lease>
  Lease leased(std::optional<std::uint32_t> slot, [[maybe_unused]] failed_batch& failed) noexcept {
    if (!slot) return {};
    const batch_info& info = work_[*slot].info;
    try {
      lease_guard guard{info.epoch, info.batch};
      next_position_.store(batch_position{info.epoch, info.batch + 1});
      return {slots_, *slot, info, std::move(guard)};  // NOLINT: trivial, but in a checked build
    } catch (...) {  // a checked build without memory for what it keeps of a lease
      failed = {std::current_exception()};
      slots_->give_back(*slot);
      end_by(failed);
      return {};
    }
  }

  [[gnu::cold]] void end_by(const failed_batch& failed) noexcept {
    failure_.store(failed.place);
    stop();
  }

  /// The slot of the next batch once it is complete; empty where nothing can be read any more.
  std::optional<std::uint32_t> wait_for_next() {
    if (delivery_.has_failed()) return std::nullopt;
    // Unless leases end on other threads, only the consumer could give a slot back.
    if (!waits_for_leases() && slots_->is_exhausted()) slots_->throw_exhausted();
    const bool starving = !delivery_.is_ready(next_);
    if (starving) require_threads();
    if (starving) slots_->set_starving(true);
    const auto slot = [&] {
      [[maybe_unused]] const stage_mark mark{marked_stage::wait_for_batch};
      const auto timed = seen().for_batch(starving);
      return delivery_.wait(next_);
    }();
    if (starving) slots_->set_starving(false);
    return slot;
  }
  /// Takes a complete batch; false where `failed` stands for it.
  bool take(std::uint32_t slot, failed_batch& failed) noexcept {
    ++next_;
    batch_work& batch = work_[slot];
    guard_.judge(slot, batch.info, batch.failed());
    if (batch.failed()) [[unlikely]] {
      failed = std::exchange(batch.failed(), {});
      observer_.note_discarded();
      slots_->give_back(slot);
      return false;
    }
    observer_.note_taken(batch.info.size);
    if (facts_.is_ragged && batch.has_order) seen().note_values(value_bytes(slot));
    if (tuner_) [[unlikely]]
      tuner_->take(next_);
    if (trace() != nullptr) [[unlikely]]
      trace()->work_on(batch.info);
    return true;
  }

  /// Without workers: takes a slot and reads the next batch on this thread, with all that a worker
  /// does; empty when none is wanted, and where nothing can be read any more.
  std::optional<std::uint32_t> read_inline() {
    if (delivery_.has_failed()) return std::nullopt;
    auto slot = slots_->try_acquire(observer_.reader(0));
    if (!slot && waits_for_leases()) {
      const auto timed = seen().for_lease();
      slot = slots_->acquire_starving();
    }
    if (!slot && !delivery_.has_failed()) slots_->throw_exhausted();
    // Stopped meanwhile, the batch may not be whole.
    if (slot && read_all(*slot) && !delivery_.has_failed()) return slot;
    if (slot) slots_->give_back(*slot);
    return std::nullopt;
  }
  bool read_all(std::uint32_t slot) {
    const flushed_denormals as_on_a_worker;  // for the sampler too
    meters& seen = observer_.reader(0);
    const auto next = schedule_.next();
    if (!next || !bind(*next, slot, readers_.front(), seen)) return false;
    for (std::uint32_t which = work_[slot].first_chunk(); which < chunk_length_.chunks(); ++which)
      read(slot, which, readers_.front(), seen);
    end_batch(slot, seen);
    return true;
  }

  loader_options asked_;
  loader_options options_;
  std::unique_ptr<source_ops> source_;
  source_facts facts_;
  detail::schedule schedule_;
  slot_layout layout_;
  std::shared_ptr<ring_type> slots_;
  chunk_length chunk_length_;
  claim_cursor<> cursor_;
  std::vector<batch_work> work_;  // by slot
  detail::delivery delivery_;

  // Of the opener, which hands them on to the next one with the claim cursor.
  std::optional<schedule::place> ordered_for_;  // the batch for which the order was made last
  std::exception_ptr order_error_;              // why there is none
  std::optional<std::uint32_t> spare_;          // a slot at hand

  read_guard guard_;
  std::vector<guarded_reader> readers_;  // by worker; without workers the consumer's
  loader_observer observer_;
  detail::active_workers active_workers_;
  std::unique_ptr<look_ahead> ahead_;  // null: the dataset does not want to know what comes
  std::optional<loop_tuner> tuner_;

  // Of the consumer's thread.
  fork_guard process_;
  active_range range_{"loader"};
  std::uint64_t next_ = 0;  // the next batch to take, numbered as in the schedule
  std::uint64_t end_ = 0;   // the one after the last of the range
  shared_value<batch_position> next_position_;
  shared_value<std::optional<failure>> failure_;
  mutable std::once_flag
      asked_for_state_;  // guards the next: states may be asked for on several threads
  mutable std::uint64_t fingerprint_ = 0;  // of order and choices, once a state was asked for
  std::atomic<std::size_t> abandoned_{0};
  std::weak_ptr<void> state_;
  std::shared_ptr<void> kept_;  // in a child process: what holds this object, until its end

  const std::exception_ptr cancellation_;  // made before it is needed: a stop must not want memory
  worker_binding binding_;
  // Members, and no optionals: a worker that fails while the pool still starts calls it.
  worker_pool<body, waker> pool_;           // its threads use all of the above
  worker_pool<body, waker> lookahead_;      // one thread, which tells the dataset, or none
  std::stop_callback<cancel_all> on_stop_;  // last: it uses the pools
};

// Not in the class: `extern template` leaves out what is not inline.

template <device Device>
loader_options loader_core<Device>::checked(const loader_options& asked) {
  require_valid(asked);
  return resolved(asked);
}

template <device Device>
std::shared_ptr<host_slots<Device>> loader_core<Device>::make_slots(const Device& device,
                                                                    const slot_layout& layout,
                                                                    const loader_options& options) {
  memory_reservation granted = reserve_slots(layout.bytes(), options);
  const auto count = static_cast<std::size_t>(granted.slot_count());
  return shared_by_leases<ring_type, typename Device::stream_ref>(
      device, layout, count, slot_memory(options), std::move(granted));
}

template <device Device>
loader_core<Device>::loader_core(std::unique_ptr<source_ops> source, const epoch_plan& plan,
                                 std::shared_ptr<ring_type> ring, const loader_options& asked,
                                 const loader_options& options)
    : asked_(asked),
      options_(options),
      source_(std::move(source)),
      facts_(source_->facts()),
      schedule_(plan),
      layout_(ring->layout()),
      slots_(std::move(ring)),
      chunk_length_(options_, layout_.sample_bytes()),
      cursor_(chunk_length_.chunks()),
      work_(slots_->count()),
      delivery_(slots_->count(), options_.in_order),
      guard_(options_.faults.on_error,
             {options_.faults.stall_warning, options_.faults.timeout, options_.faults.on_stall},
             source_->guarded(),
             {std::max<std::size_t>(1, options_.workers), slots_->count(), options_.batch_size}),
      observer_(options_.workers, chunk_length_.most(), layout_.fixed_bytes()),
      active_workers_(options_.workers, first_workers(options_)),
      ahead_(source_->make_teller(schedule_, options_, observer_)),
      process_(options_.workers != 0 || guard_.has_thread()),
      cancellation_(cancellation_of(options_.stop)),
      binding_(slots_->device(), options_),
      pool_((prepare(), options_.workers), body{this, role::worker}, waker{this, role::worker}),
      lookahead_(ahead_ != nullptr && has_workers() ? 1 : 0, body{this, role::lookahead},
                 waker{this, role::lookahead}),
      on_stop_(options_.stop, cancel_all{this}) {
  binding_.wait_until_taken();
  guard_.start([this](std::exception_ptr error, const failure& read) noexcept {
    fail_all({std::move(error), read});
  });
}

template <device Device>
loader_core<Device>::~loader_core() {
  shut_down();
}

template <device Device>
void loader_core<Device>::shut_down() noexcept {
  if (process_.is_in_child()) {
    // The threads are not here to be waited for, and may have held any lock when the process was
    // copied: nothing is touched, and from now on this keeps itself.
    range_.end();
    kept_ = state_.lock();
  } else {
    stop();
    end_workers();
    end_others();
  }
  range_.close();
}

template <device Device>
failure_report loader_core<Device>::failures() const {
  return guard_.report();
}

template <device Device>
tuning_history loader_core<Device>::tuning() const {
  if (tuner_) return tuner_->history();
  return {.now = {options_.workers, slots_->count() - 1}, .moves = {}};
}

template <device Device>
loader_state loader_core<Device>::state_at(const batch_position& next) const {
  if (!options_.in_order) {
    throw option_error("in_order",
                       "must be true for a state, is false: batches that come as they are ready "
                       "leave no place to continue from");
  }
  std::call_once(asked_for_state_, [&] {
    const flushed_denormals as_on_a_worker;
    fingerprint_ = source_->fingerprint();
  });
  const std::uint64_t world = source_->world();
  const std::uint64_t step = source_->batches_per_step();
  return {.version = loader_state{}.version,
          .last = static_cast<std::uint32_t>(options_.last_batch),
          .epoch = next.epoch,
          .batch = step == 0 ? next.batch : next.batch * world,
          .dataset = source_->size(),
          .samples = plan().samples() * world,
          .batch_size = options_.batch_size * (step == 0 ? world : step),
          .seed = options_.seed,
          .order = fingerprint_};
}

template <device Device>
batch_position loader_core<Device>::position_of(const loader_state& state) const {
  detail::require_same_order(state, state_at({}));
  if (source_->batches_per_step() == 0) return {state.epoch, state.batch};
  const std::uint64_t world = source_->world();
  if (state.batch % world != 0) {
    throw state_mismatch(joined({"resume: the state is at batch ", state.batch,
                                 " of all ranks, which is no multiple of this world of ", world,
                                 ": take states after whole steps"}));
  }
  return {state.epoch, state.batch / world};
}

template <device Device>
loader_footprint loader_core<Device>::footprint() const {
  loader_footprint taken =
      footprint_of(layout_.bytes(), layout_.sample_bytes(), options_, slots_->count());
  taken.bytes = slots_->bytes();
  taken.pinned = slots_->pinned();
  taken.registration_refused = slots_->registration_refused();
  taken.workers = binding_.where();
  taken.warnings = source_->warnings();
  return taken;
}

template <device Device>
std::uint64_t loader_core<Device>::start(const batch_position& from, std::uint64_t last_epoch) {
  range_.require_none();
  require_threads();
  const batch_position first = plan().normal(from);
  if (tuner_) tuner_->begin(next_);
  end_ = schedule_.begin(first, last_epoch);
  next_position_.store(from);
  failure_.store(std::nullopt);
  seen().begin_range();
  return range_.start();
}

template <device Device>
std::optional<std::uint32_t> loader_core<Device>::next_slot(failed_batch& failed) noexcept {
  if (at_end()) {
    stop();
    return std::nullopt;
  }
  try {
    const auto slot = has_workers() ? wait_for_next() : read_inline();
    if (slot ? take(*slot, failed) : !delivery_.has_failed()) [[likely]]
      return slot;
    if (!slot) failed = delivery_.failed();
  } catch (...) {
    failed = {std::current_exception()};
  }
  end_by(failed);
  pool_.note_told(failed.error);  // now that its workers have ended
  return std::nullopt;
}

template <device Device>
std::optional<std::uint32_t> loader_core<Device>::try_next_slot(failed_batch& failed) noexcept {
  if (at_end() || !has_workers()) return std::nullopt;
  // In a child process `next` says what is wrong.
  const bool is_due = delivery_.is_ready(next_) || delivery_.has_failed();
  if (is_due || process_.is_in_child()) return next_slot(failed);
  slots_->wake_if_free();
  return std::nullopt;
}

template <device Device>
void loader_core<Device>::stop() noexcept {
  if (!range_.end() || process_.is_in_child()) return;
  seen().end_range();
  if (tuner_) tuner_->end();
  const std::uint64_t bound = schedule_.cancel();
  guard_.interrupt();
  if (!has_workers()) next_ = bound;
  for (; next_ != bound; ++next_) {
    const auto slot = delivery_.wait(next_);
    if (!slot) return end_workers();  // nothing is delivered any more: others may still read
    work_[*slot].failed().error = nullptr;
    observer_.note_discarded();
    slots_->give_back(*slot);
  }
  // Where nothing was under way, an opener may still hang in its sampler.
  if (delivery_.has_failed()) end_workers();
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
