// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include <penstock/observe/detail/judging/ahead_advice.hpp>
#include <penstock/observe/detail/judging/figures.hpp>
#include <penstock/observe/detail/judging/loop_times.hpp>
#include <penstock/observe/verdict.hpp>
#include <penstock/threads/support/usable_cpus.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Decides, in the order of the questions that people ask: does the loop wait, for whom, and why.
class judge {
 public:
  judge(const loop_times& times, std::size_t cores) : times_(times), cores_(cores) {}

  [[nodiscard]] verdict decide() {
    if (times_.batches == 0 || times_.all <= 0) {
      say(loop_limit::nothing, "no batch came", "Let the loop run between the two snapshots.");
      return said_;
    }
    fill();
    if (said_.throttled > noticeable) {
      throttled();
    } else if (said_.waiting < noticeable) {
      says_step();
    } else if (said_.for_leases > (std::max)(said_.for_batches, said_.for_copies)) {
      leases();
    } else if (said_.for_copies > said_.for_batches &&
               (times_.workers == 0 || busy_share() < 0.9)) {
      copies();
    } else {
      batches();
    }
    return said_;
  }

 private:
  static constexpr double noticeable = 0.05;

  void fill() {
    said_.for_batches = times_.for_batches / times_.all;
    said_.for_copies = times_.for_copies / times_.all;
    said_.for_leases = times_.for_leases / times_.all;
    said_.waiting = said_.for_batches + said_.for_copies + said_.for_leases;
    said_.throttled = (std::min)(1.0, times_.throttled / times_.all);  // it is added up over cores
    said_.busy_workers = times_.reading / times_.all;
    said_.busy_cores = (times_.computing + times_.body) / times_.all;
    said_.cores = cores_;
    said_.workers = times_.workers;
    said_.floor = times_.floor;
    said_.device_copy = times_.device_copy;
    said_.device_step = times_.device_step;
    said_.device_idle = times_.device_idle;
    if (times_.floor > 0) said_.above_floor = (std::max)(0.0, times_.all / times_.floor - 1);
    said_.wanted_workers = times_.reading > 0 ? enough_workers(times_, cores_) : times_.workers;
  }

  /// With a remedy after which a batch takes `time` seconds; 0: not known.
  void say(loop_limit limit, const std::string& sentence, const std::string& remedy,
           double time = 0) {
    said_.limit = limit;
    said_.sentence = sentence;
    said_.remedy = remedy;
    if (said_.floor > 0) {
      said_.sentence += "; " + percent(said_.above_floor) + " above the floor";
      time = time > 0 ? (std::max)(time, said_.floor) : 0;  // no remedy makes the step faster
    }
    said_.gain = time > 0 ? (std::max)(0.0, times_.all / time - 1) : 0;
    if (said_.gain >= 0.01) said_.remedy += ": expected +" + percent(said_.gain);
    if (said_.remedy.back() != '.') said_.remedy += '.';
  }

  void throttled() {
    say(loop_limit::quota,
        "throttled: for " + percent(said_.throttled) +
            " of the time the container had used up its quota of processor time",
        "Raise the quota, or take fewer workers (.workers)");
  }

  /// The share of the time in which the device has no step to do, as far as that is known.
  [[nodiscard]] double device_idles() const noexcept {
    const double all = times_.device_idle + times_.device_step;
    return all > 0 ? times_.device_idle / all : 0;
  }
  /// Says so where a copy takes the device longer than a step.
  bool says_long_copies(const std::string& waits) {
    if (times_.device_copy <= times_.device_step) return false;
    say(loop_limit::copy,
        "copy-bound: " + waits + ": a copy takes the device " + tenths(1e6 * times_.device_copy) +
            " us, a step " + tenths(1e6 * times_.device_step) + " us",
        "Let fewer bytes travel: a smaller type and a transform on the device");
    return true;
  }

  /// The host waits for nothing, and yet the device does.
  void idle_device() {
    const std::string waits = "the device has no step to do for " + percent(device_idles()) +
                              " of the time, and batches are there";
    if (says_long_copies(waits)) return;
    say(loop_limit::launches, "launch-bound: " + waits,
        "Give it work sooner: no synchronisation in the body, fewer launches, CUDA graphs");
  }

  void says_step() {
    if (device_idles() > noticeable && !times_.is_body) return idle_device();
    if (said_.above_floor > noticeable) {
      say(loop_limit::step,
          "step-bound: the loop waits for " + percent(said_.waiting) +
              " of the time, and yet its body takes longer than alone",
          "What runs beside it slows it: fewer workers (.workers), or fewer bytes to copy",
          times_.floor);
      return;
    }
    std::string remedy = "Faster batches gain nothing";
    if (times_.workers > said_.wanted_workers) {
      remedy += ", .workers = " + std::to_string(said_.wanted_workers) + " would do";
    }
    say(loop_limit::step,
        "step-bound: the loop waits for " + percent(said_.waiting) + " of the time", remedy);
  }

  void leases() {
    say(loop_limit::leases,
        "lease-bound: for " + percent(said_.for_leases) +
            " of the time the loop waits for batches that the program holds",
        times_.is_fed ? "End leases sooner, or raise .depth"
                      : "End leases sooner, or raise .prefetch",
        times_.all - times_.for_leases);
  }

  void copies() {
    const std::string waits =
        "the loop waits " + percent(said_.for_copies) + " of the time for copies";
    if (times_.ahead < 0.5) {
      const std::string none = "copy-bound: " + waits + ", and none runs ahead";
      // Nothing was copied under the body: for want of a slot, or of a batch that is there.
      if (times_.workers == 0)
        return say(loop_limit::depth, none, "Read by a worker: .workers = 1");
      if (times_.depth < 3) {
        const double longer = (std::max)(times_.body, times_.for_copies);
        return say(loop_limit::depth, none, "Raise .depth to 3", longer);
      }
      return say(loop_limit::depth, none,
                 "Leases hold the slots: end them sooner, or raise .depth");
    }
    say(loop_limit::copy, "copy-bound: " + waits,
        "Let fewer bytes travel: a smaller type and a transform on the device");
  }

  void batches() {
    // Where all workers are busy, a copy that is waited for is one of a batch that came late.
    const std::string waits = "the loop waits " + percent(said_.for_batches + said_.for_copies) +
                              " of the time for batches";
    if (times_.reading <= 0) {
      say(loop_limit::workers, "source-bound: " + waits, "The source is no loader: look there");
      return;
    }
    const double computes = times_.computing / times_.reading;
    if (times_.workers == 0 &&
        times_.all <= 1.03 * time_with(times_, said_.wanted_workers, cores_)) {
      say(loop_limit::processors,
          "CPU-bound: " + waits +
              ", which it reads itself, as fast as workers would hand them over",
          "Less work a sample, or larger batches");
      return;
    }
    if (busy_share() < 0.8) return idle_workers(waits);
    const double better = time_with(times_, said_.wanted_workers, cores_);
    const bool is_storage = computes < 0.5;
    if (said_.wanted_workers > times_.workers && times_.all / better > 1.03) {
      say(is_storage ? loop_limit::storage : loop_limit::workers,
          std::string{is_storage ? "I/O-bound: " : "loader-bound: "} + waits + ", " +
              workers_text(computes),
          ".workers = " + std::to_string(said_.wanted_workers), better);
      if (is_storage) advise_ahead();
      return;
    }
    if (is_storage) {
      say(loop_limit::storage, "I/O-bound: " + waits + ", " + workers_text(computes),
          "Faster storage, larger reads, or data that stays in memory");
      return advise_ahead();
    }
    if (said_.busy_cores < 0.8 * static_cast<double>(cores_)) {
      say(loop_limit::mixed,
          "mixed: " + waits + ", " + workers_text(computes) + "; the loop's body takes " +
              percent(1 - said_.waiting),
          "No part is much slower than the others: each has to become faster");
      return;
    }
    say(loop_limit::processors,
        "CPU-bound: " + waits + "; reading and the loop's body take " + tenths(said_.busy_cores) +
            " of " + std::to_string(cores_) + " cores",
        "Less work a sample: decode less, transform on the device, or keep what was decoded");
  }

  void advise_ahead() {
    const ahead_advice advice = advice_on(times_.told);
    said_.wanted_read_ahead = advice.bytes;
    if (!advice.sentence.empty()) said_.remedy += ' ' + advice.sentence;
  }

  void idle_workers(const std::string& waits) {
    if (times_.behind_device > 0.5) {
      if (says_long_copies(waits)) return;
      say(loop_limit::device,
          "device-bound: " + waits + ", and workers wait for copies out of their slots",
          "Batches are read in time: shorten the step, or the copy");
      return;
    }
    std::string slow = waits + " while workers are idle for " + percent(1 - busy_share());
    if (times_.tail >= 3) {
      slow += ": a slow read takes " + tenths(times_.tail) + " times the usual one";
    }
    say(loop_limit::slow_samples, "held up by single reads: " + slow,
        "Raise .prefetch, or mend the slowest samples (stats name them)",
        (std::max)(times_.body,
                   time_with(times_, (std::max)(times_.workers, std::size_t{1}), cores_)));
  }

  /// The share of the time in which a worker reads.
  [[nodiscard]] double busy_share() const noexcept {
    return times_.workers == 0 ? 1.0 : said_.busy_workers / static_cast<double>(times_.workers);
  }

  [[nodiscard]] std::string workers_text(double computes) const {
    if (times_.workers == 0) return "which it reads itself";
    return tenths(said_.busy_workers) + " of " + std::to_string(times_.workers) +
           " workers are busy, " + percent(computes) + " of that computing, on " +
           std::to_string(cores_) + " cores";
  }

  const loop_times& times_;
  std::size_t cores_;
  verdict said_;
};

[[nodiscard]] inline verdict judged(const loop_times& times, std::size_t cores) {
  return judge{times, cores == 0 ? usable_cpus() : cores}.decide();
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
