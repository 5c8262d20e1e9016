// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

#include <penstock/core/version.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/threads/support/cpus.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
/// The part of a loop that limits its speed.
enum class bottleneck {
  step,          ///< the loop body; the loop never waits
  device,        ///< the device: the body waits for steps or copies that it has queued
  launches,      ///< kernel launches: the body queues work too slowly for the device
  workers,       ///< reading, which more workers would speed up
  storage,       ///< storage: workers are blocked on I/O
  processors,    ///< CPU time: reading and the body need more than the available cores
  quota,         ///< the container's CPU quota
  copy,          ///< the bus between host and device
  depth,         ///< too few device slots: a copy does not overlap with the previous step
  slow_samples,  ///< stragglers: single slow reads delay their batch while workers are idle
  leases,        ///< leases: the program holds the leases that the loop waits for
  results,       ///< the results path to the host: result consumers or copies
  mixed,         ///< several stages that are about equally slow
  nothing,       ///< unknown: no batch was delivered
};

/// The diagnosis of a loop (see `diagnose`). Shares are fractions of the loop time.
struct diagnosis {
  bottleneck limit = bottleneck::nothing;  ///< the part that limits the speed
  double waiting = 0;                      ///< share of time in which the loop waits
  /// Share spent waiting for a batch, or reading it without workers.
  double for_batches = 0;
  double for_copies = 0;           ///< share spent waiting for copies
  double for_leases = 0;           ///< share spent waiting for leases to end
  double for_results = 0;          ///< share spent waiting for a result slot
  double throttled = 0;            ///< share in which the container is throttled
  double busy_workers = 0;         ///< mean number of workers that are reading
  double busy_cores = 0;           ///< mean number of cores that are reading or running the body
  std::size_t cores = 0;           ///< number of cores available to the process
  std::size_t workers = 0;         ///< number of loader workers
  std::size_t wanted_workers = 0;  ///< number of workers that should suffice
  /// Suggested value of `loader_options::lookahead_bytes` if reads wait for a disk or network. 0
  /// means no change. The gain is unknown and not included in `gain`.
  std::uint64_t wanted_read_ahead = 0;
  /// Batch time in seconds excluding loading, or 0 if unknown (see `transfer::replay`).
  double floor = 0;
  double above_floor = 0;  ///< relative distance to the floor: 0.32 means 1.32 times the floor
  /// Copy time in seconds for each batch, measured on the device (see
  /// `transfer_options::instrumentation.time_device`). 0 means unknown, as for `device_step` and
  /// `device_idle`.
  double device_copy = 0;
  double device_step = 0;  ///< device time of the body's work
  double device_idle = 0;  ///< time in which the stream of the step is idle
  double gain = 0;         ///< expected gain of the remedy: 0.44 means 44 % more batches per second
  std::string sentence;    ///< the bottleneck, with numbers
  std::string remedy;      ///< the suggested change, with option names and values

  /// Returns `sentence` and `remedy` as one text.
  [[nodiscard]] std::string str() const { return sentence + ". " + remedy; }
};

namespace detail {

/// Advice on `loader_options::lookahead_bytes` for a loop that waits for reads.
struct ahead_advice {
  std::uint64_t bytes = 0;  ///< suggested value of the option, or 0 for no change
  std::string sentence;     ///< the advice as text, or ""
};

/// Derives the advice from the prefetch statistics. The gain is unknown, because the disk or
/// network may already be saturated.
[[nodiscard]] inline ahead_advice advice_on(const ahead_stats& ahead) {
  constexpr std::uint64_t max = (std::numeric_limits<std::uint64_t>::max)();
  if (ahead.source_bytes == 0) return {};  // the dataset accepts no hints
  if (ahead.max_bytes == 0) {
    const std::uint64_t bytes = std::min<std::uint64_t>(ahead.source_bytes, 64U << 20U);
    return {bytes, "Or .lookahead_bytes = " + std::to_string(bytes) +
                       ": the source can prefetch samples; the gain is not known."};
  }
  if (ahead.samples == 0 && ahead.failed != 0) {
    return {0, "The source throws when it receives prefetch hints: see stats().ahead.failed."};
  }
  if (ahead.late <= ahead.samples / 8) return {};
  const std::string late = std::to_string(ahead.late) + " samples were announced too late";
  if (ahead.max_bytes >= ahead.source_bytes) {
    return {0, late + ": let the source prefetch more than its " +
                   std::to_string(ahead.source_bytes) + " bytes; the gain is not known."};
  }
  const std::uint64_t twice = ahead.max_bytes > max / 2 ? max : 2 * ahead.max_bytes;
  const std::uint64_t bytes = (std::min)(twice, ahead.source_bytes);
  return {bytes,
          late + ": .lookahead_bytes = " + std::to_string(bytes) + "; the gain is not known."};
}

[[nodiscard]] inline std::string rounded(double value, int decimals) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}
/// Formats a fraction as a percentage, such as "44 %".
[[nodiscard]] inline std::string percent(double share) { return rounded(100 * share, 0) + " %"; }
/// Formats a number, such as "2.5".
[[nodiscard]] inline std::string tenths(double value) { return rounded(value, 1); }

/// Mean times for each batch, derived from statistics.
struct loop_times {
  diagnosis known;       // values copied unchanged from the statistics
  double all = 0;        // total time in seconds, like all times here; 0 without batches
  double body = 0;       // part of `all` spent in the loop body
  double no_core = 0;    // part of `all` in which the loop thread was runnable but had no core
  double reading = 0;    // time that workers, or the consumer, spent reading
  double computing = 0;  // part of `reading` spent on a core
  double queuing = 0;    // part of `reading` in which a worker was runnable but had no core
  double for_batches = 0;
  double for_copies = 0;
  double for_leases = 0;
  double for_results = 0;
  double consuming = 0;  // time of the result consumers
  double throttled = 0;
  std::size_t consumers = 0;
  double behind_device = 0;    // share of the workers' idle time spent waiting for copies out of
                               // slots
  double tail = 1;             // slow read time relative to the median
  double ahead = 0;            // number of copies in flight after the loop's current batch
  std::size_t worker_cap = 0;  // limit for workers = automatic, or 0 if the number is fixed
  bool is_fed = false;
  std::uint64_t depth = 0;  // feed depth
  ahead_stats hints;        // statistics of prefetch hints
  // True if the step is the loop body, so that no step runs between two batches.
  bool runs_inline = false;
};

[[nodiscard]] inline double seconds(std::chrono::nanoseconds time) noexcept {
  return std::chrono::duration<double>(time).count();
}
/// Returns `time` divided by `batches`, or 0 without batches.
[[nodiscard]] inline double share_of(std::chrono::nanoseconds time,
                                     std::uint64_t batches) noexcept {
  return batches == 0 ? 0 : seconds(time) / static_cast<double>(batches);
}

/// Returns the mean number of active workers. Inactive workers always sleep.
[[nodiscard]] inline std::size_t active_worker_count(const loader_stats& loader) noexcept {
  if (loader.workers == 0 || loader.age.count() <= 0) return loader.workers;
  const auto spared = std::llround(seconds(loader.wait_while_inactive.time) / seconds(loader.age));
  return loader.workers - (std::min)(loader.workers - 1, static_cast<std::size_t>(spared));
}

/// Adds the reads of the loader for a loop of `batches` batches.
inline void add_reads(loop_times& times, const loader_stats& loader, std::uint64_t batches) {
  times.known.workers = active_worker_count(loader);
  times.worker_cap = loader.workers_are_automatic ? loader.workers : 0;
  times.hints = loader.ahead;
  times.reading = share_of(loader.read.busy, batches);
  times.computing = loader.workers == 0
                        ? times.reading
                        : (std::min)(times.reading, share_of(loader.processor, batches));
  times.queuing = (std::min)(times.reading - times.computing, share_of(loader.run_queue, batches));
  times.throttled = share_of(loader.throttled.time, batches);
  const double idle = seconds(loader.wait_for_slot.time) + seconds(loader.wait_for_copy.time) +
                      seconds(loader.wait_for_demand.time);
  times.behind_device = idle > 0 ? seconds(loader.wait_for_copy.time) / idle : 0;
  const double median = seconds(loader.read.times.quantile(0.5));
  times.tail = median > 0 ? seconds(loader.read.times.quantile(0.99)) / median : 1;
}

/// Adds the time that the loop thread spent on the run queue, which is included in the body time.
inline void add_run_queue(loop_times& times, const step_stats& step) {
  const double work = times.body + (times.known.workers == 0 ? times.reading : 0);
  times.no_core = (std::min)(work, share_of(step.run_queue, step.batches));
}

/// Returns the times between two snapshots.
[[nodiscard]] inline loop_times times_of(const loader_stats& before, const loader_stats& after) {
  const loader_stats stats = after - before;
  const std::uint64_t batches = stats.step.batches;
  loop_times times;
  if (batches == 0) return times;
  add_reads(times, stats, batches);
  times.body = share_of(stats.step.busy, batches);
  times.for_leases = share_of(stats.wait_for_lease.time, batches);
  times.for_batches = share_of(stats.wait_for_ready.time, batches);
  if (stats.workers == 0) times.for_batches += times.reading;
  times.all = times.body + times.for_batches + times.for_leases;
  add_run_queue(times, stats.step);
  return times;
}
[[nodiscard]] inline loop_times times_of(const transfer_stats& before,
                                         const transfer_stats& after) {
  const transfer_stats stats = after - before;
  const std::uint64_t batches = stats.step.batches;
  loop_times times;
  if (batches == 0) return times;
  times.known.floor = share_of(after.replay.time, after.replay.batches);
  if (stats.loader) add_reads(times, *stats.loader, batches);
  times.body = share_of(stats.step.busy, batches);
  times.for_batches = share_of(stats.wait_for_batch.time, batches);
  times.for_copies = share_of(stats.wait_for_copy.time, batches);
  times.for_leases = share_of(stats.wait_for_slot.time, batches);
  times.all = times.body + times.for_batches + times.for_copies + times.for_leases;
  add_run_queue(times, stats.step);
  if (stats.results) {  // part of the body in which the loop waited
    times.for_results = (std::min)(times.body, share_of(stats.results->waited, batches));
    times.body -= times.for_results;
    times.consuming = share_of(stats.results->consuming, batches);
    times.consumers = stats.results->workers;
  }
  times.ahead = stats.ahead.mean();
  times.is_fed = true;
  times.depth = stats.depth;
  times.known.device_copy = share_of(stats.device.copy, stats.device.batches);
  times.known.device_step = share_of(stats.device.step, stats.device.batches);
  times.known.device_idle = share_of(stats.device.idle, stats.device.batches);
  times.runs_inline = stats.runs_inline && stats.device.batches != 0;
  return times;
}

/// Predicts the batch time with `workers` workers, at least 1. The prediction is the maximum of
/// four times: the body, reading on free cores, all computation shared by the cores, and handing a
/// batch from one thread to another (6 to 8 us).
[[nodiscard]] inline double time_with(const loop_times& times, std::size_t workers,
                                      std::size_t cores) noexcept {
  constexpr double hand_off = 7e-6;
  const double computing = (times.computing + times.body) / static_cast<double>(cores);
  const double reading = (times.reading - times.queuing) / static_cast<double>(workers);
  return (std::max)({times.body, reading, computing, hand_off});
}

/// Returns the smallest number of workers whose predicted batch time is within 2 % of the best.
[[nodiscard]] inline std::size_t enough_workers(const loop_times& times,
                                                std::size_t cores) noexcept {
  constexpr std::size_t max = 256;
  const double best = time_with(times, max, cores);
  std::size_t workers = 1;
  while (workers < max && time_with(times, workers, cores) > 1.02 * best) ++workers;
  return workers;
}

/// Finds the diagnosis by answering the usual questions in order: does the loop wait, for what, and
/// why.
class judge {
 public:
  judge(const loop_times& times, std::size_t cores) : times_(times), cores_(cores) {}

  [[nodiscard]] diagnosis decide() {
    if (times_.all <= 0) {
      say(bottleneck::nothing, "no batch came", "Let the loop run between the two snapshots.");
      return diagnosis_;
    }
    fill();
    if (diagnosis_.throttled > noticeable) {
      throttled();
    } else if (is_crowded_out()) {
      crowded_out();
    } else if (diagnosis_.waiting < noticeable) {
      says_step();
    } else if (diagnosis_.for_results >
               (std::max)({diagnosis_.for_batches, diagnosis_.for_copies, diagnosis_.for_leases})) {
      results();
    } else if (diagnosis_.for_leases > (std::max)(diagnosis_.for_batches, diagnosis_.for_copies)) {
      leases();
    } else if (diagnosis_.for_copies > diagnosis_.for_batches &&
               (diagnosis_.workers == 0 || busy_share() < 0.9)) {
      copies();
    } else {
      batches();
    }
    return diagnosis_;
  }

 private:
  static constexpr double noticeable = 0.05;

  void fill() {
    diagnosis_ = times_.known;
    diagnosis_.for_batches = times_.for_batches / times_.all;
    diagnosis_.for_copies = times_.for_copies / times_.all;
    diagnosis_.for_leases = times_.for_leases / times_.all;
    diagnosis_.for_results = times_.for_results / times_.all;
    diagnosis_.waiting = diagnosis_.for_batches + diagnosis_.for_copies + diagnosis_.for_leases +
                         diagnosis_.for_results;
    diagnosis_.throttled =
        (std::min)(1.0, times_.throttled / times_.all);  // the time is summed over all cores
    diagnosis_.busy_workers = times_.reading / times_.all;
    diagnosis_.cores = cores_;
    // Limited, because body time includes waits for a device.
    diagnosis_.busy_cores =
        (std::min)((times_.computing + times_.body - times_.no_core) / times_.all,
                   static_cast<double>(cores_));
    if (diagnosis_.floor > 0)
      diagnosis_.above_floor = (std::max)(0.0, times_.all / diagnosis_.floor - 1);
    diagnosis_.wanted_workers =
        times_.reading > 0 ? enough_workers(times_, cores_) : diagnosis_.workers;
  }

  /// Sets the bottleneck and a remedy. `time` is the predicted batch time in seconds with the
  /// remedy, or 0 if unknown.
  void say(bottleneck limit, const std::string& sentence, const std::string& remedy,
           double time = 0) {
    diagnosis_.limit = limit;
    diagnosis_.sentence = sentence;
    diagnosis_.remedy = remedy;
    if (diagnosis_.floor > 0) {
      diagnosis_.sentence += "; " + percent(diagnosis_.above_floor) + " above the floor";
      time = time > 0 ? (std::max)(time, diagnosis_.floor) : 0;  // no remedy makes the step itself
                                                                 // faster
    }
    diagnosis_.gain = time > 0 ? (std::max)(0.0, times_.all / time - 1) : 0;
    if (diagnosis_.gain >= 0.01) diagnosis_.remedy += ": expected +" + percent(diagnosis_.gain);
    if (diagnosis_.remedy.back() != '.') diagnosis_.remedy += '.';
  }

  void throttled() {
    say(bottleneck::quota,
        "throttled: for " + percent(diagnosis_.throttled) +
            " of the time the container had used up its CPU quota",
        "Raise the quota, or take fewer workers (" + workers_option() + ")");
  }

  /// Returns true if the cores are busy with threads other than readers and the loop body.
  [[nodiscard]] bool others_have_cores() const noexcept {
    return diagnosis_.busy_cores < 0.8 * static_cast<double>(cores_);
  }
  [[nodiscard]] std::string others_text() const {
    return "of which other threads use " +
           tenths(static_cast<double>(cores_) - diagnosis_.busy_cores);
  }
  static constexpr const char* fewer_programs =
      "Fewer programs and threads on these cores, or less work per sample";

  /// Returns true if other threads keep the loop thread off the cores.
  [[nodiscard]] bool is_crowded_out() const noexcept {
    return others_have_cores() && times_.no_core > 0.15 * times_.all;
  }
  void crowded_out() {
    say(bottleneck::processors,
        "CPU-bound: for " + percent(times_.no_core / times_.all) +
            " of the time the loop's thread is ready to run but gets none of the " +
            std::to_string(cores_) + " cores, " + others_text(),
        fewer_programs);
  }

  /// Returns the share of time in which the device has no step to run, as far as known.
  [[nodiscard]] double device_idles() const noexcept {
    const double all = diagnosis_.device_idle + diagnosis_.device_step;
    return all > 0 ? diagnosis_.device_idle / all : 0;
  }
  /// Diagnoses copies that take longer than a step. Returns true if that is the bottleneck.
  bool says_long_copies(const std::string& waits) {
    if (diagnosis_.device_copy <= diagnosis_.device_step) return false;
    say(bottleneck::copy,
        "copy-bound: " + waits + ": a copy takes " + tenths(1e6 * diagnosis_.device_copy) +
            " us, a step " + tenths(1e6 * diagnosis_.device_step) + " us",
        "Copy fewer bytes: use a smaller type and a transform on the device");
    return true;
  }

  /// Diagnoses an idle device while the host does not wait.
  void idle_device() {
    const std::string waits = "the device has no step to run for " + percent(device_idles()) +
                              " of the time although batches are ready";
    if (says_long_copies(waits)) return;
    say(bottleneck::launches, "launch-bound: " + waits,
        "Queue work sooner: no synchronization in the body, fewer launches, CUDA graphs");
  }

  void says_step() {
    if (device_idles() > noticeable && !times_.runs_inline) return idle_device();
    if (diagnosis_.above_floor > noticeable) {
      say(bottleneck::step,
          "step-bound: the loop waits for " + percent(diagnosis_.waiting) +
              " of the time, but its body takes longer than it does alone",
          "Concurrent work slows it: use fewer workers (" + workers_option() +
              "), or copy fewer bytes",
          diagnosis_.floor);
      return;
    }
    std::string remedy = "Faster batches would not help";
    if (diagnosis_.workers > diagnosis_.wanted_workers) {
      remedy += ", " + workers_option() + " = " + std::to_string(diagnosis_.wanted_workers) +
                " would suffice";
    }
    say(bottleneck::step,
        "step-bound: the loop waits for " + percent(diagnosis_.waiting) + " of the time", remedy);
  }

  void leases() {
    say(bottleneck::leases,
        "lease-bound: for " + percent(diagnosis_.for_leases) +
            " of the time the loop waits for batches held by the program",
        times_.is_fed ? "End leases sooner, or raise .depth"
                      : "End leases sooner, or raise .prefetch",
        times_.all - times_.for_leases);
  }

  void results() {
    const std::string waits = "results-bound: for " + percent(diagnosis_.for_results) +
                              " of the time the loop waits for a slot for its results";
    const double others = times_.all - times_.for_results;
    const double busy = times_.consuming / times_.all / static_cast<double>(times_.consumers);
    constexpr double max = 256;
    const double wanted = (std::min)(max, others > 0 ? std::ceil(times_.consuming / others)
                                                     : static_cast<double>(2 * times_.consumers));
    if (busy < 0.5 || wanted <= static_cast<double>(times_.consumers)) {
      return say(bottleneck::results,
                 waits + ", while consumers are busy for " + percent(busy) + " of the time",
                 "Copy fewer bytes back, or raise .depth of the results");
    }
    const double time = (std::max)(others, times_.consuming / wanted);
    say(bottleneck::results,
        waits + ", whose consumers are busy for " + percent(busy) + " of the time",
        "Consume in more threads (.workers = " + std::to_string(std::llround(wanted)) +
            " of the results), or do less work per batch",
        time);
  }

  void copies() {
    const std::string waits =
        "the loop waits " + percent(diagnosis_.for_copies) + " of the time for copies";
    if (times_.ahead < 0.5) {
      const std::string none = "copy-bound: " + waits + ", and no copy runs ahead";
      // Nothing was copied during the body, because no slot was free or no batch was ready.
      if (diagnosis_.workers == 0)
        return say(bottleneck::depth, none, "Read in a worker: .workers = 1");
      if (times_.depth < 3) {
        const double longer = (std::max)(times_.body, times_.for_copies);
        return say(bottleneck::depth, none, "Raise .depth to 3", longer);
      }
      return say(bottleneck::depth, none,
                 "Leases hold the slots: end them sooner, or raise .depth");
    }
    say(bottleneck::copy, "copy-bound: " + waits,
        "Copy fewer bytes: use a smaller type and a transform on the device");
  }

  void batches() {
    // If all workers are busy, the loop waits for copies of batches that were read late.
    const std::string waits = "the loop waits " +
                              percent(diagnosis_.for_batches + diagnosis_.for_copies) +
                              " of the time for batches";
    if (times_.reading <= 0) {
      say(bottleneck::workers, "source-bound: " + waits,
          "The source is not a loader: examine the source");
      return;
    }
    const double computes = times_.computing / times_.reading;
    const double queues = times_.queuing / times_.reading;
    if (diagnosis_.workers == 0 &&
        times_.all <= 1.03 * time_with(times_, diagnosis_.wanted_workers, cores_)) {
      say(bottleneck::processors,
          "CPU-bound: " + waits + ", which it reads itself, as fast as workers would deliver them",
          "Less work per sample, or larger batches");
      return;
    }
    if (busy_share() < 0.8) return idle_workers(waits);
    const double better = time_with(times_, diagnosis_.wanted_workers, cores_);
    const auto cores = static_cast<double>(cores_);
    // Some kernels do not report run-queue time. If the loop uses all cores, its workers are not
    // waiting for I/O.
    const double blocked = diagnosis_.busy_cores > 0.9 * cores ? 0 : 1 - computes - queues;
    const bool is_storage = blocked > 0.5;
    if (diagnosis_.wanted_workers > diagnosis_.workers && times_.all / better > 1.03) {
      say(is_storage ? bottleneck::storage : bottleneck::workers,
          std::string{is_storage ? "I/O-bound: " : "loader-bound: "} + waits + ", " +
              workers_text(computes),
          more_workers(), better);
      if (is_storage) advise_ahead();
      return;
    }
    if (is_storage) {
      say(bottleneck::storage, "I/O-bound: " + waits + ", " + workers_text(computes),
          "Faster storage, larger reads, or data that stays in memory");
      return advise_ahead();
    }
    if (others_have_cores() && queues > (std::max)(0.2, blocked)) {
      say(bottleneck::processors,
          "CPU-bound: " + waits + ", " + workers_text(computes) + ", " + others_text(),
          fewer_programs);
      return;
    }
    if (others_have_cores()) {
      say(bottleneck::mixed,
          "mixed: " + waits + ", " + workers_text(computes) + "; the loop's body takes " +
              percent(1 - diagnosis_.waiting),
          "No part is much slower than the others: all parts have to become faster");
      return;
    }
    const double reads = times_.computing / times_.all;
    say(bottleneck::processors,
        "CPU-bound: " + waits +
            (reads > 0.8 * cores
                 ? "; reading takes " + tenths(reads)
                 : "; reading and the loop's body take " + tenths(diagnosis_.busy_cores)) +
            " of " + std::to_string(cores_) + " cores",
        "Less work per sample: decode less, transform on the device, or cache decoded samples");
  }

  void advise_ahead() {
    const ahead_advice advice = advice_on(times_.hints);
    diagnosis_.wanted_read_ahead = advice.bytes;
    if (!advice.sentence.empty()) diagnosis_.remedy += ' ' + advice.sentence;
  }

  void idle_workers(const std::string& waits) {
    if (times_.behind_device > 0.5) {
      if (says_long_copies(waits)) return;
      say(bottleneck::device,
          "device-bound: " + waits + ", and workers wait for copies out of their slots",
          "Batches are read in time: shorten the step or the copy");
      return;
    }
    std::string slow = waits + " while workers are idle for " + percent(1 - busy_share());
    if (times_.tail >= 3) {
      slow += ": a slow read takes " + tenths(times_.tail) + " times as long as usual";
    }
    say(bottleneck::slow_samples, "held up by single reads: " + slow,
        "Raise .prefetch, or fix the slowest samples (listed in stats)",
        (std::max)(times_.body,
                   time_with(times_, (std::max)(diagnosis_.workers, std::size_t{1}), cores_)));
  }

  /// Returns the fraction of time in which a worker reads.
  [[nodiscard]] double busy_share() const noexcept {
    return diagnosis_.workers == 0
               ? 1.0
               : diagnosis_.busy_workers / static_cast<double>(diagnosis_.workers);
  }

  /// Returns the name of the option that sets or limits the number of workers.
  [[nodiscard]] std::string workers_option() const {
    return times_.worker_cap == 0 ? ".workers" : ".tuning.max_workers";
  }
  [[nodiscard]] std::string more_workers() const {
    if (diagnosis_.wanted_workers > times_.worker_cap) {
      return workers_option() + " = " + std::to_string(diagnosis_.wanted_workers);
    }
    return "Let the loop continue: .workers = automatic may use up to " +
           std::to_string(times_.worker_cap);
  }

  [[nodiscard]] std::string workers_text(double computes) const {
    if (diagnosis_.workers == 0) return "which it reads itself";
    std::string text = tenths(diagnosis_.busy_workers) + " of " +
                       std::to_string(diagnosis_.workers) + " workers are busy, " +
                       percent(computes) + " of that computing";
    const double queues = times_.queuing / times_.reading;
    if (queues > noticeable) text += " and " + percent(queues) + " waiting for a core";
    return text + ", on " + std::to_string(cores_) + " cores";
  }

  const loop_times& times_;
  std::size_t cores_;
  diagnosis diagnosis_;
};

}  // namespace detail

/// Finds the bottleneck of a loop from two snapshots of `loader::stats()` or `transfer::stats()`,
/// between which the loop ran. The diagnosis is based on which threads wait for each other, not on
/// utilization. `cores` is the number of cores available to the process. 0 determines it from the
/// CPU affinity and cgroup limits. Throws `stats_mismatch` if the snapshots do not belong together.
///
///     const auto before = feed.stats();
///     for (auto& batch : feed.epoch(0)) ...
///     std::cout << ps::diagnose(before, feed.stats()).str() << '\n';
template <class Stats>
  requires requires(const Stats& stats) { detail::times_of(stats, stats); }
[[nodiscard]] diagnosis diagnose(const Stats& before, const Stats& after, std::size_t cores = 0) {
  const detail::loop_times times = detail::times_of(before, after);
  return detail::judge{times, cores == 0 ? detail::usable_cpus() : cores}.decide();
}

/// Formats a diagnosis with one line each for the loader, the copy, the step and the CPU. The
/// device has a line if it was timed, and a replay adds the distance to the floor. The diagnosis is
/// last.
[[nodiscard]] inline std::string to_string(const diagnosis& result) {
  using detail::percent;
  using detail::tenths;
  if (result.limit == bottleneck::nothing) return result.str() + '\n';
  std::string text = "loader: waited for batches during " + percent(result.for_batches) +
                     " of the time, " + tenths(result.busy_workers) + " of " +
                     std::to_string(result.workers) + " workers busy\n";
  text += "copy: waited for copies during " + percent(result.for_copies) + "; leases " +
          percent(result.for_leases) + '\n';
  if (result.for_results > 0) {
    text += "results: waited for a slot during " + percent(result.for_results) + '\n';
  }
  text += "step:      " + percent(1 - result.waiting) + " in the loop's body\n";
  text += "processor: " + tenths(result.busy_cores) + " of " + std::to_string(result.cores) +
          " cores busy, throttled " + percent(result.throttled) + '\n';
  if (result.device_step > 0) {
    text += "device:    a copy " + tenths(1e6 * result.device_copy) + " us, a step " +
            tenths(1e6 * result.device_step) + " us, idle before it " +
            tenths(1e6 * result.device_idle) + " us\n";
  }
  if (result.floor > 0) {
    text += "floor:     " + tenths(1e6 * result.floor) + " us per batch, the loop is " +
            percent(result.above_floor) + " above it\n";
  }
  return text + result.str() + '\n';
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
