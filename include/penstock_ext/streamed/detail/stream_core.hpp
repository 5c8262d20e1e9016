// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/support/fork_guard.hpp>
#include <penstock/device/device.hpp>
#include <penstock/load/batch_range.hpp>
#include <penstock/load/footprint.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/delivery.hpp>
#include <penstock/load/support/plan.hpp>
#include <penstock/load/support/pull_loop.hpp>
#include <penstock/memory/support/host_slots.hpp>
#include <penstock/resume/loader_state.hpp>
#include <penstock/threads/support/shared_value.hpp>
#include <penstock/threads/worker_pool.hpp>
#include <penstock/transfer/batch_source.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The position of a loop over a `streamed`: the next batch, and the token that `fill` set for the
/// previous batch. A checkpoint must store all three members.
struct stream_state {
  std::uint64_t epoch = 0;  ///< index of the pass over the stream
  std::uint64_t batch = 0;  ///< number of previous batches in this pass
  /// Token of the previous batch. Empty at batch 0, and if `fill` set no token for that batch.
  std::string token;

  friend bool operator==(const stream_state&, const stream_state&) = default;

  /// Accepts all states, because the program defines the token.
  friend void require_same_order(const stream_state&, const stream_state&) noexcept {}
};

/// Options of a `streamed`. Invalid values cause `option_error` at construction.
struct streamed_options {
  /// Maximum number of samples in a batch.
  std::size_t batch_size = 1;
  /// Number of threads that call `fill`, at least 1. More than one thread helps only if `fill`
  /// calls `stream_turn::pass`.
  std::size_t workers = 1;
  /// Number of batches to read ahead of the consumer, in prefetch + 1 slots. 0 selects the value
  /// automatically, as in a loader.
  std::size_t prefetch = 0;
  /// If true, batches are in page-locked memory.
  bool pinned = true;
  /// Action if the consumer requests a batch while leases hold all slots.
  exhausted_action on_slots_exhausted = exhausted_action::fail;
  /// Token that ends the stream permanently. After a stop request, the consumer receives
  /// `cancelled` at its next step.
  std::stop_token stop = {};
  /// Amount and kind of memory for host slots.
  loader_memory_options memory = {};
  /// Moves the stream to a position before a loop continues there. At batch 0, the token is empty
  /// and the stream restarts. The consumer thread calls this at the start of each pass, while no
  /// thread is in `fill`. Without it, the stream can be read only once, starting at batch 0.
  std::function<void(const stream_state&)> seek = {};
};

/// The turn of a thread to read a stream. `fill` receives it for each batch. A turn begins after
/// the previous turn has ended, and batches are in turn order.
class stream_turn {
 public:
  /// @cond internal
  stream_turn(std::size_t worker, std::stop_token stop, std::unique_lock<std::mutex>& turn,
              std::string& token) noexcept
      : worker_(worker), stop_(std::move(stop)), turn_(&turn), token_(&token) {}
  stream_turn(stream_turn&&) = delete;
  /// @endcond

  /// Sets the token of this batch, such as a file offset or the positions of a message queue. A
  /// state saved after this batch contains the token.
  void set_token(std::string token) noexcept { *token_ = std::move(token); }

  /// Ends the turn before `fill` returns, so that another thread can run `fill` concurrently. Call
  /// this after `fill` has read the records of this batch from the stream, and before it decodes
  /// them. A second call has no effect.
  void pass() noexcept {
    if (turn_->owns_lock()) turn_->unlock();
  }

  /// Returns the index of the calling thread, less than `streamed_options::workers`.
  [[nodiscard]] std::size_t worker() const noexcept { return worker_; }

  /// Returns a stop token. A stop is requested when the loop has ended and no consumer will receive
  /// the batch. A `fill` that waits for data should then return 0.
  [[nodiscard]] const std::stop_token& stop_token() const noexcept { return stop_; }

 private:
  std::size_t worker_;
  std::stop_token stop_;
  std::unique_lock<std::mutex>* turn_;
  std::string* token_;
};

namespace detail {

/// Returns the options of a loader with the same slots. Throws `option_error` if an option is
/// invalid.
[[nodiscard]] inline loader_options options_of_stream(const streamed_options& options) {
  if (options.workers == 0) throw_option_error("workers", {"must be at least 1, but is 0"});
  const loader_options same{.batch_size = options.batch_size,
                            .workers = options.workers,
                            .prefetch = options.prefetch,
                            .pinned = options.pinned,
                            .memory = options.memory};
  require_valid(same);
  return resolved(same);
}

/// The part of a `streamed` that does not depend on its record: the reader threads and the batch
/// order.
///
/// A thread takes a free slot, waits for its turn, and claims the next sequence number (`claims_`).
/// Therefore each claim has a slot, and the oldest claim always completes. `delivery` passes the
/// slots to the consumer in claim order. A claim that finds the end or an error closes the pass
/// before it is announced. Earlier claims are still completed and delivered. The consumer counts
/// the batches, because the last claims may be empty.
template <device Device>
class stream_core {
 public:
  using ring_type = host_slots<Device>;
  /// A function that fills a batch in slot memory. Returns the number of samples.
  using fill_function = std::function<std::size_t(std::byte* slab, stream_turn&)>;

  /// A batch for the consumer.
  struct taken {
    std::uint32_t slot;
    batch_info info;
  };

  /// Starts the threads. Each slot of `ring` has room for `options.batch_size` samples. Throws
  /// `std::system_error`.
  stream_core(std::shared_ptr<ring_type> ring, fill_function fill, const streamed_options& options)
      : slots_(std::move(ring)),
        fill_(std::move(fill)),
        options_(options),
        delivery_(slots_->count(), true),
        filled_(slots_->count()),
        max_known_(max_ahead + slots_->count()),
        cancelled_(
            std::make_exception_ptr(cancelled("cancelled: streamed_options::stop was requested"))),
        gone_(std::make_exception_ptr(cancelled_by_end_of("streamed"))),
        pool_((known_.reserve(max_known_), options.workers), body{this}, waker{this}),
        on_stop_(options.stop, cancel{this}) {}
  stream_core(stream_core&&) = delete;
  ~stream_core() { shut_down(); }

  /// Ends all threads permanently, after running calls of `fill` have returned. An unfinished loop
  /// receives `cancelled`.
  void shut_down() noexcept {
    if (!is_in_child()) {
      delivery_.fail({gone_}, loader_phase::ended);
      pool_.stop();
    }
    range_.close();
  }
  /// Returns true in a child created by fork(), which does not have the threads.
  [[nodiscard]] bool is_in_child() const noexcept { return process_.is_in_child(); }

  /// @name Thread-safe
  /// @{
  [[nodiscard]] const std::shared_ptr<ring_type>& ring() const noexcept { return slots_; }
  [[nodiscard]] const streamed_options& options() const noexcept { return options_; }
  [[nodiscard]] std::optional<failure> last_failure() const noexcept { return failure_.load(); }
  [[nodiscard]] batch_position next_position() const noexcept { return next_position_.load(); }
  /// Returns the state of a loop whose next batch is `next`. Throws `state_mismatch` if its token
  /// is not known.
  [[nodiscard]] stream_state state_at(const batch_position& next) const {
    const std::lock_guard lock{mutex_};
    for (std::size_t age = 0; age != known_.size(); ++age) {
      const stream_state& one = known_[(newest_ + known_.size() - age) % known_.size()];
      if (one.epoch == next.epoch && one.batch == next.batch) return one;
    }
    if (next.batch == 0) return {next.epoch, 0, {}};
    throw state_mismatch(
        str_cat({"streamed: batch ", next.batch, " of epoch ", next.epoch,
                 " has no known token: a state is known for the newest ", max_known_,
                 " batches that were handed out, and for a state that was passed to resume"}));
  }
  /// Makes the token of `state` available to `state_at` and `start`.
  void remember(const stream_state& state) {
    const std::lock_guard lock{mutex_};
    if (known_.size() < max_known_) {
      known_.push_back(state);
      newest_ = known_.size() - 1;
    } else {
      newest_ = (newest_ + 1) % known_.size();
      known_[newest_] = state;
    }
  }
  /// @}

  /// @name Consumer thread only
  /// @{

  /// Starts a pass at `from` (see `batch_range`). Returns the serial number of the range.
  std::uint64_t start(const batch_position& from, std::uint64_t last_epoch) {
    range_.require_none();
    require_threads();
    if (delivery_.has_failed()) std::rethrow_exception(delivery_.failed().error);
    failure_.store(std::nullopt);
    next_position_.store(from);
    last_epoch_ = last_epoch;
    end_ = next_;
    if (from.epoch < last_epoch) begin_pass(state_at(from));
    return range_.start();
  }
  [[nodiscard]] bool is_current(std::uint64_t serial) const noexcept {
    return range_.is_current(serial);
  }
  [[nodiscard]] bool was_started() const noexcept { return range_.was_started(); }
  /// Returns true if `next` has no further batch.
  [[nodiscard]] bool at_end() const noexcept {
    return !range_.is_live() || (next_ == end_ && !has_next_pass());
  }

  /// Returns the next batch, whose slot the caller then owns. If `waits` is true, waits for the
  /// batch. Returns nothing at the end. Propagates errors from `fill`, `seek` and the device.
  /// Throws `leases_exhausted` and `cancelled`. An error ends the range.
  [[nodiscard]] std::optional<taken> next(bool waits) {
    try {
      while (!at_end()) {
        if (next_ == end_) {
          if (!waits) return std::nullopt;
          begin_pass({at_.epoch + 1, 0, {}});
        }
        if (!waits && !delivery_.is_ready(next_)) {
          slots_->wake_if_free();
          return std::nullopt;
        }
        const std::uint32_t slot = wait_for_next();
        if (auto batch = take(slot)) return batch;
      }
    } catch (...) {
      stop();
      throw;
    }
    stop();
    return std::nullopt;
  }

  /// Ends the range: begins no further turn, waits for running turns, and drops their batches.
  void stop() noexcept {
    if (!range_.end() || is_in_child()) return;
    close_pass();
    end_turns();
    for (const std::uint64_t bound = claimed(); next_ != bound; ++next_) {
      const auto slot = delivery_.wait(next_);
      if (!slot) break;  // no further slot will be delivered
      slots_->release(*slot);
    }
  }
  /// @}

 private:
  static constexpr std::uint64_t unknown = (std::numeric_limits<std::uint64_t>::max)();
  static constexpr std::size_t max_ahead = 1024;  // maximum depth of a transfer

  /// The result of the turn that filled a slot.
  struct filling {
    std::size_t size = 0;
    std::string token;
    std::exception_ptr error;
  };
  struct body {
    stream_core* self;
    void operator()(const std::stop_token& stop, std::size_t worker) const noexcept {
      try {
        self->work(stop, worker);
      } catch (...) {  // a device error
        self->delivery_.fail({std::current_exception()});
        self->pool_.request_stop();
      }
    }
  };
  struct waker {
    stream_core* self;
    void operator()() const noexcept {
      self->slots_->close();
      self->close_pass();
      self->end_turns();
    }
  };
  struct cancel {
    stream_core* self;
    void operator()() const noexcept {
      self->delivery_.fail({self->cancelled_});
      self->pool_.request_stop();
    }
  };

  // ---- Reader threads

  void work(const std::stop_token& stop, std::size_t worker) {
    slots_->device().make_current();
    while (wait_for_pass(stop)) {
      const auto slot = slots_->acquire();
      if (!slot) return;
      if (const auto claim = run_turn(*slot, worker)) {
        delivery_.announce(*claim, *slot);
      } else {
        slots_->release(*slot);
      }
    }
  }
  [[nodiscard]] bool wait_for_pass(const std::stop_token& stop) {
    std::unique_lock lock{mutex_};
    opened_.wait(lock, [&] { return is_open_ || stop.stop_requested(); });
    return !stop.stop_requested();
  }
  /// Fills `slot`. Returns the sequence number of the claim, or nothing if the pass has already
  /// ended.
  [[nodiscard]] std::optional<std::uint64_t> run_turn(std::uint32_t slot, std::size_t worker) {
    std::unique_lock turn{turn_};
    std::uint64_t claim = 0;
    std::stop_token stop;
    {
      const std::lock_guard lock{mutex_};
      if (!is_open_) return std::nullopt;
      claim = claims_++;
      stop = turns_.get_token();
    }
    filling& of = filled_[slot];
    of = {};
    try {
      stream_turn mine{worker, std::move(stop), turn, of.token};
      const std::size_t size = fill_(slots_->data(slot), mine);
      if (size > options_.batch_size) throw_too_large(size);
      of.size = size;
    } catch (...) {
      of.error = std::current_exception();
    }
    // Closes the pass before the turn ends, so that no turn follows.
    if (of.size == 0) close_pass();
    return claim;
  }
  [[noreturn, gnu::cold]] void throw_too_large(std::size_t size) const {
    throw source_mismatch(str_cat({"streamed: fill returned ", size, ", and its view has room for ",
                                   options_.batch_size, " samples: return what was written"}));
  }

  // ---- Passes

  /// Begins no further turn.
  void close_pass() noexcept {
    const std::lock_guard lock{mutex_};
    is_open_ = false;
    opened_.notify_all();  // also wakes threads that must end
  }
  /// Requests a stop of running turns, because no consumer will receive their batches.
  void end_turns() noexcept {
    std::optional<std::stop_source> turns;
    {
      const std::lock_guard lock{mutex_};
      turns = turns_;
    }
    turns->request_stop();  // without the lock, because callbacks of the program may run
  }
  /// Returns the number of claims so far.
  [[nodiscard]] std::uint64_t claimed() const noexcept {
    const std::lock_guard lock{mutex_};
    return claims_;
  }
  [[nodiscard]] bool has_next_pass() const noexcept {
    return last_epoch_ != endless && at_.epoch + 1 < last_epoch_;
  }
  /// Starts a pass at `from`. No turn may be running.
  void begin_pass(const stream_state& from) {
    if (options_.seek) {
      options_.seek(from);
    } else if (was_read_ || from.batch != 0) {
      throw state_mismatch(
          "streamed: the stream can be read only once, from its start: set streamed_options::seek "
          "to start again or to resume");
    }
    was_read_ = true;
    at_ = {from.epoch, from.batch};
    end_ = unknown;
    const std::lock_guard lock{mutex_};
    turns_ = new_turns();
    is_open_ = !delivery_.has_failed();
    opened_.notify_all();
  }

  // ---- Consumer

  /// Throws `std::logic_error` in a child created by fork().
  void require_threads() const { process_.require("streamed", "make a stream of its own here"); }
  /// Waits for the next claim and returns its slot.
  [[nodiscard]] std::uint32_t wait_for_next() {
    if (options_.on_slots_exhausted == exhausted_action::fail && slots_->is_exhausted())
      slots_->throw_exhausted();
    const bool starving = !delivery_.is_ready(next_);
    if (starving) require_threads();
    if (starving) slots_->set_starving(true);
    const auto slot = delivery_.wait(next_);
    if (starving) slots_->set_starving(false);
    if (!slot) std::rethrow_exception(delivery_.failed().error);
    return *slot;
  }
  /// Takes the batch of a claim. Returns nothing if the claim is empty. If the claim contains an
  /// error instead of a batch, throws it.
  [[nodiscard]] std::optional<taken> take(std::uint32_t slot) {
    ++next_;
    filling& of = filled_[slot];
    if (of.size == 0) {
      const std::exception_ptr error = std::exchange(of.error, nullptr);
      slots_->release(slot);
      if (error) {
        failure_.store(failure{"fill", at_.epoch, at_.batch});
        std::rethrow_exception(error);
      }
      end_ = claimed();  // the pass is closed, so this value is final
      return std::nullopt;
    }
    const batch_info info{
        .epoch = at_.epoch, .batch = at_.batch, .size = of.size, .valid_size = of.size};
    ++at_.batch;
    try {
      remember({at_.epoch, at_.batch, std::move(of.token)});
    } catch (...) {  // no memory for the state
      slots_->release(slot);
      throw;
    }
    next_position_.store(at_);
    return taken{slot, info};
  }

  fork_guard process_{true};
  std::shared_ptr<ring_type> slots_;
  fill_function fill_;
  streamed_options options_;
  detail::delivery delivery_;
  std::vector<filling> filled_;  // indexed by slot; accessed only by the owner of the slot

  std::mutex turn_;                 // held during a turn
  mutable std::mutex mutex_;        // guards the members below up to the empty line
  std::condition_variable opened_;  // wakes threads that wait for a pass
  bool is_open_ = false;            // true if a turn may begin
  std::uint64_t claims_ = 0;
  std::stop_source turns_ = new_turns();
  std::vector<stream_state> known_;  // ring buffer of the newest states
  std::size_t newest_ = 0;           // index of the newest state in `known_`

  // The members below belong to the consumer thread.
  std::size_t max_known_;
  active_range range_{"streamed"};
  std::uint64_t next_ = 0;  // next claim to deliver
  std::uint64_t end_ = 0;   // end of the claims in the pass, or `unknown`
  std::uint64_t last_epoch_ = 0;
  batch_position at_;  // next batch
  bool was_read_ = false;
  shared_value<batch_position> next_position_;
  shared_value<std::optional<failure>> failure_;

  // Created in advance, because a stop must not allocate memory.
  const std::exception_ptr cancelled_;
  const std::exception_ptr gone_;
  worker_pool<body, waker> pool_;       // declared after the members that the threads use
  std::stop_callback<cancel> on_stop_;  // declared last, because the callback uses the pool

  // Not inlined, because GCC 12 would warn about an uninitialized std::stop_source.
  [[gnu::noinline]] static std::stop_source new_turns() { return {}; }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
