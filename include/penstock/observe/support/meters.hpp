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
#include <penstock/observe/support/stage_probe.hpp>
#include <penstock/observe/trace_stage.hpp>
#include <penstock/observe/trace_target.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/cpus.hpp>
#include <penstock/threads/support/shared_value.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A placeholder for the meters of a thread whose waits are not timed.
struct unobserved {
  struct nothing {
    ~nothing() {}  // NOLINT(modernize-use-equals-default): a variable of this type counts as used
  };
  [[nodiscard]] static nothing for_slot() noexcept { return {}; }
  [[nodiscard]] static nothing for_copy(bool) noexcept { return {}; }
  [[nodiscard]] static nothing for_demand() noexcept { return {}; }
};

/// The trace in which the meters of a thread record, if any.
class traced_meters {
 public:
  /// Starts recording in `trace`. Null disables recording.
  void trace_to(std::shared_ptr<trace_sink> trace) noexcept { trace_ = std::move(trace); }
  [[nodiscard]] const std::shared_ptr<trace_sink>& kept_trace() const noexcept { return trace_; }
  /// Returns the trace track of the thread, or null.
  [[nodiscard]] trace_sink* trace() const noexcept { return trace_.get(); }

 private:
  std::shared_ptr<trace_sink> trace_;
};

/// Converts ticks and stopwatch readings to times.
struct tick_times {
  double nanoseconds_per_tick = 1;

  [[nodiscard]] std::chrono::nanoseconds of(std::uint64_t ticks) const noexcept {
    return time_of(static_cast<double>(ticks), nanoseconds_per_tick);
  }
  [[nodiscard]] wait_stats of(const stopwatch::reading& reading) const noexcept {
    return {reading.count, of(reading.ticks)};
  }
};

/// Counters and timers of the consumer thread of a loader or transfer. Only that thread writes to
/// them, and any thread may read them. The meters own the clock that all threads of the loader or
/// transfer use, and occupy their own cache lines.
class alignas(cache_line) consumer_meters : public traced_meters {
 public:
  /// Returns the clock. Any thread may call this.
  [[nodiscard]] tick_clock& clock() const noexcept { return clock_; }
  /// Returns the tick length. Any thread may call this.
  [[nodiscard]] tick_times times() const noexcept { return {clock_.look().nanoseconds_per_tick}; }

  /// @name Consumer thread only
  /// @{
  [[nodiscard]] std::uint64_t ticks() const noexcept { return clock_.now(); }
  [[nodiscard]] double ten_milliseconds() const noexcept {
    return static_cast<double>(clock_.ten_milliseconds());
  }
  void begin_range() noexcept {
    range_.start(clock_.now());
    run_queue_.start();
  }
  void end_range() noexcept {
    run_queue_.stop();
    range_.stop(clock_.now());
    if (trace() != nullptr) trace()->leave();
  }
  /// Times a wait for the next batch, unless the batch is ready.
  [[nodiscard]] wait_probe for_batch(bool is_missing = true) noexcept {
    return {trace_stage::wait_for_batch, is_missing ? &batch_ : nullptr, clock_, trace()};
  }
  /// Times a wait for the end of a lease.
  [[nodiscard]] wait_probe for_lease() noexcept {
    return {trace_stage::wait_for_lease, &lease_, clock_, trace()};
  }
  /// Times a wait for the end of a copy. If `is_waited_for` is false, the thread does not wait, and
  /// the time is not counted.
  [[nodiscard]] wait_probe for_copy(bool is_waited_for) noexcept {
    return {trace_stage::wait_for_copy, is_waited_for ? &copy_ : nullptr, clock_, trace()};
  }
  /// Counts a batch.
  void on_batch(std::uint64_t samples) noexcept {
    batches_.add(1);
    samples_.add(samples);
  }
  /// Counts the bytes in the batch's ragged fields.
  void record_values(std::uint64_t bytes) noexcept { values_.add(bytes); }
  /// Records the number of additional batches that were ready.
  void record_depth(std::uint64_t batches) noexcept {
    looks_.add(1);
    depths_.add(batches);
  }
  /// @}

  /// Returns the total time in which a range was active. Any thread may call this and the members
  /// below.
  [[nodiscard]] const stopwatch& range() const noexcept { return range_; }
  /// Returns the time in which a range was active and the thread was runnable but had no core.
  [[nodiscard]] std::chrono::nanoseconds run_queue() const noexcept { return run_queue_.read(); }
  [[nodiscard]] const stopwatch& batch() const noexcept { return batch_; }
  [[nodiscard]] const stopwatch& lease() const noexcept { return lease_; }
  [[nodiscard]] const stopwatch& copy() const noexcept { return copy_; }
  [[nodiscard]] std::uint64_t batches() const noexcept { return batches_.value(); }
  [[nodiscard]] std::uint64_t samples() const noexcept { return samples_.value(); }
  /// Returns the number of bytes in the batches' ragged fields.
  [[nodiscard]] std::uint64_t value_bytes() const noexcept { return values_.value(); }
  /// Returns the number of `record_depth` calls. `depths` is the sum of the recorded values.
  [[nodiscard]] std::uint64_t looks() const noexcept { return looks_.value(); }
  [[nodiscard]] std::uint64_t depths() const noexcept { return depths_.value(); }

 private:
  mutable tick_clock clock_;
  tally batches_;
  tally samples_;
  tally values_;
  tally looks_;
  tally depths_;
  run_queue_watch run_queue_;
  stopwatch range_;
  stopwatch batch_;
  stopwatch lease_;
  stopwatch copy_;
};

/// A histogram of durations, with one writing thread and any number of readers.
class histogram {
 public:
  /// Adds `count` durations of `ticks` each. Only the writer calls this.
  void add(std::uint64_t ticks, std::uint64_t count = 1) noexcept {
    counts_[log_buckets::of(ticks)].add(count);
    total_.add(ticks * count);
    if (ticks > longest_.value()) longest_.set(ticks);
  }

  /// Adds a duration for each element of `ticks`. Only the writer calls this.
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

  /// Adds the counts to `all`. Any thread may call this.
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

/// A sample and its read time. The entry is empty if `ticks` is 0.
struct timed_sample {
  std::uint64_t index = 0;
  std::uint64_t ticks = 0;
};

/// The ten slowest distinct samples, slowest first.
struct slowest_list {
  std::array<timed_sample, 10> samples{};

  /// Inserts a sample if it is among the ten slowest. Returns true if the list has changed.
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

/// The slowest samples of a reader thread. Only that thread writes to the list, and any thread may
/// read it.
class slowest_samples {
 public:
  /// Offers a sample to the list. Only the reader thread calls this.
  void offer(const timed_sample& sample) noexcept {
    if (slowest_.offer(sample)) shown_.store(slowest_);
  }
  /// Offers all samples to `all`. Any thread may call this.
  void add_to(slowest_list& all) const noexcept {
    const slowest_list shown = shown_.load();
    for (const timed_sample& sample : shown.samples) all.offer(sample);
  }

 private:
  slowest_list slowest_;  // accessed only by the reader thread
  shared_value<slowest_list> shown_;
};

/// Counts the chunks and samples that a thread reads, and times individual samples. Times all
/// batches if reading the clock is cheap compared with reading a sample, and otherwise every eighth
/// or every 128th batch.
class read_meter {
 public:
  /// Creates a meter for chunks of at most `max_chunk` samples. A sample that takes at least `slow`
  /// ticks is slow.
  read_meter(const machine_clocks& clocks, std::uint64_t slow, std::size_t max_chunk)
      : slow_(slow), samples_clock_(clocks, max_chunk) {}

  /// Returns true if the samples of batch `batch` are timed. Only the reader thread calls this.
  [[nodiscard]] bool is_timed(std::uint64_t batch) const noexcept { return batch % every_ == 0; }
  /// Begins a timed chunk of `samples` samples. Returns the clock that times it. Only the reader
  /// thread calls this.
  [[nodiscard]] sample_clock* begin(std::size_t samples, std::uint64_t now) noexcept {
    samples_clock_.begin(samples, now);
    return &samples_clock_;
  }
  /// Counts a chunk with the indices `samples`, and stops timing it if it was timed. Only the
  /// reader thread calls this.
  void end(std::span<const std::uint64_t> samples, bool is_timed, std::uint64_t now) noexcept {
    chunks_.add(1);
    samples_.add(samples.size());
    if (is_timed && samples_clock_.end(now)) record_times(samples);
  }

  /// Counts the bytes in the ragged fields of a completed batch.
  void record_values(std::uint64_t bytes) noexcept { values_.add(bytes); }

  /// Returns the number of chunks read. Any thread may call this and the members below.
  [[nodiscard]] std::uint64_t chunks() const noexcept { return chunks_.value(); }
  /// Returns the number of samples in the chunks.
  [[nodiscard]] std::uint64_t samples() const noexcept { return samples_.value(); }
  /// Returns the number of bytes in the ragged fields of the samples, counted when their batch is
  /// complete.
  [[nodiscard]] std::uint64_t value_bytes() const noexcept { return values_.value(); }
  /// Returns the number of timed samples.
  [[nodiscard]] std::uint64_t timed() const noexcept { return timed_.value(); }
  /// Returns the total ticks of the timed chunks, of which `transform_ticks` were spent in
  /// transforms.
  [[nodiscard]] std::uint64_t timed_ticks() const noexcept { return timed_ticks_.value(); }
  [[nodiscard]] std::uint64_t transform_ticks() const noexcept { return transform_ticks_.value(); }
  /// Returns the times of individual samples.
  [[nodiscard]] const histogram& times() const noexcept { return times_; }
  /// Returns the slowest samples.
  [[nodiscard]] const slowest_samples& slowest() const noexcept { return slowest_; }

 private:
  void record_times(std::span<const std::uint64_t> samples) noexcept {
    const auto ticks = samples_clock_.ticks();
    const std::uint64_t each = samples_clock_.chunk_ticks() / samples.size();
    timed_.add(samples.size());
    timed_ticks_.add(samples_clock_.chunk_ticks());
    transform_ticks_.add(samples_clock_.transform_ticks());
    every_ = each >= slow_ ? 1 : each >= slow_ / 50 ? 8 : 128;
    if (!samples_clock_.are_distinct()) {
      times_.add(ticks.front(), samples.size());
      slowest_.offer({samples.front(), ticks.front()});
      return;
    }
    times_.add_all(ticks);
    for (std::size_t i = 0; i < ticks.size(); ++i) slowest_.offer({samples[i], ticks[i]});
  }

  // The members below are accessed only by the reader thread.
  std::uint64_t slow_;
  std::uint64_t every_ = 1;  // every n-th batch is timed; updated after each timed chunk
  sample_clock samples_clock_;

  // Any thread may read the members below.
  tally chunks_;
  tally samples_;
  tally values_;
  tally timed_;
  tally timed_ticks_;
  tally transform_ticks_;
  slowest_samples slowest_;
  histogram times_;
};

/// The stopwatches of a reader thread: one for all its work, and one for each kind of wait.
struct worker_watches {
  stopwatch work;
  stopwatch opener;
  stopwatch inactive;
  stopwatch demand;
  stopwatch slot;
  stopwatch copy;

  /// Returns the ticks up to `now` in which the thread worked and did not wait. Any thread may call
  /// this.
  [[nodiscard]] std::uint64_t busy(std::uint64_t now) const noexcept {
    std::uint64_t waits = 0;
    for (const stopwatch* wait : {&opener, &inactive, &demand, &slot, &copy})
      waits += wait->read(now).ticks;
    return ticks_between(waits, work.read(now).ticks);
  }
  /// Adds the busy ticks to `busy` without blocking. If the thread is writing, returns false and
  /// adds nothing.
  [[nodiscard]] bool try_add_busy(std::uint64_t now, std::uint64_t& busy) const noexcept {
    std::uint64_t waits = 0;
    stopwatch::reading shows;
    for (const stopwatch* wait : {&opener, &inactive, &demand, &slot, &copy}) {
      if (!wait->try_read(now, shows)) return false;
      waits += shows.ticks;
    }
    if (!work.try_read(now, shows)) return false;
    busy += ticks_between(waits, shows.ticks);
    return true;
  }
};

/// Counters and timers of a reader thread, in their own cache lines. Only that thread writes to
/// them, and any thread may read them.
class alignas(cache_line) worker_meters : public traced_meters {
 public:
  /// Creates meters for chunks of at most `max_chunk` samples. `clock` must outlive them. If the
  /// loader owns the thread, also records its CPU time and page faults.
  worker_meters(const tick_clock& clock, std::size_t max_chunk, bool is_own_thread)
      : clock_(&clock),
        is_own_thread_(is_own_thread),
        usage_apart_(clock.ten_milliseconds()),
        // A sample that takes 50 us counts as slow, because timing costs only a thousandth of that.
        reads_(clock.clocks(), clock.ten_milliseconds() / 200, max_chunk) {}

  /// Measures the read of a chunk, from construction to destruction.
  class chunk_probe {
   public:
    /// Begins a chunk of `samples` samples in `batch`, the loader's batch number `sequence`.
    /// `batch` must outlive the probe. If `is_timed` is true, measures the ticks of the chunk.
    chunk_probe(worker_meters& meters, const batch_info& batch, std::uint64_t sequence,
                std::size_t samples, bool is_timed) noexcept
        : reads_(&meters.reads_),
          clock_(meters.clock_),
          has_sample_times_(reads_->is_timed(sequence)),
          is_timed_(is_timed || has_sample_times_),
          probe_(trace_stage::read, meters.trace(), batch, samples),
          began_(now()) {
      if (has_sample_times_) samples_ = reads_->begin(samples, began_);
    }

    /// Returns the clock that times the samples, or null.
    [[nodiscard]] sample_clock* samples() const noexcept { return samples_; }

    /// Counts the chunk with the indices `samples` as read. Returns its ticks, or 0 if they were
    /// not measured.
    std::uint64_t count(std::span<const std::uint64_t> samples) noexcept {
      const std::uint64_t ended = now();
      reads_->end(samples, has_sample_times_, ended);
      return ticks_between(began_, ended);
    }

   private:
    [[nodiscard]] std::uint64_t now() const noexcept { return is_timed_ ? clock_->now() : 0; }

    read_meter* reads_;
    const tick_clock* clock_;
    bool has_sample_times_;
    bool is_timed_;
    work_probe probe_;
    std::uint64_t began_;
    sample_clock* samples_ = nullptr;
  };

  /// Times all work of a thread from construction to destruction.
  class busy_scope {
   public:
    explicit busy_scope(worker_meters& meters) noexcept : meters_(&meters) {
      meters.watches_.work.start(meters.clock_->now());
    }
    busy_scope(busy_scope&&) = delete;
    ~busy_scope() { meters_->watches_.work.stop(meters_->clock_->now()); }

   private:
    worker_meters* meters_;
  };

  /// @name Probes for the reader thread's work and each kind of wait
  /// @{
  [[nodiscard]] busy_scope for_work() noexcept { return busy_scope{*this}; }
  [[nodiscard]] wait_probe for_opener() noexcept {
    return wait(trace_stage::wait_for_opener, &watches_.opener);
  }
  [[nodiscard]] wait_probe while_inactive() noexcept {
    if (trace() != nullptr) trace()->leave();  // reports earlier waits before a long sleep
    return wait(trace_stage::wait_while_inactive, &watches_.inactive);
  }
  [[nodiscard]] wait_probe for_demand() noexcept {
    return wait(trace_stage::wait_for_demand, &watches_.demand);
  }
  [[nodiscard]] wait_probe for_slot() noexcept {
    return wait(trace_stage::wait_for_slot, &watches_.slot);
  }
  [[nodiscard]] wait_probe for_copy(bool is_behind_one) noexcept {
    return wait(trace_stage::wait_for_copy, is_behind_one ? &watches_.copy : nullptr);
  }
  /// @}

  /// Counts the bytes in the ragged fields of a completed batch.
  void record_values(std::uint64_t bytes) noexcept { reads_.record_values(bytes); }
  /// Returns the read counters of the thread. Any thread may call this.
  [[nodiscard]] const read_meter& reads() const noexcept { return reads_; }

  /// Opens a batch. Returns the current time, which must be passed to `close`. Only the reader
  /// thread calls this.
  [[nodiscard]] std::uint64_t open() const noexcept { return clock_->now(); }
  /// Completes the batch that was opened at time `opened`. Must be called before the batch is
  /// announced. Only the reader thread calls this.
  void close(std::uint64_t opened) noexcept {
    const std::uint64_t now = clock_->now();
    complete_.add(1);
    batches_.add(ticks_between(opened, now));
    if (is_own_thread_) usage_.look(now, usage_apart_);
  }

  /// Returns the number of completed batches. Any thread may call this and the members below.
  [[nodiscard]] std::uint64_t complete() const noexcept { return complete_.value(); }
  /// Returns the times of the completed batches, from opening to completion.
  [[nodiscard]] const histogram& batches() const noexcept { return batches_; }
  [[nodiscard]] const worker_watches& watches() const noexcept { return watches_; }
  [[nodiscard]] const thread_usage& usage() const noexcept { return usage_; }

 private:
  [[nodiscard]] wait_probe wait(trace_stage stage, stopwatch* watch) const noexcept {
    return {stage, watch, *clock_, trace()};
  }

  const tick_clock* clock_;
  bool is_own_thread_;
  std::uint64_t usage_apart_;
  tally complete_;
  read_meter reads_;
  worker_watches watches_;
  thread_usage usage_;
  histogram batches_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
