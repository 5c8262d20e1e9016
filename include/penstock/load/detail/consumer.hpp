// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/support/live_range.hpp>
#include <penstock/core/support/own_process.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/load/detail/crew.hpp>
#include <penstock/load/detail/engine.hpp>
#include <penstock/load/detail/plan/slots_wanted.hpp>
#include <penstock/load/detail/tuning/loop_tuner.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/options.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/threads/support/shared_value.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

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

  /// The next batch, waiting for it; empty at the end of what was started. Throws what the dataset
  /// has thrown for this batch, `leases_exhausted`, `cancelled`, `read_timeout`, or what the device
  /// throws; the range is over then.
  [[nodiscard]] batch_type next() {
    if (at_end()) {
      stop();
      return {};
    }
    try {
      if (delivery().has_failed()) delivery().rethrow(failure_);
      return has_workers() ? take(wait_for_next()) : read_inline();
    } catch (...) {
      stop();
      throw;
    }
  }

  /// The next batch if it is complete already; else empty. Without workers always empty.
  [[nodiscard]] batch_type try_next() {
    if (at_end() || !has_workers()) return {};
    if (delivery().is_ready(next_) || delivery().has_failed()) return next();
    process_.require();
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
      engine_.batch_in(*slot).take_error();
      engine_.observer().note_discarded();
      ring().give_back(*slot);
    }
    // Where nothing was under way, an opener may still hang in its sampler.
    if (delivery().has_failed()) end_workers();
  }

 private:
  void end_workers() noexcept { abandoned_ += crew_.end_workers(state_.lock()); }

  /// The slot of the next batch once it is complete.
  std::uint32_t wait_for_next() {
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
    if (!slot) delivery().rethrow(failure_);
    return *slot;
  }

  /// Makes the lease of a complete batch, or throws its error.
  batch_type take(std::uint32_t slot) {
    ++next_;
    auto& batch = engine_.batch_in(slot);
    failure where = batch.error_where();
    if (const auto error = engine_.guard().verdict(slot, batch.info, batch.take_error(), where)) {
      failure_.store(where);
      engine_.observer().note_discarded();
      ring().give_back(slot);
      std::rethrow_exception(error);
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

  batch_type read_inline() {
    auto slot = ring().try_acquire(engine_.observer().reader(0));
    if (!slot && waits_for_leases()) {
      const auto timed = seen().for_lease();
      slot = ring().acquire_starving();
    }
    if (!slot && delivery().has_failed()) delivery().rethrow(failure_);  // stopped meanwhile
    if (!slot) ring().throw_exhausted();
    if (!engine_.read_inline(*slot)) {
      ring().give_back(*slot);
      return {};
    }
    if (delivery().has_failed()) {  // and the batch may not be whole
      ring().give_back(*slot);
      delivery().rethrow(failure_);
    }
    return take(*slot);
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
