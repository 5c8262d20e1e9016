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
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/core/support/fork_guard.hpp>
#include <penstock/core/support/slot_layout.hpp>
#include <penstock/device/device.hpp>
#include <penstock/load/batch_range.hpp>
#include <penstock/load/detail/active_workers.hpp>
#include <penstock/load/detail/batch_work.hpp>
#include <penstock/load/detail/claim_cursor.hpp>
#include <penstock/load/detail/detachable_workers.hpp>
#include <penstock/load/detail/read_supervisor.hpp>
#include <penstock/load/detail/retrying_reader.hpp>
#include <penstock/load/detail/schedule.hpp>
#include <penstock/load/detail/source_ops.hpp>
#include <penstock/load/detail/tuner.hpp>
#include <penstock/load/detail/worker_binding.hpp>
#include <penstock/load/footprint.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/stage.hpp>
#include <penstock/load/support/delivery.hpp>
#include <penstock/load/support/loader_observer.hpp>
#include <penstock/load/support/plan.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/memory/support/host_slots.hpp>
#include <penstock/memory/support/sample_lists.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/trace_target.hpp>
#include <penstock/order/random.hpp>
#include <penstock/resume/loader_state.hpp>
#include <penstock/threads/flush_to_zero.hpp>
#include <penstock/threads/support/shared_value.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns the exception that a consumer receives after `stop` was requested, or null if `stop` can
/// never be requested.
[[nodiscard]] inline std::exception_ptr cancellation_of(const std::stop_token& stop) {
  if (!stop.stop_possible()) return nullptr;
  return std::make_exception_ptr(cancelled("cancelled: loader_options::stop was requested"));
}

/// Throws `cancelled` for a loop that was ended by `stop` of its loader.
[[noreturn, gnu::cold]] inline void throw_cut() {
  throw cancelled(
      "cancelled: stop() of the loader was called while a loop over its batches was running: leave "
      "the loop first");
}

/// The part of a loader that does not depend on the types of its dataset, sampler and record.
/// Manages each batch from the first claim to the consumer.
///
/// Workers claim chunks from the cursor. The opener waits until a batch is wanted (`schedule`),
/// acquires a free slot, and binds the slot to the batch. Each worker reads its chunk
/// (`retrying_reader`). The worker that finishes the last chunk announces the batch (`delivery`).
/// The consumer thread starts ranges, acquires announced batches, and ends ranges and threads.
template <device Device>
class loader_core {
 public:
  using device_type = Device;
  using ring_type = host_slots<Device>;
  using batch_type = host_lease<Device>;

  /// Returns `requested` with numeric values for `automatic`. Throws `option_error` if the options
  /// are invalid.
  [[nodiscard]] static loader_options checked(const loader_options& requested);
  /// Returns the host slots of a loader, as many as the resolved options request and the budget
  /// grants. Throws `pinned_budget_exceeded` and `out_of_memory`. Errors from the device propagate.
  [[nodiscard]] static std::shared_ptr<ring_type> make_slots(const Device& device,
                                                             const slot_layout& layout,
                                                             const loader_options& options);

  /// Starts all threads. `plan` divides the epochs into batches, which are stored in the slots of
  /// `ring`. `requested` contains the user's options. `options` contains the same options with
  /// numeric values for `automatic`.
  loader_core(std::unique_ptr<source_ops> source, const epoch_plan& plan,
              std::shared_ptr<ring_type> ring, const loader_options& requested,
              const loader_options& options);
  loader_core(loader_core&&) = delete;
  ~loader_core();

  /// Sets the owner of this object. The thread of an abandoned reader shares ownership of `state`.
  void kept_alive_by(const std::shared_ptr<void>& state) noexcept { state_ = state; }

  /// Permanently ends all threads. Waits for reads, except for a read that exceeds the timeout if
  /// the loader owns its dataset, and for a read that called this function. A consumer with a live
  /// range, on any thread, receives `cancelled` at its next step.
  void shut_down() noexcept;

  /// @name Callable from any thread @{
  [[nodiscard]] const loader_options& requested_options() const noexcept {
    return requested_options_;
  }
  [[nodiscard]] const loader_options& options() const noexcept { return options_; }
  [[nodiscard]] const source_ops& source() const noexcept { return *source_; }
  [[nodiscard]] const epoch_plan& plan() const noexcept { return schedule_.plan(); }
  [[nodiscard]] failure_report failures() const;
  /// Returns the position after the last batch taken.
  [[nodiscard]] batch_position next_position() const noexcept { return next_position_.load(); }
  /// Returns the origin of the exception that ended the last range.
  [[nodiscard]] std::optional<failure> last_failure() const noexcept { return failure_.load(); }
  /// Returns the number of detached threads.
  [[nodiscard]] std::size_t abandoned_readers() const noexcept { return abandoned_.load(); }
  /// Returns the settings chosen while the loop was running.
  [[nodiscard]] tuning_history tuning() const;
  /// Returns the memory and slots of the loader.
  [[nodiscard]] loader_footprint footprint() const;
  [[nodiscard]] holdable_slots holdable() const noexcept {
    return {slots_->count(), slots_->pinned()};
  }
  [[nodiscard]] loader_stats stats() const { return observer_.snapshot(); }
  /// Returns true if batches include lists of their samples.
  [[nodiscard]] bool lists_samples() const noexcept { return options_.instrumentation.indices; }
  [[nodiscard]] const Device& device() const noexcept { return slots_->device(); }
  [[nodiscard]] const slot_layout& layout() const noexcept { return layout_; }
  /// Returns the number of slots that leases hold.
  [[nodiscard]] std::size_t held() const noexcept { return slots_->leased(); }
  [[nodiscard]] std::stop_token stop_token() const noexcept { return options_.stop; }
  /// Returns the ID of this loader's batches in a trace of `recorder`, or 0 if `recorder` does not
  /// record them.
  [[nodiscard]] std::uint64_t trace_flow(const trace_recorder* recorder) const noexcept {
    return recorder == options_.instrumentation.trace.recorder() ? observer_.trace_flow() : 0;
  }
  /// Returns the state of a loop whose next batch is `next`. Throws `option_error` if batches are
  /// delivered out of order.
  [[nodiscard]] loader_state state_at(const batch_position& next) const;
  /// Returns the position at which a loop continues from `state`. Throws `state_mismatch` if the
  /// state does not match this loader.
  [[nodiscard]] batch_position position_of(const loader_state& state) const;
  /// @}

  // ---- Consumer thread

  /// Returns the trace sink of the consumer, or null without a trace.
  [[nodiscard]] trace_sink* trace() noexcept { return observer().trace(); }
  /// Returns true if `serial` identifies the last range that was started.
  [[nodiscard]] bool is_current(std::uint64_t serial) const noexcept {
    return range_.is_current(serial);
  }
  /// Returns true if a range was started.
  [[nodiscard]] bool was_started() const noexcept { return range_.was_started(); }
  /// Starts to read the batches from `from` to the start of epoch `last_epoch`. Returns the serial
  /// number of the range.
  std::uint64_t start(const batch_position& from, std::uint64_t last_epoch);

  /// Waits for the next batch and returns its lease. Returns an empty lease at the end of the
  /// range.
  ///
  /// Also returns an empty lease on an error, which ends the range. In that case, `failed` contains
  /// the exception of the dataset for this batch, `leases_exhausted`, `cancelled`, `read_timeout`,
  /// or the device error. `Lease` is a lease type with or without the record type.
  template <class Lease = batch_type>
  [[nodiscard]] Lease next(failed_batch& failed) noexcept {
    return leased<Lease>(next_slot(failed), failed);
  }
  /// Returns the next batch if it is already complete. Otherwise returns an empty lease. Without
  /// workers, the lease is always empty. Errors are reported as by `next`.
  template <class Lease = batch_type>
  [[nodiscard]] Lease try_next(failed_batch& failed) noexcept {
    return leased<Lease>(try_next_slot(failed), failed);
  }

  /// Returns true if `next` has no more batches to return.
  [[nodiscard]] bool at_end() const noexcept { return !range_.is_live() || next_ == end_; }

  /// Returns the counts for the limits of `faults.on_error`, including the last batch taken. A
  /// feed, which takes batches ahead of its loop, calls `judge_from` with an earlier value to
  /// exclude the batches taken since then.
  [[nodiscard]] judged_samples judged() const noexcept { return supervisor_.judged(); }
  void judge_from(const judged_samples& judged) noexcept { supervisor_.judge_from(judged); }

  /// Does nothing, because a loader can read the samples again.
  void take_back(const batch_info&, std::span<const std::uint64_t>) noexcept {}

  /// Ends the range: starts no new read, waits for the reads in progress, and releases their slots.
  /// Afterwards, another range can be started. Has no effect without a range.
  void stop() noexcept;
  /// Calls `stop`, and makes `was_cut` return true unless the range was at its end.
  void cut() noexcept {
    was_cut_ = was_cut_ || !at_end();
    stop();
  }
  /// Returns true if `cut` ended the most recently started range.
  [[nodiscard]] bool was_cut() const noexcept { return was_cut_; }

 private:
  using meters = worker_meters;

  /// Returns the number of batches in an epoch on the rank with the most batches.
  [[nodiscard]] std::uint64_t max_batches() const noexcept {
    const std::uint64_t world = source_->world();
    const std::uint64_t total = source_->total_samples();
    if (total == plan().samples() * world) return plan().batches();
    const std::uint64_t global_batch = options_.batch_size * world;
    return total / global_batch + (total % global_batch != 0 ? 1 : 0);
  }

  // ---- Workers

  /// Runs the loop of a worker until `stop` is requested and `wake` is called. Propagates errors
  /// from the device.
  void work(const std::stop_token& stop, std::size_t worker) {
    slots_->device().make_current();
    scoped_flush_to_zero::enable_permanently();
    retrying_reader& reader = *readers_[worker];
    meters& metrics = observer_.reader(worker);
    const auto timed = metrics.for_work();
    for (std::uint32_t idle_spins = 0; !stop.stop_requested();) {
      if (!active_workers_.is_active(worker)) [[unlikely]] {
        tuner_->park(worker, cursor_, metrics);
        continue;
      }
      claim got = cursor_.next();
      if (got.what == claim::kind::wait) {
        const auto waits = metrics.for_opener();
        cursor_.wait_past(got.batch, idle_spins++);
        continue;
      }
      idle_spins = 0;
      if (got.what == claim::kind::open && !open_next(stop, reader, metrics, got)) return;
      read(got.slot, got.chunk, reader, metrics);
      if (!work_[got.slot].finish_chunk()) continue;
      end_batch(got.slot, metrics);
      delivery_.announce(work_[got.slot].sequence, got.slot);
    }
  }
  /// Permanently wakes all workers after a stop request.
  void wake() noexcept {
    slots_->close();
    schedule_.wake();
    cursor_.wake();
    active_workers_.close();
  }

  /// Waits until another batch is wanted and a slot is free, and binds the slot to the batch. Sets
  /// `got` to the first chunk of the batch. Returns false if the loader stops. Called by the
  /// opener.
  bool open_next(const std::stop_token& stop, const retrying_reader& reader, meters& metrics,
                 claim& got) {
    while (const auto next = schedule_.wait_until_wanted(stop, metrics)) {
      if (!idle_slot_) idle_slot_ = slots_->acquire(metrics);
      if (!idle_slot_) return false;
      if (!bind(*next, *idle_slot_, reader, metrics))
        continue;  // The range has ended. The slot is reserved for the next batch.
      got.slot = *std::exchange(idle_slot_, std::nullopt);
      got.chunk = work_[got.slot].first_chunk();
      cursor_.publish(static_cast<std::uint32_t>(work_[got.slot].sequence), got.slot, got.chunk);
      return true;
    }
    return false;
  }

  /// Binds `slot` to the next batch of the schedule. Returns false if the batch is no longer
  /// wanted. Called by the opener.
  ///
  /// The order of an epoch is created once per range, outside any lock. Therefore the consumer can
  /// end the range even if a sampler, or a dataset that returns lengths, is slow or hangs. An
  /// exception of the sampler, `size` or `length` is stored with the batch, like an exception of a
  /// read.
  [[gnu::noinline]] bool bind(const schedule::place& next, std::uint32_t slot,
                              const retrying_reader& reader, const meters& metrics) noexcept {
    const std::uint64_t opened =
        metrics.open();  // called first, to time all work that delays the consumer
    if (!ordered_for_ || ordered_for_->range != next.range ||
        ordered_for_->at.epoch != next.at.epoch) {
      make_order(next, reader);
    }
    if (!schedule_.bind(next)) return false;
    batch_work& batch = work_[slot];
    batch.bind(plan().at(next.at), next.number, source_->bind_order(slot));
    if (order_error_) [[unlikely]]
      batch.record_failed({order_error_, failure{"order", next.at.epoch, next.at.batch}});
    if (ahead_ != nullptr) ahead_->record_opened(batch.sequence);
    if (facts_.is_placed) {
      const auto shown = reader.shows_lengths(next.at.epoch, next.at.batch);
      source_->place(slot, batch, slots_->data(slot));
    }
    batch.opened = opened;
    const std::size_t samples = chunk_length_.samples();
    batch.reset(chunk_length_.first_chunk(samples), chunk_length_.chunks(), samples);
    supervisor_.begin_batch(slot);
    return true;
  }
  void make_order(const schedule::place& next, const retrying_reader& reader) noexcept {
    order_error_ = nullptr;
    ordered_for_ = next;
    const auto shown = reader.shows_order(next.at.epoch, next.at.batch);
    try {
      source_->make_order(next.at.epoch);
    } catch (...) {
      order_error_ = std::current_exception();
    }
  }

  /// Reads chunk `which` of the batch in `slot`. Not inlined, so that the compiler does not move
  /// arithmetic of a read across the code that sets flush-to-zero around the call.
  [[gnu::noinline]] void read(std::uint32_t slot, std::uint32_t which, retrying_reader& reader,
                              meters& metrics) noexcept {
    batch_work& batch = work_[slot];
    const auto [begin, end] = batch.places_of(which);
    if (!batch.has_order || begin == end || is_unwanted(batch)) return;
    const auto wanted = reader.indices(end - begin);
    source_->pick(slot, batch.info, begin, wanted);
    slots_->lists.record(slot, begin, wanted);
    const bool is_timed = which == batch.first_chunk() && chunk_length_.is_timed(batch.sequence);
    const random_key key{options_.seed, batch.info.epoch};
    const auto is_over = [&] { return is_unwanted(batch); };
    meters::chunk_probe probe{metrics, batch.info, batch.sequence, wanted.size(), is_timed};
    failed_batch* const failed = reader.read(
        {slot, batch.info, slots_->data(slot), begin, wanted, key}, is_over, probe.samples());
    if (failed != nullptr) [[unlikely]]
      return batch.record_failed(std::move(*failed));
    const std::uint64_t ticks = probe.count(wanted);
    if (is_timed) chunk_length_.record(wanted.size(), ticks);
  }
  [[nodiscard]] bool is_unwanted(const batch_work& batch) const noexcept {
    return schedule_.is_cancelled(batch.sequence) || delivery_.has_failed();
  }

  /// Completes the batch in `slot` after its last chunk was read.
  void end_batch(std::uint32_t slot, meters& metrics) noexcept {
    batch_work& batch = work_[slot];
    if (ahead_ != nullptr) ahead_->record_read(batch.sequence);
    supervisor_.end_batch(slot, slots_->data(slot), layout_, batch.info);
    if (facts_.is_ragged && batch.has_order) {
      const std::uint64_t bytes = value_bytes(slot);
      const std::uint64_t samples = batch.info.size;
      metrics.record_values(bytes);
      if (ahead_ != nullptr)
        ahead_->record_values(samples, bytes + layout_.fixed_bytes() * samples);
    }
    if (facts_.finishes_batches && !is_unwanted(batch)) {
      source_->finish_batch(batch, slots_->data(slot), options_.seed);
    }
    metrics.close(batch.opened);
  }
  /// Returns the number of bytes used by ragged values in the batch in `slot`.
  [[nodiscard]] std::uint64_t value_bytes(std::uint32_t slot) const noexcept {
    return layout_.value_bytes(slots_->data(slot), work_[slot].info.size);
  }

  // ---- Threads

  /// Prepares all data that the threads use, before the first thread starts. Propagates errors from
  /// the readers.
  void prepare() {
    source_->take_slots(slots_->count());
    for (std::size_t i = 0; i < readers_.size(); ++i) {
      readers_[i].emplace(*source_, supervisor_, i, chunk_length_.max_samples());
    }
    if (options_.instrumentation.indices) {
      slots_->lists = sample_lists{slots_->count(), options_.batch_size};
    }
    supervisor_.list_to(slots_->lists);
    observer_.trace_to(options_.instrumentation.trace);
    slots_->leases().trace_to(options_.instrumentation.trace, observer_.trace_flow(), "host slot",
                              slots_->count());
    if (has_automatic(options_)) {
      const auto& automatic_one =
          options_.workers.is_automatic() ? options_.workers : options_.prefetch;
      tuner_ = automatic_one.tuning()->make(
          {options_, slots_->count(), layout_.bytes(), schedule_, active_workers_, observer_});
    }
  }

  /// The task of the threads in a pool. Both pools have the same type, so the type is compiled only
  /// once.
  enum class role : unsigned char { worker, lookahead };
  struct body {  // function of a thread
    loader_core* self;
    role what;
    void operator()(const std::stop_token& stop, std::size_t worker) const {
      if (what == role::lookahead) return self->ahead_->work();
      try {
        self->binding_.take();
        self->work(stop, worker);
      } catch (...) {
        // The pool prints only the first exception that no consumer has received, because later
        // exceptions add no information.
        const bool is_first = self->fail_all({std::current_exception()});
        if (is_first || self->delivery_.phase() == loader_phase::ended) throw;
      }
    }
  };
  struct waker {  // wakes the threads after a stop request
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

  /// Records that no more batches can be read, because a worker failed outside a dataset read (a
  /// device error), a read exceeded the timeout, or a stop was requested. The consumer receives
  /// `error` at its next step. Returns false and discards `error` if an earlier error was recorded.
  /// Any thread may call this.
  [[gnu::cold]] bool fail_all(failed_batch error,
                              loader_phase next = loader_phase::failed) noexcept {
    const bool is_first = delivery_.fail(std::move(error), next);
    supervisor_.interrupt();
    pool_.recheck_lost();
    return is_first;
  }

  /// Ends the workers, and waits for all workers whose read was not given up. If the loader owns
  /// all data used by the other workers, their threads are detached and share ownership of this
  /// object's owner until their read returns. Otherwise `end_others` waits for them.
  void end_workers(bool is_end_of_all = false) noexcept {
    const std::lock_guard lock{ending_};
    // After a shutdown, only `shut_down` ends the workers.
    if (delivery_.phase() == loader_phase::ended && !is_end_of_all) return;
    // If a stall report calls `exit()`, no other thread can give up the read.
    const bool is_in_report = supervisor_.is_in_report();
    const auto is_lost = [&](std::size_t worker) {
      return is_in_report || supervisor_.is_given_up(worker);
    };
    abandoned_ += pool_.stop(is_lost, facts_.borrows && !is_in_report ? nullptr : state_.lock());
  }
  /// Ends all other threads after `end_workers`, and waits for them. If a timeout is set, and the
  /// loader owns all data used by the lookahead thread, waits for the current call of that thread
  /// no longer than the timeout. After the timeout, the thread is detached, like a worker.
  void end_others() noexcept {
    supervisor_.stop(facts_.borrows);
    pool_.stop();
    if (lookahead_.size() == 0) return;
    const auto state = state_.lock();
    if (state != nullptr && !facts_.borrows && options_.faults.timeout.time().count() > 0) {
      lookahead_.request_stop();
      const bool is_silent = ahead_->wait_until_silent(options_.faults.timeout.time());
      lookahead_.stop([&](std::size_t) { return !is_silent; }, state);
    }
    lookahead_.stop();
  }

  // ---- Consumer thread

  [[nodiscard]] bool has_workers() const noexcept { return options_.workers != 0; }
  [[nodiscard]] bool waits_for_leases() const noexcept {
    return options_.on_slots_exhausted == exhausted_action::wait;
  }
  [[nodiscard]] loader_observer& observer() noexcept { return observer_; }
  /// Throws in a child process created by fork().
  void require_threads() const {
    process_.require(
        "loader",
        "make a separate loader in this process, or one with workers = 0 before the fork");
  }

  [[nodiscard]] std::optional<std::uint32_t> next_slot(failed_batch& failed) noexcept;
  [[nodiscard]] std::optional<std::uint32_t> try_next_slot(failed_batch& failed) noexcept;

  /// Returns the lease of `slot`, or an empty lease if `slot` is empty.
  template <class Lease>
  Lease leased(std::optional<std::uint32_t> slot, [[maybe_unused]] failed_batch& failed) noexcept {
    if (!slot) return {};
    const batch_info& info = work_[*slot].info;
    try {
      lease_guard guard{info.epoch, info.batch};
      next_position_.store(batch_position{info.epoch, info.batch + 1});
      return {slots_, *slot, info, std::move(guard)};  // NOLINT: trivial, except in a checked build
    } catch (...) {  // A checked build could not allocate its record.
      failed = {std::current_exception()};
      slots_->release(*slot);
      end_by(failed);
      return {};
    }
  }

  [[gnu::cold]] void end_by(const failed_batch& failed) noexcept {
    failure_.store(failed.place);
    stop();
  }

  /// Waits for the next batch and returns its slot. Empty at the end.
  std::optional<std::uint32_t> wait_for_next() {
    // Waiting is useful only if leases end on other threads. Otherwise, only the consumer could
    // release a slot.
    if (!waits_for_leases() && slots_->is_exhausted()) slots_->throw_exhausted();
    const bool starving = !delivery_.is_ready(next_);
    if (starving) require_threads();
    if (starving) slots_->set_starving(true);
    const auto slot = [&] {
      const auto timed = observer().for_batch(starving);
      return delivery_.wait(next_);
    }();
    if (starving) slots_->set_starving(false);
    return slot;
  }
  /// Takes a complete batch. Returns false and sets `failed` if an error replaces the batch.
  bool take(std::uint32_t slot, failed_batch& failed) noexcept {
    ++next_;
    batch_work& batch = work_[slot];
    supervisor_.judge(slot, batch.info, batch.failed());
    if (batch.failed()) [[unlikely]] {
      failed = std::exchange(batch.failed(), {});
      observer_.record_discarded();
      slots_->release(slot);
      return false;
    }
    observer_.record_taken(batch.info.size);
    if (facts_.is_ragged && batch.has_order) observer().record_values(value_bytes(slot));
    if (tuner_) [[unlikely]]
      tuner_->take(next_);
    if (trace() != nullptr) [[unlikely]]
      trace()->work_on(batch.info);
    return true;
  }

  /// Acquires a slot and reads the next batch on this thread, with all the steps of a worker. Used
  /// without workers. Empty if no batch is wanted or no more batches can be read.
  std::optional<std::uint32_t> read_inline() {
    auto slot = slots_->try_acquire(observer_.reader(0));
    if (!slot) {
      if (!waits_for_leases()) slots_->throw_exhausted();
      const auto timed = observer().for_lease();
      slot = slots_->acquire_starving();
    }
    // If the loader was stopped during the read, the batch may be incomplete.
    if (slot && read_all(*slot) && !delivery_.has_failed()) return slot;
    if (slot) slots_->release(*slot);
    return std::nullopt;
  }
  bool read_all(std::uint32_t slot) {
    const scoped_flush_to_zero as_on_a_worker;  // also applies to the sampler
    meters& metrics = observer_.reader(0);
    const auto next = schedule_.next();
    if (!next || !bind(*next, slot, *readers_.front(), metrics)) return false;
    for (std::uint32_t which = work_[slot].first_chunk(); which < chunk_length_.chunks(); ++which)
      read(slot, which, *readers_.front(), metrics);
    end_batch(slot, metrics);
    return true;
  }

  loader_options requested_options_;
  loader_options options_;
  std::unique_ptr<source_ops> source_;
  source_facts facts_;
  detail::schedule schedule_;
  slot_layout layout_;
  std::shared_ptr<ring_type> slots_;
  chunk_length chunk_length_;
  claim_cursor<> cursor_;
  std::vector<batch_work> work_;  // indexed by slot
  detail::delivery delivery_;

  // State of the opener. The claim cursor transfers it to the next opener.
  std::optional<schedule::place> ordered_for_;  // batch for which the last order was created
  std::exception_ptr order_error_;              // exception of the order
  std::optional<std::uint32_t> idle_slot_;      // free slot that is not bound yet

  read_supervisor supervisor_;
  // One reader per worker, or one for the consumer without workers. The readers exist after
  // `prepare`.
  std::vector<std::optional<retrying_reader>> readers_;
  loader_observer observer_;
  detail::active_workers active_workers_;
  std::unique_ptr<look_ahead> ahead_;  // null if the dataset does not accept announcements
  std::unique_ptr<tuner> tuner_;       // null if no option is `automatic`

  // State of the consumer thread.
  fork_guard process_;
  active_range range_{"loader"};
  std::uint64_t next_ = 0;  // next batch to take, numbered as in the schedule
  std::uint64_t end_ = 0;   // end of the range, numbered as in the schedule
  bool was_cut_ = false;
  shared_value<batch_position> next_position_;
  shared_value<std::optional<failure>> failure_;
  // Guards `fingerprint_`, because any thread may request a state.
  mutable std::once_flag has_fingerprint_;
  // Fingerprint of the order and the selections made by adaptors.
  mutable std::uint64_t fingerprint_ = 0;
  std::atomic<std::size_t> abandoned_{0};
  std::weak_ptr<void> state_;
  std::shared_ptr<void> retained_;  // in a forked child, keeps this object alive until exit

  // Created in advance, because a stop must not allocate memory.
  const std::exception_ptr cancellation_;
  const std::exception_ptr gone_;
  std::mutex ending_;  // serializes the ends of the worker threads
  binding_of<Device> binding_;
  // Not optional, because a worker may fail and use the pool while it is starting.
  detachable_workers<body, waker> pool_;       // the threads use all members above
  detachable_workers<body, waker> lookahead_;  // the lookahead thread, if any
  std::stop_callback<cancel_all> on_stop_;     // declared last, because it uses the pools
};

// The functions below are not inline, because `extern template` has no effect on inline functions.

template <device Device>
loader_options loader_core<Device>::checked(const loader_options& requested) {
  require_valid(requested);
  return resolved(requested);
}

template <device Device>
std::shared_ptr<host_slots<Device>> loader_core<Device>::make_slots(const Device& device,
                                                                    const slot_layout& layout,
                                                                    const loader_options& options) {
  memory_reservation granted = reserve_slots(layout.bytes(), options);
  slab<Device> memory = allocate_slots(device, layout.bytes(), options, granted);
  const auto count = static_cast<std::size_t>(granted.slot_count());
  return shared_by_leases<ring_type, typename Device::stream_ref>(device, layout, std::move(memory),
                                                                  count, std::move(granted));
}

template <device Device>
loader_core<Device>::loader_core(std::unique_ptr<source_ops> source, const epoch_plan& plan,
                                 std::shared_ptr<ring_type> ring, const loader_options& requested,
                                 const loader_options& options)
    : requested_options_(requested),
      options_(options),
      source_(std::move(source)),
      facts_(source_->facts()),
      schedule_(plan),
      layout_(ring->layout()),
      slots_(std::move(ring)),
      chunk_length_(options_, layout_.sample_bytes(), machine_clocks{}.ticks_of_ten_milliseconds()),
      cursor_(chunk_length_.chunks()),
      work_(slots_->count()),
      delivery_(slots_->count(), options_.in_order),
      supervisor_(options_.faults, source_->guarded(),
                  {std::max<std::size_t>(1, options_.workers.value()), slots_->count(),
                   options_.batch_size}),
      readers_(std::max<std::size_t>(1, options_.workers.value())),
      observer_(options_.workers.value(), chunk_length_.max_samples(), layout_.fixed_bytes(),
                options_.workers.is_automatic()),
      active_workers_(options_.workers.value(), first_workers(options_)),
      ahead_(source_->make_lookahead(schedule_, options_, observer_)),
      process_(options_.workers != 0 || supervisor_.has_thread()),
      cancellation_(cancellation_of(options_.stop)),
      gone_(std::make_exception_ptr(cancelled_by_end_of("loader"))),
      binding_(slots_->device(), options_),
      pool_((prepare(), options_.workers.value()), body{this, role::worker},
            waker{this, role::worker}),
      lookahead_(ahead_ != nullptr && has_workers() ? 1 : 0, body{this, role::lookahead},
                 waker{this, role::lookahead}),
      on_stop_(options_.stop, cancel_all{this}) {
  binding_.wait_until_taken();
  supervisor_.start([this](std::exception_ptr error, const failure& read) noexcept {
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
    // The threads do not exist in the child process, but may have held any lock at the time of the
    // fork. Therefore, this function does not access any state that a lock guards, and keeps the
    // object alive.
    range_.end();
    retained_ = state_.lock();
  } else {
    // The consumer may be in its loop on another thread, so the range is unchanged.
    fail_all({gone_}, loader_phase::ended);
    pool_.exempt_caller();  // first, because the consumer may already wait for this worker
    end_workers(true);
    end_others();
  }
  range_.close();
}

template <device Device>
failure_report loader_core<Device>::failures() const {
  return supervisor_.report();
}

template <device Device>
tuning_history loader_core<Device>::tuning() const {
  if (tuner_) return tuner_->history();
  return {.now = {options_.workers.value(), slots_->count() - 1}, .moves = {}};
}

template <device Device>
loader_state loader_core<Device>::state_at(const batch_position& next) const {
  if (!options_.in_order) {
    throw_option_error("in_order",
                       {"must be true for a state, but is false: batches in the order of "
                        "their completion have no position to continue from"});
  }
  std::call_once(has_fingerprint_, [&] {
    const scoped_flush_to_zero as_on_a_worker;
    fingerprint_ = source_->fingerprint();
  });
  const std::uint64_t world = source_->world();
  const std::uint64_t step = source_->batches_per_step();
  // The end of an epoch is the same position for all ranks, including ranks with one batch less.
  const bool ends_epoch = next.batch != 0 && next.batch == plan().batches();
  return {.version = loader_state{}.version,
          .last = static_cast<std::uint32_t>(options_.last_batch),
          .epoch = next.epoch,
          .batch = step == 0 ? (ends_epoch ? max_batches() : next.batch) : next.batch * world,
          .dataset = source_->size(),
          .samples = source_->total_samples(),
          .batch_size = options_.batch_size * (step == 0 ? world : step),
          .seed = options_.seed,
          .order = fingerprint_};
}

template <device Device>
batch_position loader_core<Device>::position_of(const loader_state& state) const {
  detail::require_same_order(state, state_at({}));
  if (source_->batches_per_step() == 0) {
    return {state.epoch, state.batch == max_batches() ? plan().batches() : state.batch};
  }
  const std::uint64_t world = source_->world();
  if (state.batch % world != 0) {
    throw state_mismatch(str_cat({"resume: the state is at batch ", state.batch,
                                  " of all ranks, which is not a multiple of the world size ",
                                  world, ": save states only after whole steps"}));
  }
  return {state.epoch, state.batch / world};
}

template <device Device>
loader_footprint loader_core<Device>::footprint() const {
  loader_footprint taken =
      footprint_of(layout_.bytes(), layout_.sample_bytes(), options_, slots_->count());
  taken.bytes = slots_->bytes();
  taken.pinned = slots_->pinned();
  taken.registration_failed = slots_->registration_failed();
  taken.failed_bytes = slots_->granted().failed_bytes();
  taken.workers = binding_.where();
  taken.warnings = source_->warnings();
  return taken;
}

template <device Device>
std::uint64_t loader_core<Device>::start(const batch_position& from, std::uint64_t last_epoch) {
  range_.require_none();
  require_threads();
  was_cut_ = false;
  const batch_position first = plan().normal(from);
  if (tuner_) tuner_->begin(next_);
  end_ = schedule_.begin(first, last_epoch);
  next_position_.store(from);
  failure_.store(std::nullopt);
  observer().begin_range();
  return range_.start();
}

template <device Device>
std::optional<std::uint32_t> loader_core<Device>::next_slot(failed_batch& failed) noexcept {
  if (at_end()) {
    stop();
    return std::nullopt;
  }
  try {
    std::optional<std::uint32_t> slot;
    if (!delivery_.has_failed()) slot = has_workers() ? wait_for_next() : read_inline();
    if (slot && take(*slot, failed)) [[likely]]
      return slot;
    if (!slot) failed = delivery_.failed();
    if (!failed) return std::nullopt;  // A loader without workers has no more batches.
  } catch (...) {
    failed = {std::current_exception()};
  }
  end_by(failed);
  pool_.mark_retrieved(failed.error);  // `end_by` has ended the workers.
  return std::nullopt;
}

template <device Device>
std::optional<std::uint32_t> loader_core<Device>::try_next_slot(failed_batch& failed) noexcept {
  if (at_end() || !has_workers()) return std::nullopt;
  // In a child process, `next` reports the error.
  if (delivery_.is_ready(next_) || process_.is_in_child()) return next_slot(failed);
  slots_->wake_if_free();
  return std::nullopt;
}

template <device Device>
void loader_core<Device>::stop() noexcept {
  if (!range_.end() || process_.is_in_child()) return;
  observer().end_range();
  if (tuner_) tuner_->end();
  const std::uint64_t bound = schedule_.cancel();
  supervisor_.interrupt();
  if (!has_workers()) next_ = bound;
  for (; next_ != bound; ++next_) {
    const auto slot = delivery_.wait(next_);
    if (!slot) break;  // `fail` has ended the delivery.
    work_[*slot].failed().error = nullptr;
    observer_.record_discarded();
    slots_->release(*slot);
  }
  // Workers may still be reading, and an opener may hang in the sampler.
  if (delivery_.has_failed()) end_workers();
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
