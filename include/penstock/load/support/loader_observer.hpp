// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/support/clocks.hpp>
#include <penstock/observe/support/meters.hpp>
#include <penstock/observe/trace_target.hpp>
#include <penstock/threads/support/cpus.hpp>
#include <penstock/threads/support/shared_value.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The counters of the lookahead thread.
struct ahead_meter {
  tally max_bytes;
  tally samples;
  tally bytes;
  tally bytes_now;
  tally late;
  tally failed;
  tally source_bytes;

  [[nodiscard]] ahead_stats read() const noexcept {
    return {max_bytes.value(), samples.value(), bytes.value(),       bytes_now.value(),
            late.value(),      failed.value(),  source_bytes.value()};
  }
};

/// The counters and times of one loader. Each thread writes its own meters, and the consumer writes
/// the meters of the base class. Any thread may take a snapshot of all meters. Allocates all memory
/// at construction.
class loader_observer : public consumer_meters {
 public:
  /// Observes `workers` threads, or the consumer thread if `workers` is 0. Chunks have at most
  /// `max_chunk` samples of `sample_bytes` bytes, excluding ragged fields.
  loader_observer(std::size_t workers, std::size_t max_chunk, std::size_t sample_bytes,
                  bool workers_are_automatic = false)
      : workers_(workers),
        workers_are_automatic_(workers_are_automatic),
        sample_bytes_(sample_bytes),
        readers_(std::max<std::size_t>(1, workers)) {
    for (auto& reader : readers_) {
      reader = std::make_unique<worker_meters>(clock(), max_chunk, workers != 0);
    }
  }
  loader_observer(loader_observer&&) = delete;

  /// Records the work of the threads in `target`, if `target` has a recorder. Must be called before
  /// the threads start.
  void trace_to(const trace_target& target) {
    if (target.code() == nullptr) return;
    trace_flow_ = target.code()->new_flow(*target.recorder());
    for (std::size_t worker = 0; worker < workers_; ++worker) {
      readers_[worker]->trace_to(target.add_track(trace_flow_, "penstock worker", worker));
    }
    consumer_meters::trace_to(target.add_track(trace_flow_, "penstock consumer"));
    if (workers_ == 0) readers_[0]->trace_to(kept_trace());
  }

  /// Returns the ID of this loader's batches in a trace, or 0 without a trace.
  [[nodiscard]] std::uint64_t trace_flow() const noexcept { return trace_flow_; }

  /// Returns the meters of a worker. Without workers, returns the meters of the reads on the
  /// consumer thread.
  [[nodiscard]] worker_meters& reader(std::size_t worker) noexcept { return *readers_[worker]; }
  /// Returns the meter of the lookahead thread.
  [[nodiscard]] ahead_meter& of_lookahead() noexcept { return ahead_; }

  /// Records that the consumer takes a complete batch of `samples` samples.
  void record_taken(std::uint64_t samples) noexcept {
    constexpr std::uint64_t every = 64;
    const bool looks = batches() % every == 0;
    on_batch(samples);
    if (looks) record_depth(ready());
  }
  /// Records that the consumer discards a complete batch.
  void record_discarded() noexcept { discarded_.add(1); }

  /// @name Used by the consumer to adjust the loop while it runs. These functions do not wait. @{
  /// Returns the ticks until `now` in which the consumer waited for incomplete batches.
  [[nodiscard]] std::uint64_t waited_for_ready(std::uint64_t now) const noexcept {
    return batch().read(now).ticks;
  }
  /// Returns the ticks until `now` in which readers worked, summed over all readers. Returns
  /// nothing if a reader is currently writing its ticks.
  [[nodiscard]] std::optional<std::uint64_t> busy_readers(std::uint64_t now) const noexcept {
    std::uint64_t busy = 0;
    for (const auto& reader : readers_) {
      if (!reader->watches().try_add_busy(now, busy)) return std::nullopt;
    }
    return busy;
  }
  /// @}

  /// Returns the statistics so far. Any thread may call this. Reads the cgroup files of the
  /// process, and one file per worker.
  [[nodiscard]] loader_stats snapshot() const {
    const auto at = clock().look();
    const tick_times times{at.nanoseconds_per_tick};
    loader_stats all;
    all.loader = clock().name();
    all.age = at.since;
    all.workers = workers_;
    all.workers_are_automatic = workers_are_automatic_;
    all.clock = clock().source();
    all.clock_has_stepped = at.has_stepped;
    add_reads(all, at.ticks, times);
    all.wait_for_ready = times.of(batch().read(at.ticks));
    all.wait_for_lease = times.of(lease().read(at.ticks));
    all.ready = {looks(), depths()};
    const std::uint64_t taken = samples();
    all.step = {batches(), taken, taken * sample_bytes_ + value_bytes(), step(all, at.ticks, times),
                run_queue()};
    const cpu_throttling now = cpu_throttling_so_far();
    all.ahead = ahead_.read();
    all.throttled = {grown(now.count, before_.count), grown(now.time, before_.time)};
    return all;
  }

 private:
  void add_reads(loader_stats& all, std::uint64_t now, const tick_times& times) const {
    stopwatch::reading slot;
    stopwatch::reading copy;
    stopwatch::reading demand;
    stopwatch::reading opener;
    stopwatch::reading inactive;
    slowest_list slowest;
    std::uint64_t busy = 0;
    std::uint64_t timed_chunks = 0;
    std::uint64_t transforms = 0;
    const auto add = [now](stopwatch::reading& sum, const stopwatch& watch) {
      const auto reading = watch.read(now);
      sum.count += reading.count;
      sum.ticks += reading.ticks;
    };
    for (const auto& meters : readers_) {
      const worker_meters& reader = *meters;
      add(slot, reader.watches().slot);
      add(copy, reader.watches().copy);
      add(demand, reader.watches().demand);
      add(opener, reader.watches().opener);
      add(inactive, reader.watches().inactive);
      all.read.chunks += reader.reads().chunks();
      all.read.samples += reader.reads().samples();
      all.read.bytes += reader.reads().value_bytes();
      all.read.timed += reader.reads().timed();
      timed_chunks += reader.reads().timed_ticks();
      transforms += reader.reads().transform_ticks();
      busy += reader.watches().busy(now);
      reader.reads().times().add_to(all.read.times);
      reader.reads().slowest().add_to(slowest);
      reader.batches().add_to(all.batches);
      all.processor += reader.usage().processor();
      all.run_queue += reader.usage().run_queue();
      all.minor_faults += reader.usage().minor_faults();
      all.major_faults += reader.usage().major_faults();
    }
    all.wait_for_slot = times.of(slot);
    all.wait_for_copy = times.of(copy);
    all.wait_for_demand = times.of(demand);
    all.wait_for_opener = times.of(opener);
    all.wait_while_inactive = times.of(inactive);
    all.read.bytes += all.read.samples * sample_bytes_;
    all.read.times.nanoseconds_per_tick = all.batches.nanoseconds_per_tick =
        times.nanoseconds_per_tick;
    all.read.timed_chunks = times.of(timed_chunks);
    all.read.timed_transforms = times.of(transforms);
    all.read.busy = workers_ == 0 ? all.batches.total() : times.of(busy);
    std::transform(
        slowest.samples.begin(), slowest.samples.end(), all.read.slowest.begin(),
        [&](const timed_sample& one) { return slow_sample{one.index, times.of(one.ticks)}; });
  }

  /// Returns the time in which a range was live, minus the time in which the consumer waited or
  /// read.
  [[nodiscard]] std::chrono::nanoseconds step(const loader_stats& all, std::uint64_t now,
                                              const tick_times& times) const {
    auto other = all.wait_for_ready.time + all.wait_for_lease.time;
    if (workers_ == 0) other += all.read.busy + all.wait_for_copy.time;
    return grown(times.of(range().read(now).ticks), other);
  }

  /// Returns the number of complete batches that are not taken or discarded yet.
  [[nodiscard]] std::uint64_t ready() const noexcept {
    std::uint64_t complete = 0;
    for (const auto& reader : readers_) complete += reader->complete();
    return grown(complete, batches() + discarded_.value());
  }

  std::size_t workers_;
  bool workers_are_automatic_;
  std::size_t sample_bytes_;
  cpu_throttling before_ = cpu_throttling_so_far();
  std::vector<std::unique_ptr<worker_meters>> readers_;  // indexed by worker
  tally discarded_;
  ahead_meter ahead_;
  std::uint64_t trace_flow_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
