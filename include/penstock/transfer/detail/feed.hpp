// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/support/slot_layout.hpp>
#include <penstock/device/device.hpp>
#include <penstock/faults/error_policy.hpp>
#include <penstock/load/any_loader.hpp>
#include <penstock/load/batch_range.hpp>
#include <penstock/load/footprint.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/stage.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/memory/support/sample_lists.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/support/stage_probe.hpp>
#include <penstock/observe/trace_target.hpp>
#include <penstock/threads/support/shared_value.hpp>
#include <penstock/transfer/batch_source.hpp>
#include <penstock/transfer/detail/device_slots.hpp>
#include <penstock/transfer/detail/device_timer.hpp>
#include <penstock/transfer/detail/feed_observer.hpp>
#include <penstock/transfer/detail/feed_tuner.hpp>
#include <penstock/transfer/detail/source_stage.hpp>
#include <penstock/transfer/detail/transform_stage.hpp>
#include <penstock/transfer/device_batch.hpp>
#include <penstock/transfer/device_transform.hpp>
#include <penstock/transfer/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The requirements of `transfer` on its source and transform.
template <class Source, class Transform>
concept transferable =
    batch_source<Source> &&
    (std::same_as<Transform, no_transform> ||
     device_transform<Transform, typename Source::record_type, typename Source::device_type>);

/// Reads a stage for a feed, which takes batches ahead of its consumer. An error is stored until
/// the consumer has received the batches before it. Only the consumer thread may use this object.
template <stage Stage>
class stage_reader {
 public:
  using batch_type = typename Stage::batch_type;

  explicit stage_reader(std::shared_ptr<Stage> from) noexcept : stage_(std::move(from)) {}
  stage_reader(stage_reader&&) = delete;

  /// Returns the stage.
  [[nodiscard]] const std::shared_ptr<Stage>& from() const noexcept { return stage_; }
  /// Reads `other` in later ranges. May only be called between two ranges.
  void read_from(std::shared_ptr<Stage> other) noexcept {
    if (other != stage_) stage_ = std::move(other);  // Other threads may read an equal pointer.
  }

  /// Begins a range, which `stop` ends.
  void start(const batch_position& from, std::uint64_t last_epoch) {
    stage_->start(from, last_epoch);
    is_over_ = false;
  }
  void stop() noexcept {
    if (failed_) stage_->judge_from(judged_);
    failed_ = {};
    end();
  }
  /// Stores the error of a batch that could not be copied until the batch is due. Ends the range.
  /// `judged` is the value of `judged()` for that batch.
  void fail(failed_batch failed, const judged_samples& judged) noexcept {
    failed_ = std::move(failed);
    judged_ = judged;
    end();
    stage_->judge_from(judged);  // the loop never receives the failed batch
  }

  /// Returns the next batch. If `Waits` is false, returns an empty batch unless a batch is ready.
  /// Also returns an empty batch at the end of the range, and if the stage fails.
  template <bool Waits>
  [[nodiscard]] batch_type next() noexcept {
    judged_ = stage_->judged();
    batch_type batch = Waits ? stage_->next(failed_) : stage_->try_next(failed_);
    is_over_ = static_cast<bool>(failed_);
    return batch;
  }

  /// Returns true if the range has ended or the stage has failed, after which the stage must not be
  /// read.
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }
  /// Returns true if `next` may return a batch.
  [[nodiscard]] bool may_have_more() const noexcept { return !is_over_ && !stage_->at_end(); }
  /// Returns true if the program has ended the range early by a call to the source.
  [[nodiscard]] bool was_cut() const noexcept { return !is_over_ && stage_->was_cut(); }
  /// Removes and returns the stored error when it is due.
  [[nodiscard]] failed_batch take_failed() noexcept { return std::exchange(failed_, {}); }
  /// Returns the counts of samples that the stage had judged when it returned the last batch or
  /// error.
  [[nodiscard]] const judged_samples& judged() const noexcept { return judged_; }

 private:
  void end() noexcept {
    if (!std::exchange(is_over_, true)) stage_->stop();  // A failed stage has already stopped.
  }

  std::shared_ptr<Stage> stage_;
  bool is_over_ = false;
  failed_batch failed_;    // stored until it is due
  judged_samples judged_;  // result of `judged`
};

/// The instruments of the feed loop: step trace, depth tuner and device times. Instruments never
/// change a batch. Only the consumer thread may use this object.
template <device Device>
class feed_watch {
 public:
  using stream_ref = typename Device::stream_ref;

  /// Traces and times the batches that go to `ring` and are counted in `seen`, as the options
  /// specify. `flow` is the ID of the source's batches in the trace, or 0 if the source is not
  /// traced. `ring` and `seen` must outlive this object. Propagates errors from the device. Throws
  /// `option_error` if the device cannot measure times.
  feed_watch(device_slots<Device>& ring, stream_ref consumer, const transfer_options& options,
             feed_observer& observer, std::uint64_t flow);

  /// Returns the timer of device work, or null.
  [[nodiscard]] device_timer<Device>* timer() noexcept { return timer_ ? &*timer_ : nullptr; }

  /// Calls `queue`, which queues the work that fills the slot of `batch`. Throws the same errors as
  /// `queue`.
  template <class Queue>
  void fill_of(const batch_info& batch, bool is_copied, const Queue& queue) {
    const work_probe probe{trace_stage::copy, is_copied ? metrics_->trace() : nullptr, batch,
                           batch.size};
    if (timer_) timer_->choose(batch);
    queue();
    if (timer_) timer_->end_choice();
  }

  /// @name Range events @{
  void begin_range() noexcept {
    if (tuner_) tuner_->begin(metrics_->ticks());
    if (timer_) timer_->abandon();
  }
  void end_range() noexcept {
    if (tuner_) tuner_->end(metrics_->ticks());
    if (timer_) timer_->abandon();
  }
  /// @}

  /// @name Loop body events @{
  void end_step(stream_ref consumer) noexcept {
    step_.end();
    if (!timer_) return;
    if (const auto times = timer_->end_step(consumer)) metrics_->record_device(*times);
  }
  /// Records the start of the loop body with a batch in a slot of `ring`. Propagates errors from
  /// the device.
  void begin_step(device_slots<Device>& ring, stream_ref consumer, const batch_info& batch) {
    step_.begin(metrics_->trace(), batch);
    if (timer_) timer_->begin_step(consumer, batch);
    if (tuner_) tune(ring, runs_inline(ring.device(), consumer));
  }
  /// Ends the step, because the range ends within the loop body.
  void leave_step() noexcept { step_.end(); }
  /// @}

  /// Returns the history of an automatic depth. For a fixed depth, returns `depth` without changes.
  /// Any thread may call this.
  [[nodiscard]] tuning_history tuning(std::size_t depth) const {
    return tuner_ ? tuner_->history(metrics_->times())
                  : tuning_history{.now = {.depth = depth}, .moves = {}};
  }

 private:
  /// Changes the depth. If the consumer stream is the calling thread (`runs_inline`), the tuner
  /// uses the time that the thread waited for copies. For other streams, only batch times are
  /// known.
  void tune(device_slots<Device>& ring, bool runs_inline) noexcept {
    const std::uint64_t now = metrics_->ticks();
    const std::uint64_t waited = runs_inline ? metrics_->waited_for_copy(now) : now;
    const std::size_t wanted = tuner_->take(now, waited, ring.count(), metrics_->batches());
    if (wanted == ring.count()) return;
    try {
      ring.open(wanted);
    } catch (...) {  // NOLINT: tuning ends no loop; the device reports the error again
    }
    tuner_->record_opened(now, ring.count());
  }

  feed_observer* metrics_;
  step_probe step_;
  std::unique_ptr<feed_tuner> tuner_;  // null unless the depth is `automatic`
  std::optional<device_timer<Device>> timer_;
};

template <device Device>
feed_watch<Device>::feed_watch(device_slots<Device>& ring, stream_ref consumer,
                               const transfer_options& options, feed_observer& observer,
                               std::uint64_t flow)
    : metrics_(&observer) {
  const trace_target& trace = options.instrumentation.trace;
  if (trace.code() != nullptr) {
    if (flow == 0) flow = trace.code()->new_flow(*trace.recorder());
    observer.trace_to(trace.add_track(flow, "penstock transfer"));
    ring.leases.trace_to(trace, flow, "device slot", ring.max_count());
  }
  observer.set_runs_inline(runs_inline(ring.device(), consumer));
  if (options.depth.is_automatic()) {
    tuner_ = options.depth.tuning()->make(options, flow, observer.ten_milliseconds());
  }
  if (options.instrumentation.time_device) timer_.emplace(ring.device());
}

/// The error text for an option that requires a source with `holdable_slots`.
inline constexpr const char* needs_holdable =
    "needs a source whose batches may outlive it: a loader, an intake or a batcher";

/// Returns true if the device reads batches of `source` directly from their host slots. If the feed
/// may hold these slots, `host` describes them. Propagates errors from the device. Throws
/// `option_error`.
template <stage Source>
[[nodiscard]] bool resolved_zero_copy(const Source& source, zero_copy_use requested,
                                      const std::optional<holdable_slots>& host) {
  if (requested == zero_copy_use::never) return false;
  const auto without = [&](const str_cat_arg& why) {
    if (requested == zero_copy_use::always) throw_option_error("tuning.zero_copy", {why});
    return false;
  };
  if (!host) return without(needs_holdable);
  const host_access access = host_access_of(source.device());
  if (requested == zero_copy_use::by_device && !access.as_own) return false;
  if (access.pageable || (access.pinned && host->pinned)) return true;
  return without(access.pinned ? "needs page-locked slots, but the slots of the source are not "
                                 "page-locked (pinned = false)"
                               : "needs a device whose kernels can access host memory by its host "
                                 "addresses: omit it, and batches are copied");
}

/// Returns `options` resolved for `source` and its device. `tuning.zero_copy` becomes `always` or
/// `never`. If leases hold host slots, the depth is limited to the number of source slots. Leases
/// hold host slots with `keep_host`, and if batches are used without a copy or a transform
/// (`transforms`). Propagates errors from the device. Throws `option_error`.
template <stage Source>
[[nodiscard]] transfer_options resolved_options(const Source& source, transfer_options options,
                                                bool transforms) {
  const depth_range depth = checked_depth(options);
  if (options.tuning.spin.count() < 0) {
    throw_option_error("tuning.spin",
                       {"must not be negative, but is ", options.tuning.spin.count(), " ns"});
  }
  if constexpr (std::same_as<Source, loader_core<typename Source::device_type>>) {
    if (options.newest) {
      throw_option_error("newest",
                         {"needs a source of live data: the batches of a loader do not age"});
    }
  }
  zero_copy_use& zero_copy = options.tuning.zero_copy;
  if (zero_copy == zero_copy_use::never && !options.keep_host) return options;
  std::optional<holdable_slots> host;
  if constexpr (is_holdable<typename Source::batch_type, typename Source::device_type>) {
    host = source.holdable();
  }
  if (options.keep_host && !host) throw_option_error("keep_host", {needs_holdable});
  const bool is_in_place = resolved_zero_copy(source, zero_copy, host);
  zero_copy = is_in_place ? zero_copy_use::always : zero_copy_use::never;
  if (!options.keep_host && (!is_in_place || transforms)) return options;
  // The depth is limited, because the feed requests a batch only if the source has a slot for it.
  if (host->count < depth.first) {
    options.depth = host->count;
  } else if (host->count < depth.max) {
    options.depth = options.depth.up_to(host->count);
  }
  return options;
}

/// Throws the error for a feed that no longer waits and whose `count` device slots are all in use.
[[noreturn, gnu::cold]] inline void throw_no_slot(std::size_t count, bool is_stopped) {
  if (is_stopped) {
    throw cancelled(str_cat({"cancelled: a stop of the source was requested while all ", count,
                             " device slots were held as leases"}));
  }
  throw leases_exhausted(
      str_cat({"transfer: all ", count,
               " device slots are held as leases: release one, raise depth, or "
               "let it wait for leases that end on other threads (on_slots_exhausted)"}));
}

/// Returns the first free slot of `ring`, starting at `slot`, or nothing if all slots are leased.
/// Only the consumer thread may call this.
template <class Slots>
[[nodiscard]] std::optional<std::size_t> find_free(const Slots& ring, std::size_t slot) noexcept {
  const std::size_t count = ring.count();
  for (std::size_t left = count; left != 0; --left, ++slot) {
    if (slot >= count) slot = 0;
    if (ring.is_released(slot)) return slot;
  }
  return std::nullopt;
}

/// Returns the first free slot of `ring`, starting at `first`. If all are leased, opens a new slot
/// if the ring allows it. Otherwise, if `on_slots_exhausted` is `wait`, waits for a lease to end.
/// `timing` returns an object that times the wait. Throws `leases_exhausted`, `cancelled` if `stop`
/// was requested, or the error of a failed release.
template <class Slots, class Timing>
[[nodiscard]] std::size_t wait_for_free(Slots& ring, std::size_t first,
                                        exhausted_action on_slots_exhausted,
                                        const std::stop_token& stop, const Timing& timing) {
  std::optional<std::size_t> slot = find_free(ring, first);
  // A slot that was closed before may still be leased. In that case, the loop opens the next slot.
  for (std::size_t had = 0; !slot && had < ring.count() && ring.count() < ring.max_count();) {
    had = ring.count();
    ring.open(had + 1);
    slot = find_free(ring, first);
  }
  if (!slot && on_slots_exhausted == exhausted_action::wait) {
    const std::stop_callback on_stop{stop, [&ring]() noexcept { ring.wake(); }};
    [[maybe_unused]] const auto timed = timing();
    ring.wait_for_release([&] {
      slot = find_free(ring, first);
      return slot || ring.has_error() || stop.stop_requested();
    });
    if (!slot) ring.rethrow_poison();
  }
  if (!slot) throw_no_slot(ring.count(), stop.stop_requested());
  return *slot;
}

/// Implements the ranges of a `transfer`, except for the lease type. Only the consumer thread may
/// use this object, unless a function allows any thread.
///
/// Copies are queued in groups. A group contains the batches that are ready, up to `group()`. A
/// group is queued when that number of slots is free, or when at most one batch is in flight. The
/// end of a group is one point. When the first batch of the group is delivered, the consumer stream
/// waits for this point, and therefore for all batches of the group. Between two groups, `++`
/// defers the releases of leases (`defer_release`). One record releases them before the next group
/// needs free slots, or when the range ends.
template <stage Stage>
class feed_engine {
 public:
  using device_type = typename Stage::device_type;
  using stream_ref = typename device_type::stream_ref;
  using lease_type = device_lease<device_type>;
  using slots_type = device_slots<device_type>;
  using queue_function = typename slots_type::template queue_function<typename Stage::batch_type>;

  /// Feeds batches of `source`, which have `layout`, to `ring`. `options` must be resolved.
  /// `by_transform` is passed to `device_slots::copy_in`. `held` is the lease of the consumer.
  /// Propagates errors from the device. Throws `option_error`.
  feed_engine(std::shared_ptr<Stage> source, stream_ref stream, std::shared_ptr<slots_type> ring,
              const slot_layout& layout, const transfer_options& options,
              queue_function by_transform, lease_type& held);
  feed_engine(feed_engine&&) = delete;
  ~feed_engine();

  /// Permanently ends the ranges, because the source may be destroyed next. Does not access a range
  /// that is live on another thread. The next step of a live range throws `cancelled`.
  void shut_down() noexcept {
    if (range_.is_live()) {
      const bool is_here = consumer_.load(std::memory_order_relaxed) == std::this_thread::get_id();
      was_cut_.store(!is_here || in_flight() != 0 || source_.may_have_more(),
                     std::memory_order_release);
      if (is_here) stop();
    }
    range_.close();
  }
  /// Throws `cancelled` if `shut_down` has ended a range before its last batch.
  void require_whole() const {
    if (was_cut_.load(std::memory_order_acquire)) throw cancelled_by_end_of("transfer");
  }

  /// Starts a range and returns its serial number for `finish`. Until `advance`, states have the
  /// position `next`, by default `from`.
  std::uint64_t start(const batch_position& from, std::uint64_t last_epoch,
                      const std::optional<batch_position>& next = {});

  /// Releases the current batch, queues copies, and delivers the next batch. Returns false at the
  /// end.
  bool advance();

  /// Returns the next batch, which may be used on the consumer stream, or an empty lease at the
  /// end. Checks that the stream is usable, unless the caller has just done so (`is_checked`).
  [[nodiscard]] lease_type next(bool is_checked = false);

  /// Ends the range `range`, unless a later range has been started.
  void finish(std::uint64_t range) noexcept {
    if (range_.is_current(range)) stop();
  }

  /// Ends reading and copying for the live range. The range stays live, and its leases stay valid.
  void drain() noexcept;
  /// Returns true if the range `range` is live.
  [[nodiscard]] bool is_live(std::uint64_t range) const noexcept {
    return range_.is_live() && range_.is_current(range);
  }
  /// Returns true if `next` does not need to wait for the end of a lease.
  [[nodiscard]] bool has_room() const noexcept {
    return in_flight() != 0 || find_free(*slots_, next_slot_);
  }
  /// Returns true if a stop of the source was requested.
  [[nodiscard]] bool is_stopped() const { return source_.from()->stop_token().stop_requested(); }
  /// Waits for all work on the consumer stream.
  void synchronize() const { slots_->device().synchronize(stream_); }
  /// Counts batches that were delivered repeatedly, and the time that they took.
  void record_replay(std::uint64_t batches, std::chrono::nanoseconds time) noexcept {
    metrics_.record_replay(batches, time);
  }

  /// Returns the origin of the exception that ended the last range. Any thread may call this.
  [[nodiscard]] std::optional<penstock::failure> last_failure() const noexcept {
    return failure_.load();
  }
  /// Returns the statistics, including the statistics of the source, if any. Any thread may call
  /// this.
  [[nodiscard]] transfer_stats stats() const {
    transfer_stats all = metrics_.snapshot();
    all.depth = depth();
    all.loader = source_.from()->stats();
    return all;
  }
  /// Returns the position after the last batch delivered. Any thread may call this.
  [[nodiscard]] batch_position next_position() const noexcept { return next_position_.load(); }
  /// Returns the history of an automatic depth. Any thread may call this.
  [[nodiscard]] tuning_history tuning() const { return watch_.tuning(depth()); }
  /// Returns the number of device slots that are in use.
  [[nodiscard]] std::size_t depth() const noexcept { return slots_->count(); }
  /// Returns true if batches are not copied.
  [[nodiscard]] bool zero_copy() const noexcept { return zero_copy_; }
  /// Returns the size of the device memory in bytes.
  [[nodiscard]] std::size_t device_bytes() const noexcept { return slots_->bytes(); }

  /// Throws `std::logic_error` unless a range may start. After `shut_down`, no range may start,
  /// because the source may be destroyed.
  void require_none() const { range_.require_none(); }
  /// Returns the stage that delivers the batches.
  [[nodiscard]] const std::shared_ptr<Stage>& source() const noexcept { return source_.from(); }
  /// Takes the batches of later ranges from `source`. May only be called between two ranges.
  void feed_from(std::shared_ptr<Stage> source) noexcept { source_.read_from(std::move(source)); }
  /// Returns the layout of the batches when they are copied.
  [[nodiscard]] const slot_layout& layout() const noexcept { return layout_; }
  [[nodiscard]] const slots_type& ring() const noexcept { return *slots_; }

  /// Ends the live range. Copies in flight continue, and their slots are free afterwards.
  void stop() noexcept;

 private:
  /// True if batches may become outdated, so that a feed may skip them. False for a loader, so that
  /// a program with a loader does not compile the code of `newest`.
  static constexpr bool may_skip = !std::same_as<Stage, loader_core<device_type>>;

  /// Returns the maximum number of copies in a group.
  [[nodiscard]] std::size_t largest_group() const {
    if (!releases_at_points<typename Stage::batch_type, device_type>) return 1;
    if (slots_->holds_host()) return 1;  // no copies
    if (newest_) return 1;               // copies one batch at a time
    if (runs_inline(slots_->device(), stream_)) return 1;
    return preferred_group<device_type>(layout_.bytes());
  }
  /// Returns the maximum number of copies in a group at the current depth.
  [[nodiscard]] std::size_t group() const noexcept {
    return (std::min)(max_in_group_, (slots_->count() + 1) / 2);
  }
  /// Returns the number of batches whose copies are queued but that are not delivered yet.
  [[nodiscard]] std::size_t in_flight() const noexcept {
    return static_cast<std::size_t>(issued_ - handed_out_);
  }
  /// Returns the slot of the oldest batch in flight.
  [[nodiscard]] std::size_t oldest() const noexcept {
    return slot_of_[handed_out_ % slot_of_.size()];
  }

  /// Ends the lease of the consumer, if any.
  void end_held() noexcept {
    if (group() > 1 && held_.is_in(*slots_)) return held_.defer_release();
    held_.release();
  }

  bool take_ready();
  void issue_ready();
  void issue_newest();
  void take_newest();
  std::uint64_t skip(std::size_t slot) noexcept;
  std::uint64_t drop_in_flight() noexcept;
  bool issue_next();
  /// Adds a batch to the next group, in the free slot `slot`.
  void take(std::size_t slot, typename Stage::batch_type&& batch) noexcept {
    slots_->take(slot, batch.info());
    next_slot_ = slot + 1;
    judged_[slot] = source_.judged();
    if constexpr (has_tags<typename Stage::batch_type>) {
      const std::span<const std::uint64_t> words = batch.tags();
      slots_->tags(slot).assign(words.begin(), words.end());  // has capacity
    }
    group_.push_back({slot, std::move(batch)});  // has capacity
  }
  void issue();
  /// Moves the sample lists of the batch to its slot. The lists of a user-defined batch type, if
  /// any, are copied.
  void take_lists([[maybe_unused]] slot_filling<typename Stage::batch_type>& one) {
    if constexpr (std::same_as<typename Stage::batch_type, host_lease<device_type>>) {
      one.from.move_lists_to(slots_->lists, one.slot);
    } else if constexpr (batch_of_listed_samples<typename Stage::batch_type>) {
      slots_->lists.take(one.slot, one.from.indices(), one.from.replaced());
    }
  }

  /// Returns true if the stream does not need to wait for the copy to `slot`. Polls the copy for at
  /// most `spin_`.
  [[nodiscard]] bool becomes_filled(std::size_t slot) const {
    if (slots_->is_filled(slot, knows_filled_)) return true;
    if (spin_.count() == 0) return false;
    const auto end = std::chrono::steady_clock::now() + spin_;
    while (std::chrono::steady_clock::now() < end) {
      if (slots_->is_filled(slot, knows_filled_)) return true;
    }
    return false;
  }

  stage_reader<Stage> source_;
  slot_layout layout_;  // layout of a batch when it is copied
  stream_ref stream_;
  std::shared_ptr<slots_type> slots_;
  bool zero_copy_;
  bool newest_;
  queue_function by_transform_;  // null without a transform
  exhausted_action when_held_;
  std::chrono::nanoseconds spin_;
  std::size_t max_in_group_;
  std::vector<slot_filling<typename Stage::batch_type>> group_;  // copies to queue next
  // The slots of the batches in flight, which are queued but not delivered yet. The slot of the
  // n-th batch is at n modulo the size.
  std::vector<std::size_t> slot_of_;
  std::uint64_t issued_ = 0;
  std::uint64_t handed_out_ = 0;
  std::uint64_t knows_filled_ = 0;      // point of the copies that the stream waits for
  std::uint64_t dropped_ = 0;           // batches dropped since the last delivery
  std::vector<judged_samples> judged_;  // `stage_reader::judged` of the batch in each slot
  std::size_t next_slot_ = 0;           // slot after the last slot that was taken
  shared_value<std::optional<penstock::failure>> failure_;
  shared_value<batch_position> next_position_;
  feed_observer metrics_;
  feed_watch<device_type> watch_;
  active_range range_{"transfer"};
  std::atomic<std::thread::id> consumer_;  // thread that started the last range
  std::atomic<bool> was_cut_{false};       // used by `require_whole`
  lease_type& held_;
};

template <stage Stage>
feed_engine<Stage>::feed_engine(std::shared_ptr<Stage> source, stream_ref stream,
                                std::shared_ptr<slots_type> ring, const slot_layout& layout,
                                const transfer_options& options, queue_function by_transform,
                                lease_type& held)
    : source_(std::move(source)),
      layout_(layout),
      stream_(stream),
      slots_(std::move(ring)),
      zero_copy_(options.tuning.zero_copy == zero_copy_use::always),
      newest_(options.newest),
      by_transform_(by_transform),
      when_held_(options.on_slots_exhausted),
      spin_(options.tuning.spin),
      max_in_group_(largest_group()),
      slot_of_(slots_->max_count()),
      judged_(slots_->max_count()),
      metrics_(layout_.fixed_bytes(), slots_->layout().fixed_bytes(), by_transform != nullptr),
      watch_(*slots_, stream, options, metrics_,
             source_.from()->trace_flow(options.instrumentation.trace.recorder())),
      held_(held) {
  slots_->watch_by(metrics_.trace(), watch_.timer());
  if constexpr (has_tags<typename Stage::batch_type>) {
    for (std::size_t slot = 0; slot < slots_->max_count(); ++slot) {
      slots_->tags(slot).reserve(layout_.batch_size());
    }
  }
  if (source_.from()->lists_samples()) {
    slots_->lists = sample_lists{slots_->max_count(), layout_.batch_size()};
  }
  group_.reserve((std::min)(max_in_group_, slots_->max_count()));
}

template <stage Stage>
feed_engine<Stage>::~feed_engine() = default;

template <stage Stage>
std::uint64_t feed_engine<Stage>::start(const batch_position& from, std::uint64_t last_epoch,
                                        const std::optional<batch_position>& next) {
  range_.require_none();
  source_.start(from, last_epoch);
  next_position_.store(next.value_or(from));
  failure_.store(std::nullopt);
  dropped_ = 0;
  metrics_.begin_range();
  watch_.begin_range();
  consumer_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  return range_.start();
}

template <stage Stage>
bool feed_engine<Stage>::advance() {
  watch_.end_step(stream_);
  // If the held lease belongs to this feed, ending it checks that the stream is usable, and `next`
  // throws the error. The body may have replaced the lease by a lease of another feed.
  const bool is_checked = held_.is_in(*slots_);
  end_held();
  held_ = next(is_checked);
  if (!held_) {
    stop();
    return false;
  }
  const batch_info& batch = held_.info();
  metrics_.record_handed_out(batch.size, in_flight());
  next_position_.store(batch_position{batch.epoch, batch.batch + 1});
  watch_.begin_step(*slots_, stream_, batch);
  return true;
}

template <stage Stage>
typename feed_engine<Stage>::lease_type feed_engine<Stage>::next(bool is_checked) {
  try {
    require_whole();
    if (!range_.is_live()) return {};
    slots_->rethrow_poison();
    if (!is_checked) require_still_usable(slots_->device(), stream_);
    if constexpr (may_skip) {
      newest_ ? issue_newest() : issue_ready();
    } else {
      issue_ready();
    }
    if (in_flight() != 0 || issue_next()) {
      const std::size_t slot = oldest();
      if (slots_->holds_host()) {
        slots_->wait_for_copy(slot, stream_);
      } else if (!becomes_filled(slot)) {
        // Blocks until the copy is complete if the stream is the calling thread.
        const auto timed = metrics_.for_copy(runs_inline(slots_->device(), stream_));
        slots_->wait_for_copy(slot, stream_, knows_filled_);
      }
      ++handed_out_;
      if constexpr (may_skip) slots_->record_dropped(slot, std::exchange(dropped_, 0));
      return {slots_, slot, stream_};
    }
  } catch (...) {  // error from the device
    stop();
    throw;
  }
  if (const failed_batch failed = source_.take_failed()) {
    failure_.store(failed.place);
    stop();
    std::rethrow_exception(failed.error);
  }
  if (source_.was_cut()) {
    stop();
    throw_cut();
  }
  return {};
}

template <stage Stage>
void feed_engine<Stage>::stop() noexcept {
  if (!range_.end()) return;
  watch_.leave_step();
  held_.record_left();
  end_held();
  slots_->flush_releases(capture_check::needed);
  drain();
}

template <stage Stage>
void feed_engine<Stage>::drain() noexcept {
  metrics_.end_range();
  watch_.end_range();
  std::optional<std::size_t> first;
  if (in_flight() != 0) first = oldest();
  drop_in_flight();
  source_.stop();
  if (first) source_.from()->judge_from(judged_[*first]);
}

/// Queues copies while a batch is ready and a slot is free, if a group is due.
template <stage Stage>
void feed_engine<Stage>::issue_ready() {
  if (in_flight() > 1 && in_flight() + group() > slots_->count()) return;
  if (max_in_group_ != 1) {
    // Releases the leases that `++` has ended before looking for free slots. `next` has checked
    // that the stream is usable.
    slots_->flush_releases(capture_check::done);
    slots_->rethrow_poison();
  }
  while (take_ready()) issue();
}

/// Queues the copy of the newest batch when the consumer stream has finished its work. If a batch
/// is ready earlier, its copy overlaps with that work, and the batch is dropped if a newer batch
/// follows.
template <stage Stage>
void feed_engine<Stage>::issue_newest() {
  take_newest();
  synchronize();
  take_newest();
}

/// Takes all batches that are ready, and queues the copy of the newest batch. Drops the other
/// batches and the batch in flight.
template <stage Stage>
void feed_engine<Stage>::take_newest() {
  while (!source_.is_over()) {
    // A batch uses the slot of the batch that it replaces, or a free slot.
    if (group_.empty() && in_flight() == 0 && !find_free(*slots_, next_slot_)) break;
    auto batch = source_.template next<false>();
    if (!batch) break;
    dropped_ += drop_in_flight();
    if (!group_.empty()) {
      dropped_ += skip(group_.back().slot);
      slots_->put_back(group_.back().slot);
      group_.pop_back();
    }
    take(*find_free(*slots_, next_slot_), std::move(batch));
  }
  if (!group_.empty()) issue();
}

/// Returns the batch in `slot` to the source, because the consumer does not receive it. Returns the
/// number of batches that the consumer does not receive, which are this batch and the batches
/// dropped before it.
template <stage Stage>
std::uint64_t feed_engine<Stage>::skip(std::size_t slot) noexcept {
  const batch_info& info = slots_->info(slot);
  source_.from()->take_back(info, slots_->tags(slot));
  return 1 + info.dropped;
}

/// Drops the batches in flight. Returns the number of batches that the consumer does not receive.
template <stage Stage>
std::uint64_t feed_engine<Stage>::drop_in_flight() noexcept {
  std::uint64_t dropped = 0;
  for (; in_flight() != 0; ++handed_out_) {
    dropped += skip(oldest());
    slots_->discard(oldest());
  }
  return dropped;
}

/// Takes batches that are ready. Returns true if the group contains a batch.
template <stage Stage>
bool feed_engine<Stage>::take_ready() {
  for (std::size_t left = group(); left != 0 && !source_.is_over(); --left) {
    const auto slot = find_free(*slots_, next_slot_);
    if (!slot) break;
    auto batch = source_.template next<false>();
    if (!batch) break;
    take(*slot, std::move(batch));
  }
  return !group_.empty();
}

/// Waits for the next batch and queues its copy. Returns false at the end.
template <stage Stage>
bool feed_engine<Stage>::issue_next() {
  if (!source_.may_have_more()) return false;
  // Finds a slot first, so that there is a slot for every batch that is taken from the source.
  const std::size_t slot =
      wait_for_free(*slots_, next_slot_, when_held_, source_.from()->stop_token(),
                    [this] { return metrics_.for_lease(); });
  {
    const auto timed = metrics_.for_batch();
    auto batch = source_.template next<true>();
    if (!batch) return false;
    take(slot, std::move(batch));
  }
  issue();
  return in_flight() != 0;
}

/// Queues the copies of the group. An error is stored until its batch is due.
template <stage Stage>
void feed_engine<Stage>::issue() {
  try {
    slots_->copy_in(
        std::span{group_},
        [&](auto& one, const auto& queue) __attribute__((always_inline)) {
          const batch_info& info = slots_->info(one.slot);
          if (slots_->lists.is_on()) [[unlikely]]
            take_lists(one);
          const std::uint64_t values =
              layout_.is_ragged() ? layout_.value_bytes(one.from.data(), info.size) : 0;
          watch_.fill_of(info, !zero_copy_, queue);
          if (zero_copy_) return metrics_.record_zero_copy();
          metrics_.record_copy(info.size, values);
        },
        by_transform_);
  } catch (...) {
    const std::size_t first_bad = group_[slots_->filled()].slot;
    const batch_info& info = slots_->info(first_bad);
    failed_batch failed{std::current_exception(),
                        penstock::failure{"transfer", info.epoch, info.batch}};
    for (const auto& one : std::span{group_}.subspan(slots_->filled())) {
      source_.from()->take_back(slots_->info(one.slot), slots_->tags(one.slot));
    }
    while (group_.size() != slots_->filled()) group_.pop_back();
    source_.fail(std::move(failed), judged_[first_bad]);
    if (group_.empty()) return;
  }
  for (const auto& one : group_) slot_of_[issued_++ % slot_of_.size()] = one.slot;
  group_.clear();
}

/// The state of `transfer` ranges: the source or a reference to it, the lease of the consumer, and
/// the engine. Only the consumer thread may use this object.
template <class Source, record_type Record>
  requires batch_source<std::remove_reference_t<Source>>
class feed {
 public:
  using source_type = std::remove_reference_t<Source>;
  using device_type = typename source_type::device_type;
  using stream_ref = typename device_type::stream_ref;

 private:
  using stage_type = stage_of_t<source_type>;
  using in_record = typename source_type::record_type;
  using slots_type = device_slots<device_type>;

 public:
  using record_type = Record;
  using batch_type = device_batch<record_type, device_type>;
  using engine_type = feed_engine<stage_type>;

  /// Allocates the device slots.
  template <class Transform>
  feed(Source&& source, stream_ref stream, Transform transform, const transfer_options& options)
      : feed(std::forward<Source>(source), stream, std::move(transform), options,
             resolved_options(*stage_of(source), options, !std::same_as<Transform, no_transform>)) {
  }
  feed(feed&&) = delete;
  ~feed() { engine_.stop(); }

  /// Starts a range like `feed_engine::start`. Also throws `source_mismatch`.
  std::uint64_t start(const batch_position& from, std::uint64_t last_epoch,
                      const std::optional<batch_position>& next = {}) {
    engine_.require_none();
    require_unchanged();
    return engine_.start(from, last_epoch, next);
  }
  /// Calls `feed_engine::advance`.
  bool advance() { return engine_.advance(); }
  /// Calls `feed_engine::next`.
  [[nodiscard]] batch_type next() { return batch_type{engine_.next()}; }
  /// Calls `feed_engine::finish`.
  void finish(std::uint64_t range) noexcept { engine_.finish(range); }
  /// Returns the lease of the consumer.
  [[nodiscard]] batch_type& current() noexcept { return held_; }
  /// Returns the source of the batches.
  [[nodiscard]] const source_type& source() const noexcept { return source_; }
  [[nodiscard]] engine_type& engine() noexcept { return engine_; }

 private:
  template <class Transform>
  feed(Source&& source, stream_ref stream, Transform transform, const transfer_options& options,
       const transfer_options& resolved)
      : source_(std::forward<Source>(source)),
        options_(options),
        engine_(stage_of(source_), stream, make_slots(stream, std::move(transform), resolved),
                source_.layout(), resolved, queue_function_of<Transform>(), held_) {}

  template <class Transform>
  [[nodiscard]] static constexpr typename engine_type::queue_function queue_function_of() {
    if constexpr (std::same_as<Transform, no_transform>)
      return nullptr;
    else
      return &slots_type::template queue_transform<typename stage_type::batch_type>;
  }

  /// Creates the ring of device slots and allocates its memory.
  template <class Transform>
  [[nodiscard]] std::shared_ptr<slots_type> make_slots(stream_ref stream, Transform transform,
                                                       const transfer_options& options) {
    const device_type device = source_.device();
    device.require_usable(stream);
    const depth_range depth = checked_depth(options);
    const bool zero_copy = options.tuning.zero_copy == zero_copy_use::always;
    const bool keeps = options.keep_host;
    const host_slot_end copied = keeps ? host_slot_end::with_lease : host_slot_end::with_copy;
    const batch_layout<in_record>& layout = source_.layout();
    if constexpr (std::same_as<Transform, no_transform>) {
      return shared_by_leases<slots_type, stream_ref>(
          device, layout, stream, depth.first, depth.max,
          zero_copy ? host_slot_end::with_last_use : copied, nullptr, keeps);
    } else {
      auto work = std::make_unique<transform_of<Transform, in_record, device_type>>(
          std::move(transform), device, layout);
      const auto out = work->out_layout();
      return shared_by_leases<slots_type, stream_ref>(
          device, out, stream, depth.first, depth.max, copied,
          std::make_shared<transform_stage<device_type>>(device, layout, std::move(work), depth.max,
                                                         zero_copy),
          keeps);
    }
  }

  /// Reads the current stage of the source. Throws `source_mismatch` if the memory of this feed no
  /// longer fits the source, because another loader was assigned to it.
  void require_unchanged() {
    const auto reject = [](std::initializer_list<str_cat_arg> problem) {
      throw source_mismatch(
          str_cat({"transfer: ", str_cat(problem), ": make a new transfer for it"}));
    };
    const batch_layout<in_record>& now = source_.layout();
    const batch_layout<in_record>& made = engine_.layout().template as<in_record>();
    if (now != made) {
      reject({"the source had batches of ", made.batch_size(), " samples (",
              shape_text<in_record>(made.extents()),
              ") when the transfer was made, but now has batches of ", now.batch_size(), " (",
              shape_text<in_record>(now.extents()), ")"});
    }
    if constexpr (std::equality_comparable<device_type>) {
      if (!(source_.device() == engine_.ring().device())) {
        reject({"the source is for a different device than when the transfer was made"});
      }
    }
    if constexpr (std::same_as<stage_type, loader_core<device_type>>) {
      const auto core = stage_of(source_);
      if (core == engine_.source()) return;
      if (core->lists_samples() != engine_.ring().lists.is_on()) {
        reject(
            {"another loader was assigned to the source, with a different "
             "instrumentation.indices"});
      }
      if (engine_.zero_copy() || options_.keep_host) {
        const transfer_options resolved =
            resolved_options(*core, options_, engine_.ring().transforms());
        const bool is_copied = resolved.tuning.zero_copy != zero_copy_use::always;
        if ((engine_.zero_copy() && is_copied) ||
            checked_depth(resolved).max < engine_.ring().max_count()) {
          reject(
              {"batches keep their host slots (zero_copy, keep_host), but another loader was "
               "assigned to the source, with fewer slots or a different kind of memory"});
        }
      }
      engine_.feed_from(core);
    }
  }

  Source source_;  // the source or a reference to it
  transfer_options options_;
  batch_type held_;  // lease of the consumer
  engine_type engine_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
