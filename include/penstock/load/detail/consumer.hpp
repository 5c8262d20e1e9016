// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/support/live_range.hpp>
#include <penstock/core/support/own_process.hpp>
#include <penstock/core/version.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/device/device.hpp>
#include <penstock/load/detail/engine.hpp>
#include <penstock/load/detail/plan/plan.hpp>
#include <penstock/load/detail/tuning/loop_tuner.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/failed_batch.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/threads/cpu_list.hpp>
#include <penstock/threads/support/cpus.hpp>
#include <penstock/threads/support/shared_value.hpp>
#include <penstock/threads/support/waitable_counter.hpp>
#include <penstock/threads/worker_cores.hpp>
#include <penstock/threads/worker_pool.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Where workers of a loader that the calling thread makes are to run, next to `device`: threads
/// start with the mask of their creator. Throws what the device does.
template <class Device>
[[nodiscard]] worker_cores plan_cores(const Device& device, const loader_options& options) {
  if (options.placement == worker_placement::anywhere) return {.binding = core_binding::not_asked};
  const std::optional<int> node = host_node_of(device);
  if (!node) return {};
  if (options.workers == 0) return {.binding = core_binding::no_workers, .node = node};
  const auto there = cpus_of_node(sysfs_root_of(device), *node);
  if (!there) return {.binding = core_binding::unknown_cores, .node = node};
  const auto mask = affinity_of_this_thread();
  if (!mask) return {.binding = core_binding::refused, .node = node, .error_number = errno};
  cpu_list both = common_cores(*there, *mask);
  if (both.empty()) return {.binding = core_binding::outside_mask, .node = node};
  const bool is_all = both == *mask;
  return {.binding = is_all ? core_binding::within_node : core_binding::bound,
          .node = node,
          .cores = std::move(both)};
}

/// The cores of a loader's workers: each binds itself at its start, where there is anything to bind
/// to. A refusal is no error, and visible.
class worker_binding {
 public:
  /// For as many workers as `options` say.
  template <class Device>
  worker_binding(const Device& device, const loader_options& options)
      : plan_(plan_cores(device, options)),
        bits_(plan_.cores),
        workers_(static_cast<std::uint32_t>(options.workers)) {}

  /// A worker, at its start.
  void take() noexcept {
    if (plan_.binding != core_binding::bound) return;
    const int error = bind_this_thread(bits_);
    // Relaxed: the counter orders it, and any of several refusals will do.
    if (error != 0) error_.store(error, std::memory_order_relaxed);
    seated_.advance();
  }

  /// The thread that has started the workers: returns once each has bound itself, or was refused.
  /// At once where there is nothing to bind to.
  void wait_until_taken() const noexcept {
    if (plan_.binding != core_binding::bound) return;
    seated_.wait([this](std::uint32_t seated) { return seated == workers_; });
  }

  /// Where the workers run; after `wait_until_taken`. From any thread.
  [[nodiscard]] worker_cores where() const {
    worker_cores found = plan_;
    // Relaxed: read after the wait for the counter, which every worker advances after its store.
    const int error = error_.load(std::memory_order_relaxed);
    if (error == 0) return found;
    found.binding = core_binding::refused;
    found.error_number = error;
    return found;
  }

 private:
  worker_cores plan_;
  cpu_bits bits_;
  std::uint32_t workers_;
  waitable_counter seated_;    // workers that have tried
  std::atomic<int> error_{0};  // what a refusal gave
};

/// What a consumer gets once `stop` is requested; null where it can't be.
[[nodiscard]] inline std::exception_ptr cancellation_of(const std::stop_token& stop) {
  if (!stop.stop_possible()) return nullptr;
  return std::make_exception_ptr(cancelled("cancelled: loader_options::stop was requested"));
}

/// The threads that run an engine: its workers, the one that tells the dataset what comes, and the
/// guard's that watches the workers; and what ends them.
template <class Engine>
class crew {
 public:
  /// Starts them. `engine` must outlive this. With `borrows` a thread whose read hangs may need
  /// what the loader does not own.
  crew(Engine& engine, bool borrows)
      : engine_(&engine),
        borrows_(borrows),
        cancellation_(cancellation_of(engine.options().stop)),
        binding_(engine.device(), engine.options()),
        pool_(engine.options().workers, body{this, duty::read}, waker{this, duty::read}),
        telling_(tells(engine), body{this, duty::tell}, waker{this, duty::tell}),
        on_stop_(engine.options().stop, cancel_all{this}) {
    binding_.wait_until_taken();
    engine.guard().start([this](std::exception_ptr error, const failure& read) noexcept {
      fail_all(std::move(error), read);
    });
  }
  crew(crew&&) = delete;
  ~crew() { shut_down(); }

  /// Where the workers run. From any thread.
  [[nodiscard]] worker_cores where() const { return binding_.where(); }

  /// Ends the workers, and waits for all whose read was not given up. The threads of the others are
  /// detached, and keep `state` alive until their read returns, where the loader owns all that they
  /// use; else they wait for `shut_down`. Returns how many were detached.
  std::size_t end_workers(const std::shared_ptr<void>& state) noexcept {
    const auto is_lost = [this](std::size_t worker) {
      return engine_->guard().is_given_up(worker);
    };
    return pool_.stop(is_lost, borrows_ ? nullptr : state);
  }

  /// After `end_workers`: ends all other threads, and waits for them; for the call that the one
  /// that tells is in, with a timeout no longer than that. It is detached then, as a worker.
  void shut_down(const std::shared_ptr<void>& state = nullptr) noexcept {
    engine_->guard().stop(borrows_);
    pool_.stop();
    if constexpr (Engine::tells) {
      const auto timeout = engine_->options().timeout;
      if (state != nullptr && !borrows_ && timeout.count() > 0) {
        telling_.request_stop();
        const bool is_silent = engine_->teller().wait_until_silent(timeout);
        telling_.stop([&](std::size_t) { return !is_silent; }, state);
      }
      telling_.stop();
    }
  }

 private:
  // How many threads tell.
  static std::size_t tells([[maybe_unused]] Engine& engine) noexcept {
    if constexpr (Engine::tells) return engine.options().workers != 0 && engine.teller().is_on();
    return 0;
  }

  /// What the threads of a pool do. Both pools are of one type: compiled once.
  enum class duty : unsigned char { read, tell };
  struct body {  // what they run
    crew* self;
    duty what;
    void operator()(const std::stop_token& stop, std::size_t worker) const {
      if constexpr (Engine::tells)
        if (what == duty::tell) return self->engine_->teller().work();
      try {
        self->binding_.take();
        self->engine_->work(stop, worker);
      } catch (...) {
        self->fail_all(std::current_exception());
        throw;
      }
    }
  };
  struct waker {  // what wakes them after a stop request
    crew* self;
    duty what;
    void operator()() const noexcept {
      if constexpr (Engine::tells)
        if (what == duty::tell) return self->engine_->teller().end();
      self->engine_->wake();
    }
  };
  struct cancel_all {
    crew* self;
    void operator()() const noexcept {
      self->fail_all(self->cancellation_);
      self->pool_.request_stop();
      if constexpr (Engine::tells) self->telling_.request_stop();
    }
  };

  /// Nothing can be read any more: a worker failed outside a dataset's read (the device is in
  /// error), a read hangs beyond the timeout, or a stop was requested. The consumer gets the
  /// exception at its next step. From any thread.
  void fail_all(std::exception_ptr error, const std::optional<failure>& where = {}) noexcept {
    engine_->delivery().fail({std::move(error), where});
    engine_->guard().interrupt();
    pool_.look_again();
  }

  Engine* engine_;
  bool borrows_;
  const std::exception_ptr cancellation_;  // made before it is needed: a stop must not want memory
  worker_binding binding_;
  worker_pool<body, waker> pool_;  // its threads use all of the above
  // One thread, which tells the dataset what comes, or none.
  [[no_unique_address]] std::conditional_t<Engine::tells, worker_pool<body, waker>, no_teller>
      telling_;
  std::stop_callback<cancel_all> on_stop_;  // last: it uses the pools
};

/// The end of a batch's path: starts ranges, takes what the engine announces, ends ranges and
/// threads. Owns the engine and its crew; `loader` is its face. For the consumer's thread.
template <dataset Dataset, sampler Sampler, device Device>
class consumer {
 public:
  using engine_type = detail::engine<Dataset, Sampler, Device>;
  using batch_type = host_batch<typename Dataset::record_type, Device>;

  /// Starts all threads.
  consumer(Dataset data, const Sampler& order, const Device& device, const loader_options& options)
      : asked_(options),
        engine_(std::move(data), order, device, options),
        crew_(engine_, borrows<Dataset> || borrows<Sampler>),
        process_(options.workers != 0 || engine_.guard().has_thread()) {
    if (!has_automatic(engine_.options())) return;
    tuner_.emplace(engine_.options(), ring().count(), engine_.layout().bytes(), engine_.schedule(),
                   engine_.seats(), engine_.observer());
  }
  consumer(consumer&&) = delete;
  ~consumer() { shut_down(); }

  /// `state` is what holds this object: the thread of a reader that is abandoned keeps it alive.
  void kept_alive_by(const std::shared_ptr<void>& state) noexcept { state_ = state; }

  /// Ends the range and all threads, permanently. Waits for reads, except those beyond the timeout
  /// of a dataset that the loader owns.
  void shut_down() noexcept {
    if (process_.is_in_child()) {
      // The threads are not here to be waited for, and may have held any lock when the process was
      // copied: nothing is touched, and from now on this keeps itself.
      range_.end();
      kept_ = state_.lock();
    } else {
      stop();
      end_workers();
      crew_.shut_down(state_.lock());
    }
    range_.close();
  }

  /// What the batches come from. From any thread.
  [[nodiscard]] const engine_type& engine() const noexcept { return engine_; }
  /// The position of the batch after the one that was taken last, in order. From any thread.
  [[nodiscard]] batch_position next_position() const noexcept { return next_position_.load(); }
  /// What the consumer's thread records; or null.
  [[nodiscard]] trace_writer* trace() noexcept { return seen().trace(); }
  /// Whether `serial` names the range that was started last.
  [[nodiscard]] bool is_last(std::uint64_t serial) const noexcept { return range_.is_last(serial); }
  /// The place of the exception that ended the last range. From any thread.
  [[nodiscard]] std::optional<failure> last_failure() const noexcept { return failure_.load(); }
  /// How many threads were detached. From any thread.
  [[nodiscard]] std::size_t abandoned_readers() const noexcept { return abandoned_.load(); }
  /// What the user wrote.
  [[nodiscard]] const loader_options& asked() const noexcept { return asked_; }
  /// Where the workers run. From any thread.
  [[nodiscard]] worker_cores where() const { return crew_.where(); }
  /// What was chosen while the loop ran. From any thread.
  [[nodiscard]] tuning_history tuning() const {
    if (tuner_) return tuner_->history();
    return {.now = {engine_.options().workers, engine_.ring()->count() - 1}, .moves = {}};
  }

  /// Starts to read the batches from `from` to the start of epoch `last_epoch`. Returns the range's
  /// serial number.
  std::uint64_t start(const batch_position& from, std::uint64_t last_epoch) {
    range_.require_none();
    process_.require();
    const batch_position first = engine_.schedule().plan().normal(from);
    if (tuner_) tuner_->begin(next_);
    end_ = engine_.schedule().begin(first, last_epoch);
    next_position_.store(from);
    failure_.store(std::nullopt);
    seen().begin_range();
    return range_.start();
  }

  /// The next batch, waiting for it; empty at the end of what was started, and where `failed` says
  /// what is in its place: what the dataset has thrown for this batch, `leases_exhausted`,
  /// `cancelled`, `read_timeout`, or what the device throws. The range is over then.
  [[nodiscard]] batch_type next(failed_batch& failed) noexcept {
    if (at_end()) {
      stop();
      return {};
    }
    try {
      batch_type batch = has_workers() ? take_next(failed) : read_inline(failed);
      if (!failed) [[likely]]
        return batch;
    } catch (...) {
      failed = {std::current_exception()};
    }
    failure_.store(failed.place);
    stop();
    return {};
  }

  /// The next batch if it is complete already; else empty. Without workers always empty.
  [[nodiscard]] batch_type try_next(failed_batch& failed) noexcept {
    if (at_end() || !has_workers()) return {};
    // In a child process `next` says what is wrong.
    const bool is_due = delivery().is_ready(next_) || delivery().has_failed();
    if (is_due || process_.is_in_child()) return next(failed);
    ring().wake_if_free();
    return {};
  }

  /// Whether `next` has no batch left to give.
  [[nodiscard]] bool at_end() const noexcept { return !range_.is_live() || next_ == end_; }

  /// Ends the range: nothing new is read, reads under way are waited for, their slots come back.
  /// The engine can be started again. Without a range it does nothing.
  void stop() noexcept {
    if (!range_.end() || process_.is_in_child()) return;
    seen().end_range();
    if (tuner_) tuner_->end();
    const std::uint64_t bound = engine_.schedule().cancel();
    engine_.guard().interrupt();
    if (!has_workers()) next_ = bound;
    for (; next_ != bound; ++next_) {
      const auto slot = delivery().wait(next_);
      if (!slot) return end_workers();  // nothing is delivered any more: others may still read
      engine_.batch_in(*slot).failed().error = nullptr;
      engine_.observer().note_discarded();
      ring().give_back(*slot);
    }
    // Where nothing was under way, an opener may still hang in its sampler.
    if (delivery().has_failed()) end_workers();
  }

 private:
  void end_workers() noexcept { abandoned_ += crew_.end_workers(state_.lock()); }

  /// The next batch once it is complete.
  batch_type take_next(failed_batch& failed) {
    const auto slot = wait_for_next();
    if (slot) return take(*slot, failed);
    failed = delivery().failed();
    return {};
  }
  /// The slot of the next batch once it is complete; empty where nothing can be read any more.
  std::optional<std::uint32_t> wait_for_next() {
    if (delivery().has_failed()) return std::nullopt;
    // Unless leases end on other threads, only the consumer could give a slot back.
    if (!waits_for_leases() && ring().leased() == ring().count()) {
      ring().throw_exhausted();
    }
    const bool starving = !delivery().is_ready(next_);
    if (starving) process_.require();
    if (starving) ring().set_starving(true);
    const auto slot = [&] {
      [[maybe_unused]] const stage_mark mark{marked_stage::wait_for_batch};
      const auto timed = seen().for_batch(starving);
      return delivery().wait(next_);
    }();
    if (starving) ring().set_starving(false);
    return slot;
  }

  /// The lease of a complete batch, or what stands for it.
  batch_type take(std::uint32_t slot, failed_batch& failed) {
    ++next_;
    auto& batch = engine_.batch_in(slot);
    engine_.guard().judge(slot, batch.info, batch.failed());
    if (batch.failed()) {
      failed = std::exchange(batch.failed(), {});
      engine_.observer().note_discarded();
      ring().give_back(slot);
      return {};
    }
    engine_.observer().note_taken(batch.info.size);
    if constexpr (tells_lengths<Dataset>) note_values(seen(), batch, engine_.view_of(slot));
    if (tuner_) [[unlikely]]
      tuner_->take(next_);
    if (trace() != nullptr) [[unlikely]]
      trace()->work_on(batch.info);
    try {
      batch_type lease{engine_.ring(), slot, batch.info};
      next_position_.store(batch_position{batch.info.epoch, batch.info.batch + 1});
      return lease;
    } catch (...) {  // a checked build without memory for what it keeps of a lease
      ring().give_back(slot);
      throw;
    }
  }

  batch_type read_inline(failed_batch& failed) {
    if (delivery().has_failed()) {
      failed = delivery().failed();
      return {};
    }
    auto slot = ring().try_acquire(engine_.observer().reader(0));
    if (!slot && waits_for_leases()) {
      const auto timed = seen().for_lease();
      slot = ring().acquire_starving();
    }
    if (!slot && !delivery().has_failed()) ring().throw_exhausted();
    const bool is_bound = slot && engine_.read_inline(*slot);
    if (delivery().has_failed()) {  // stopped meanwhile, and the batch may not be whole
      failed = delivery().failed();
    } else if (is_bound) {
      return take(*slot, failed);
    }
    if (slot) ring().give_back(*slot);
    return {};
  }

  [[nodiscard]] bool has_workers() const noexcept { return engine_.options().workers != 0; }
  [[nodiscard]] bool waits_for_leases() const noexcept {
    return engine_.options().when_held == held_action::wait;
  }
  [[nodiscard]] detail::delivery& delivery() noexcept { return engine_.delivery(); }
  [[nodiscard]] consumer_meters<tick_clock>& seen() noexcept {
    return engine_.observer().of_consumer();
  }
  [[nodiscard]] typename engine_type::slots_type& ring() noexcept { return *engine_.ring(); }

  loader_options asked_;
  engine_type engine_;
  crew<engine_type> crew_;
  std::optional<loop_tuner> tuner_;
  own_process process_;
  live_range range_{"loader"};
  std::uint64_t next_ = 0;  // the next batch to take, numbered as in the schedule
  std::uint64_t end_ = 0;   // the one after the last of the range
  shared_value<batch_position> next_position_;
  shared_value<std::optional<failure>> failure_;
  std::atomic<std::size_t> abandoned_{0};
  std::weak_ptr<void> state_;
  std::shared_ptr<void> kept_;  // in a child process: what holds this object, until its end
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
