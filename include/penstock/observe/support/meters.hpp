// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/support/clocks.hpp>
#include <penstock/observe/support/trace_writer.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/cpus.hpp>
#include <penstock/threads/support/shared_value.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The state of a stopwatch.
struct stopwatch_state {
  std::uint64_t count = 0;     ///< number of starts
  std::uint64_t ticks = 0;     ///< total from start to stop
  std::uint64_t is_going = 0;  ///< 1: running
  std::uint64_t since = 0;     ///< when
};

/// Counts and times one activity of a thread, such as waiting for a slot. One thread starts and
/// stops it; any thread reads it, including an activity in progress.
class stopwatch {
 public:
  /// A reading of a stopwatch.
  struct reading {
    std::uint64_t count = 0;  ///< number of starts
    std::uint64_t ticks = 0;  ///< total, up to the time of the reading
  };

  /// Timing thread: starts it at `now`. No effect while it is running.
  void start(std::uint64_t now) noexcept {
    if (kept_.is_going != 0) return;
    ++kept_.count;
    kept_.is_going = 1;
    kept_.since = now;
    shown_.store(kept_);
  }
  /// Timing thread: stops it at `now`.
  void stop(std::uint64_t now) noexcept {
    if (kept_.is_going == 0) return;
    kept_.is_going = 0;
    kept_.ticks += ticks_between(kept_.since, now);
    shown_.store(kept_);
  }

  /// The reading at `now`. From any thread.
  [[nodiscard]] reading read(std::uint64_t now) const noexcept {
    return reading_of(shown_.load(), now);
  }
  /// Non-blocking `read`: returns false while the timing thread writes.
  [[nodiscard]] bool try_read(std::uint64_t now, reading& shows) const noexcept {
    stopwatch_state seen;
    if (!shown_.try_load(seen)) return false;
    shows = reading_of(seen, now);
    return true;
  }

 private:
  [[nodiscard]] static reading reading_of(const stopwatch_state& seen, std::uint64_t now) noexcept {
    const std::uint64_t going = seen.is_going != 0 ? ticks_between(seen.since, now) : 0;
    return {seen.count, seen.ticks + going};
  }

  stopwatch_state kept_;  // of the timing thread
  shared_value<stopwatch_state> shown_;
};

/// Runs a stopwatch for its lifetime, and adds the time to a trace, if any; null: times nothing.
template <class Clock>
class timed_scope {
 public:
  timed_scope(stopwatch* watch, const Clock& clock, trace_writer* trace = nullptr,
              trace_stage stage = {}) noexcept
      : watch_(watch), clock_(&clock), trace_(trace), stage_(stage) {
    if (watch_ == nullptr) return;
    began_ = clock_->now();
    watch_->start(began_);
  }
  timed_scope(timed_scope&&) = delete;
  ~timed_scope() {
    if (watch_ == nullptr) return;
    const std::uint64_t now = clock_->now();
    watch_->stop(now);
    if (trace_ != nullptr) [[unlikely]]
      trace_->note_wait(stage_, began_, now);
  }

 private:
  stopwatch* watch_;
  const Clock* clock_;
  trace_writer* trace_;
  trace_stage stage_;
  std::uint64_t began_ = 0;
};

/// Replaces the stopwatches of a thread whose waits are not timed.
struct unobserved {
  struct nothing {
    ~nothing() {}  // NOLINT(modernize-use-equals-default): a variable of it counts as used
  };
  [[nodiscard]] static nothing for_slot() noexcept { return {}; }
  [[nodiscard]] static nothing for_copy(bool) noexcept { return {}; }
  [[nodiscard]] static nothing for_demand() noexcept { return {}; }
};

/// Where the meters of a thread record what it does.
class traced_meters {
 public:
  /// Records in `trace` from now on; null: nowhere.
  void trace_to(std::shared_ptr<trace_writer> trace) noexcept { trace_ = std::move(trace); }
  [[nodiscard]] const std::shared_ptr<trace_writer>& kept_trace() const noexcept { return trace_; }
  /// The trace writer, or null.
  [[nodiscard]] trace_writer* trace() const noexcept { return trace_.get(); }

 private:
  std::shared_ptr<trace_writer> trace_;
};

/// Counters and timers of the thread that takes batches from a loader or a transfer. Only that
/// thread writes; any thread reads. Occupies separate cache lines.
template <class Clock>
class alignas(cache_line) consumer_meters : public traced_meters {
 public:
  using scope = timed_scope<Clock>;

  /// By `clock`, which must outlive this.
  explicit consumer_meters(const Clock& clock) noexcept : clock_(&clock) {}

  /// @name The consumer's thread
  /// @{
  void begin_range() noexcept { range_.start(clock_->now()); }
  void end_range() noexcept {
    range_.stop(clock_->now());
    if (trace() != nullptr) trace()->leave();
  }
  /// Times a wait for the next batch, if it is missing.
  [[nodiscard]] scope for_batch(bool is_missing = true) noexcept {
    return {is_missing ? &batch_ : nullptr, *clock_, trace(), trace_stage::wait_for_batch};
  }
  /// Times a wait for the end of a lease.
  [[nodiscard]] scope for_lease() noexcept {
    return {&lease_, *clock_, trace(), trace_stage::wait_for_lease};
  }
  /// Times a wait for the end of a copy, if there is one.
  [[nodiscard]] scope for_copy(bool is_waited_for) noexcept {
    return {is_waited_for ? &copy_ : nullptr, *clock_, trace(), trace_stage::wait_for_copy};
  }
  /// Notes a batch.
  void note_batch(std::uint64_t samples) noexcept {
    batches_.add(1);
    samples_.add(samples);
  }
  /// Notes the bytes of the batch's ragged fields.
  void note_values(std::uint64_t bytes) noexcept { values_.add(bytes); }
  /// Notes how many more batches were ready.
  void note_depth(std::uint64_t batches) noexcept {
    looks_.add(1);
    depths_.add(batches);
  }
  /// @}

  /// The time of active ranges. From any thread, as are all members below.
  [[nodiscard]] const stopwatch& range() const noexcept { return range_; }
  [[nodiscard]] const stopwatch& batch() const noexcept { return batch_; }
  [[nodiscard]] const stopwatch& lease() const noexcept { return lease_; }
  [[nodiscard]] const stopwatch& copy() const noexcept { return copy_; }
  [[nodiscard]] std::uint64_t batches() const noexcept { return batches_.value(); }
  [[nodiscard]] std::uint64_t samples() const noexcept { return samples_.value(); }
  /// The bytes of their ragged fields.
  [[nodiscard]] std::uint64_t value_bytes() const noexcept { return values_.value(); }
  /// The number of `note_depth` calls, and the sum of their values.
  [[nodiscard]] std::uint64_t looks() const noexcept { return looks_.value(); }
  [[nodiscard]] std::uint64_t depths() const noexcept { return depths_.value(); }

 private:
  const Clock* clock_;
  tally batches_;
  tally samples_;
  tally values_;
  tally looks_;
  tally depths_;
  stopwatch range_;
  stopwatch batch_;
  stopwatch lease_;
  stopwatch copy_;
};

/// A histogram of durations with one writer and any number of readers.
class histogram {
 public:
  /// Writer: adds `count` durations of `ticks` each.
  void add(std::uint64_t ticks, std::uint64_t count = 1) noexcept {
    counts_[log_buckets::of(ticks)].add(count);
    total_.add(ticks * count);
    if (ticks > longest_.value()) longest_.set(ticks);
  }

  /// Writer: adds these durations.
  void add_all(std::span<const std::uint64_t> ticks) noexcept {
    std::uint64_t total = 0;
    std::uint64_t longest = longest_.value();
    for (const std::uint64_t one : ticks) {
      counts_[log_buckets::of(one)].add(1);
      total += one;
      longest = (std::max)(longest, one);
    }
    total_.add(total);
    longest_.set(longest);
  }

  /// Adds the counts to `all`. From any thread.
  void add_to(duration_stats& all) const noexcept {
    for (std::size_t bucket = 0; bucket < counts_.size(); ++bucket)
      all.counts[bucket] += counts_[bucket].value();
    all.total_ticks += total_.value();
    all.longest_ticks = (std::max)(all.longest_ticks, longest_.value());
  }

 private:
  tally total_;
  tally longest_;
  std::array<tally, log_buckets::count> counts_;
};

/// A sample and its read time; 0 ticks: none.
struct timed_sample {
  std::uint64_t index = 0;
  std::uint64_t ticks = 0;
};

/// The ten slowest samples, each once, slowest first.
struct slowest_list {
  std::array<timed_sample, 10> samples{};

  /// Inserts a sample if it is among the ten slowest; returns whether it was.
  bool offer(const timed_sample& sample) noexcept {
    if (sample.ticks <= samples.back().ticks) return false;
    auto place = std::find_if(samples.begin(), samples.end(), [&](const timed_sample& one) {
      return one.ticks != 0 && one.index == sample.index;
    });
    if (place == samples.end()) --place;
    if (place->ticks >= sample.ticks) return false;
    *place = sample;
    for (; place != samples.begin() && (place - 1)->ticks < place->ticks; --place)
      std::swap(*place, *(place - 1));
    return true;
  }
};

/// The slowest samples of a reader, with one writer and any number of readers.
class slowest_samples {
 public:
  /// The reading thread.
  void offer(const timed_sample& sample) noexcept {
    if (kept_.offer(sample)) shown_.store(kept_);
  }
  /// Offers them to `all`. From any thread.
  void add_to(slowest_list& all) const noexcept {
    const slowest_list seen = shown_.load();
    for (const timed_sample& sample : seen.samples) all.offer(sample);
  }

 private:
  slowest_list kept_;  // of the reading thread
  shared_value<slowest_list> shown_;
};

/// Counts what a thread reads, and times single samples: always if the clock is cheap relative to
/// reading a sample, otherwise in every eighth or every 128th batch.
template <class Clock>
class read_meter {
 public:
  /// For chunks of at most `largest_chunk` samples, by `clock`, which must outlive this.
  read_meter(const Clock& clock, std::size_t largest_chunk)
      : slow_(clock.ten_milliseconds() / 200), samples_clock_(clock, largest_chunk) {}

  /// Reading thread: begins a chunk of `samples` samples of batch `batch`. Returns the clock that
  /// times it, or null.
  [[nodiscard]] basic_sample_clock<Clock>* begin(std::uint64_t batch,
                                                 std::size_t samples) noexcept {
    is_timed_ = batch % every_ == 0;
    if (!is_timed_) return nullptr;
    samples_clock_.begin(samples);
    return &samples_clock_;
  }
  /// Reading thread: ends the chunk, which had these samples.
  void end(std::span<const std::uint64_t> samples) noexcept {
    chunks_.add(1);
    samples_.add(samples.size());
    if (is_timed_ && samples_clock_.end()) note_times(samples);
  }

  /// Notes the bytes of the ragged fields of a completed batch.
  void note_values(std::uint64_t bytes) noexcept { values_.add(bytes); }

  /// The number of chunks read. From any thread, as are all members below.
  [[nodiscard]] std::uint64_t chunks() const noexcept { return chunks_.value(); }
  /// Their samples.
  [[nodiscard]] std::uint64_t samples() const noexcept { return samples_.value(); }
  /// The bytes of their ragged fields, counted once their batch is complete.
  [[nodiscard]] std::uint64_t value_bytes() const noexcept { return values_.value(); }
  /// The number of timed samples.
  [[nodiscard]] std::uint64_t timed() const noexcept { return timed_.value(); }
  /// The ticks of the timed chunks, and the part of them spent in transforms.
  [[nodiscard]] std::uint64_t timed_ticks() const noexcept { return timed_ticks_.value(); }
  [[nodiscard]] std::uint64_t transform_ticks() const noexcept { return transform_ticks_.value(); }
  /// The times of single samples.
  [[nodiscard]] const histogram& times() const noexcept { return times_; }
  /// The slowest samples.
  [[nodiscard]] const slowest_samples& slowest() const noexcept { return slowest_; }

 private:
  void note_times(std::span<const std::uint64_t> samples) noexcept {
    const auto ticks = samples_clock_.ticks();
    const std::uint64_t each = samples_clock_.chunk_ticks() / samples.size();
    timed_.add(samples.size());
    timed_ticks_.add(samples_clock_.chunk_ticks());
    transform_ticks_.add(samples_clock_.transform_ticks());
    every_ = each >= slow_ ? 1 : each >= slow_ / 50 ? 8 : 128;
    if (!samples_clock_.are_told_apart()) {
      times_.add(ticks.front(), samples.size());
      slowest_.offer({samples.front(), ticks.front()});
      return;
    }
    times_.add_all(ticks);
    for (std::size_t i = 0; i < ticks.size(); ++i) slowest_.offer({samples[i], ticks[i]});
  }

  // Of the reading thread.
  std::uint64_t slow_;       // 50 us: a thousand times what timing a sample takes
  std::uint64_t every_ = 1;  // which batches are timed, from the last timed chunk
  bool is_timed_ = false;    // the current chunk
  basic_sample_clock<Clock> samples_clock_;

  // For any thread.
  tally chunks_;
  tally samples_;
  tally values_;
  tally timed_;
  tally timed_ticks_;
  tally transform_ticks_;
  slowest_samples slowest_;
  histogram times_;
};

/// Counters and timers of a reading thread. Only that thread writes; any thread reads. Occupies
/// separate cache lines.
template <class Clock>
class alignas(cache_line) worker_meters : public traced_meters {
 public:
  using scope = timed_scope<Clock>;

  /// For chunks of at most `largest_chunk` samples, by `clock`, which must outlive this. Where the
  /// thread is the loader's own, what it uses of the machine is noted too.
  worker_meters(const Clock& clock, std::size_t largest_chunk, bool is_own_thread)
      : clock_(&clock),
        is_own_thread_(is_own_thread),
        usage_apart_(clock.ten_milliseconds()),
        reads_(clock, largest_chunk) {}

  /// @name The reading thread, around all that it does, and around what it waits for
  /// @{
  [[nodiscard]] scope for_work() noexcept { return {&work_, *clock_}; }
  [[nodiscard]] scope for_opener() noexcept {
    return {&opener_, *clock_, trace(), trace_stage::wait_for_opener};
  }
  [[nodiscard]] scope while_inactive() noexcept {
    if (trace() != nullptr) trace()->leave();  // flushes earlier waits, as it may sleep for long
    return {&inactive_, *clock_, trace(), trace_stage::wait_while_inactive};
  }
  [[nodiscard]] scope for_demand() noexcept {
    return {&demand_, *clock_, trace(), trace_stage::wait_for_demand};
  }
  [[nodiscard]] scope for_slot() noexcept {
    return {&slot_, *clock_, trace(), trace_stage::wait_for_slot};
  }
  [[nodiscard]] scope for_copy(bool is_behind_one) noexcept {
    return {is_behind_one ? &copy_ : nullptr, *clock_, trace(), trace_stage::wait_for_copy};
  }
  /// @}

  /// What it reads.
  [[nodiscard]] read_meter<Clock>& reads() noexcept { return reads_; }
  [[nodiscard]] const read_meter<Clock>& reads() const noexcept { return reads_; }

  /// Reading thread: opens a batch; returns the time, for `close`.
  [[nodiscard]] std::uint64_t open() const noexcept { return clock_->now(); }
  /// Reading thread: completes the batch that was opened then. Must be called before the batch is
  /// announced.
  void close(std::uint64_t opened) noexcept {
    const std::uint64_t now = clock_->now();
    complete_.add(1);
    batches_.add(ticks_between(opened, now));
    if (is_own_thread_) usage_.look(now, usage_apart_);
  }

  /// The number of completed batches. From any thread, as are all members below.
  [[nodiscard]] std::uint64_t complete() const noexcept { return complete_.value(); }
  /// Their times from opening to completion.
  [[nodiscard]] const histogram& batches() const noexcept { return batches_; }
  /// The ticks up to `now` in which it worked and did not wait.
  [[nodiscard]] std::uint64_t busy(std::uint64_t now) const noexcept {
    std::uint64_t waits = 0;
    for (const stopwatch* wait : {&opener_, &inactive_, &demand_, &slot_, &copy_})
      waits += wait->read(now).ticks;
    return ticks_between(waits, work_.read(now).ticks);
  }
  /// Non-blocking: adds the busy ticks to `busy`; returns false, and adds nothing, while the thread
  /// writes.
  [[nodiscard]] bool try_add_busy(std::uint64_t now, std::uint64_t& busy) const noexcept {
    std::uint64_t waits = 0;
    stopwatch::reading shows;
    for (const stopwatch* wait : {&opener_, &inactive_, &demand_, &slot_, &copy_}) {
      if (!wait->try_read(now, shows)) return false;
      waits += shows.ticks;
    }
    if (!work_.try_read(now, shows)) return false;
    busy += ticks_between(waits, shows.ticks);
    return true;
  }
  [[nodiscard]] const stopwatch& opener() const noexcept { return opener_; }
  [[nodiscard]] const stopwatch& inactive() const noexcept { return inactive_; }
  [[nodiscard]] const stopwatch& demand() const noexcept { return demand_; }
  [[nodiscard]] const stopwatch& slot() const noexcept { return slot_; }
  [[nodiscard]] const stopwatch& copy() const noexcept { return copy_; }
  [[nodiscard]] const thread_usage& usage() const noexcept { return usage_; }

 private:
  const Clock* clock_;
  bool is_own_thread_;
  std::uint64_t usage_apart_;
  tally complete_;
  read_meter<Clock> reads_;
  stopwatch work_;
  stopwatch opener_;
  stopwatch inactive_;
  stopwatch demand_;
  stopwatch slot_;
  stopwatch copy_;
  thread_usage usage_;
  histogram batches_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
