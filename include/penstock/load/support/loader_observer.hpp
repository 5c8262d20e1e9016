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
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/threads/support/cpus.hpp>
#include <penstock/threads/support/shared_value.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Turns what stopwatches show into times.
struct tick_times {
  double nanoseconds_per_tick = 1;

  [[nodiscard]] std::chrono::nanoseconds of(std::uint64_t ticks) const noexcept {
    return time_of(static_cast<double>(ticks), nanoseconds_per_tick);
  }
  [[nodiscard]] wait_stats of(const stopwatch::reading& seen) const noexcept {
    return {seen.count, of(seen.ticks)};
  }
};

/// The counters of the lookahead thread.
struct ahead_meter {
  tally most_bytes;
  tally samples;
  tally bytes;
  tally bytes_now;
  tally late;
  tally failed;
  tally source_bytes;

  [[nodiscard]] ahead_stats read() const noexcept {
    return {most_bytes.value(), samples.value(), bytes.value(),       bytes_now.value(),
            late.value(),       failed.value(),  source_bytes.value()};
  }
};

/// All that is counted and timed of one loader: each thread writes meters of its own, and any
/// thread takes a snapshot of all. Memory is taken at construction.
template <class Clock>
class basic_loader_observer {
 public:
  /// For `workers` threads, or the consumer's where there are none, which read chunks of at most
  /// `largest_chunk` samples of `sample_bytes` bytes, ragged fields not counted.
  basic_loader_observer(std::size_t workers, std::size_t largest_chunk, std::size_t sample_bytes)
      : workers_(workers), sample_bytes_(sample_bytes), consumer_(clock_) {
    const std::size_t readers = std::max<std::size_t>(1, workers);
    for (std::size_t reader = 0; reader < readers; ++reader) {
      readers_.push_back(
          std::make_unique<worker_meters<Clock>>(clock_, largest_chunk, workers != 0));
    }
  }
  basic_loader_observer(basic_loader_observer&&) = delete;

  /// From now on what the threads do is recorded too; null: nothing. To be called before there are
  /// any.
  void trace_to(trace_recorder* recorder) {
    if (recorder == nullptr) return;
    trace_flow_ = recorder->new_flow();
    const auto track = [&](const std::string& name) {
      return recorder->add_track(name, trace_flow_, recorder->capacity());
    };
    for (std::size_t worker = 0; worker < workers_; ++worker) {
      readers_[worker]->trace_to(track(joined({"penstock worker ", worker})));
    }
    consumer_.trace_to(track("penstock consumer"));
    if (workers_ == 0) readers_[0]->trace_to(consumer_.kept_trace());
  }

  /// What the batches are called in a trace; 0 without one.
  [[nodiscard]] std::uint64_t trace_flow() const noexcept { return trace_flow_; }

  /// The meters of a worker; without workers those of the consumer as it reads.
  [[nodiscard]] worker_meters<Clock>& reader(std::size_t worker) noexcept {
    return *readers_[worker];
  }
  /// The meters of the consumer.
  [[nodiscard]] consumer_meters<Clock>& of_consumer() noexcept { return consumer_; }

  /// The meter of the lookahead thread.
  [[nodiscard]] ahead_meter& of_lookahead() noexcept { return ahead_; }

  /// The consumer takes a complete batch of `samples` samples.
  void note_taken(std::uint64_t samples) noexcept {
    constexpr std::uint64_t every = 64;
    const bool looks = consumer_.batches() % every == 0;
    consumer_.note_batch(samples);
    if (looks) consumer_.note_depth(ready());
  }
  /// The consumer throws a complete batch away.
  void note_discarded() noexcept { discarded_.add(1); }

  /// @name The consumer, for what follows from them while the loop runs: these wait for nothing
  /// @{
  [[nodiscard]] std::uint64_t ticks() const noexcept { return clock_.now(); }
  [[nodiscard]] double ten_milliseconds() const noexcept {
    return static_cast<double>(clock_.ten_milliseconds());
  }
  /// The ticks by `now` that it has waited for batches that were not complete.
  [[nodiscard]] std::uint64_t waited_for_ready(std::uint64_t now) const noexcept {
    return consumer_.batch().read(now).ticks;
  }
  /// The ticks by `now` that all readers have worked; nothing where one is just writing them down.
  [[nodiscard]] std::optional<std::uint64_t> busy_readers(std::uint64_t now) const noexcept {
    std::uint64_t busy = 0;
    for (const auto& reader : readers_) {
      if (!reader->try_add_busy(now, busy)) return std::nullopt;
    }
    return busy;
  }
  /// @}

  /// How long ticks are. From any thread.
  [[nodiscard]] tick_times times() const { return {clock_.look().nanoseconds_per_tick}; }

  /// What has happened so far. From any thread. Reads files of the container's, and one for each
  /// worker.
  [[nodiscard]] loader_stats snapshot() const {
    const auto at = clock_.look();
    const tick_times times{at.nanoseconds_per_tick};
    loader_stats all;
    all.loader = clock_.name();
    all.age = at.since;
    all.workers = workers_;
    all.clock = clock_.source();
    all.clock_has_stepped = at.has_stepped;
    add_reads(all, at.ticks, times);
    all.wait_for_ready = times.of(consumer_.batch().read(at.ticks));
    all.wait_for_lease = times.of(consumer_.lease().read(at.ticks));
    all.ready = {consumer_.looks(), consumer_.depths()};
    const std::uint64_t taken = consumer_.samples();
    all.step = {consumer_.batches(), taken, taken * sample_bytes_ + consumer_.value_bytes(),
                step(all, at.ticks, times)};
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
      const auto seen = watch.read(now);
      sum.count += seen.count;
      sum.ticks += seen.ticks;
    };
    for (const auto& meters : readers_) {
      const worker_meters<Clock>& reader = *meters;
      add(slot, reader.slot());
      add(copy, reader.copy());
      add(demand, reader.demand());
      add(opener, reader.opener());
      add(inactive, reader.inactive());
      all.read.chunks += reader.reads().chunks();
      all.read.samples += reader.reads().samples();
      all.read.bytes += reader.reads().value_bytes();
      all.read.timed += reader.reads().timed();
      timed_chunks += reader.reads().timed_ticks();
      transforms += reader.reads().transform_ticks();
      busy += reader.busy(now);
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

  /// The time in which a range was live, less that in which the consumer waited or read.
  [[nodiscard]] std::chrono::nanoseconds step(const loader_stats& all, std::uint64_t now,
                                              const tick_times& times) const {
    auto other = all.wait_for_ready.time + all.wait_for_lease.time;
    if (workers_ == 0) other += all.read.busy + all.wait_for_copy.time;
    return grown(times.of(consumer_.range().read(now).ticks), other);
  }

  /// How many batches are complete and neither taken nor thrown away.
  [[nodiscard]] std::uint64_t ready() const noexcept {
    std::uint64_t complete = 0;
    for (const auto& reader : readers_) complete += reader->complete();
    return grown(complete, consumer_.batches() + discarded_.value());
  }

  std::size_t workers_;
  std::size_t sample_bytes_;
  cpu_throttling before_ = cpu_throttling_so_far();
  mutable Clock clock_;
  std::vector<std::unique_ptr<worker_meters<Clock>>> readers_;
  consumer_meters<Clock> consumer_;
  tally discarded_;
  ahead_meter ahead_;
  std::uint64_t trace_flow_ = 0;
};

/// That of the library's loaders.
using loader_observer = basic_loader_observer<tick_clock>;

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
