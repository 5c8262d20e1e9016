// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/observe/stats.hpp>

namespace test {

/// Simulates a loop batch by batch. Workers share the oldest unread batch, and a ring of host slots
/// limits their lead. One copy at a time fills a ring of device slots. The loop body is the step.
/// Times are in milliseconds per batch.
struct played_loop {
  double load = 1;       // time of a single worker per batch
  double computing = 1;  // fraction of this time that needs a core
  double copy = 1;
  double body = 1;
  std::size_t workers = 1;
  std::size_t cores = 16;
  std::size_t prefetch = 8;
  std::size_t depth = 3;
  // One in `slow_every` batches has a sample that takes `slow` longer; 0 means none.
  std::size_t slow_every = 0;
  double slow = 0;
  double throttled = 0;        // fraction of the time in which the loop is throttled
  bool reports_queues = true;  // true if the kernel reports run-queue times
  double kept = 0;             // time for which another thread keeps a lease after the loop body

  struct outcome {
    double time = 0;  // time per batch
    penstock::transfer_stats stats;
  };

  [[nodiscard]] outcome play() const {
    constexpr std::size_t batches = 400;
    // If more threads compute than there are cores, workers wait for a core and appear busy.
    const double read = std::max(load / static_cast<double>(workers),
                                 (load * computing + body) / static_cast<double>(cores));

    std::vector<double> complete(batches), copied(batches), released(batches);
    double now = 0, reader = 0, engine = 0;
    double for_batches = 0, for_copies = 0, for_leases = 0;
    std::uint64_t ahead = 0;
    std::size_t planned = 0, issued = 0;
    const auto plan = [&](double until) {  // schedules reads as far as the host slots allow
      while (planned < batches) {
        double begin = reader;
        if (planned > prefetch) {
          const std::size_t before = planned - prefetch - 1;
          if (before >= issued) return;  // the copy out of this slot is not queued yet
          begin = std::max(begin, copied[before]);
        }
        if (begin > until) return;
        const bool is_slow = slow_every != 0 && planned % slow_every == slow_every - 1;
        // One worker reads the slow sample.
        complete[planned] = begin + read + (is_slow ? slow : 0);
        reader = begin + read;  // the other workers continue
        ++planned;
      }
    };
    const auto issue = [&](std::size_t which) {
      engine = std::max({engine, now, which >= depth ? released[which - depth] : 0.0}) + copy;
      copied[which] = engine;
      ++issued;
    };
    for (std::size_t i = 0; i < batches; ++i) {
      plan(now);
      while (issued < batches && issued < planned && complete[issued] <= now &&
             (issued < depth || (issued - depth < i && released[issued - depth] <= now))) {
        issue(issued);
        plan(now);
      }
      if (issued == i) {
        if (i >= depth && released[i - depth] > now) {
          for_leases += released[i - depth] - now;
          now = released[i - depth];
        }
        plan(1e18);
        const double ready = std::max(now, complete[i]);
        for_batches += ready - now;
        now = ready;
        issue(i);
      }
      ahead += issued - i - 1;
      for_copies += std::max(0.0, copied[i] - now);
      now = std::max(now, copied[i]) + body;
      released[i] = now + kept;
    }
    return {now / batches,
            stats_of(batches, now, read, for_batches, for_copies, for_leases, ahead)};
  }

 private:
  [[nodiscard]] penstock::transfer_stats stats_of(std::size_t batches, double all, double read,
                                                  double for_batches, double for_copies,
                                                  double for_leases, std::uint64_t ahead) const {
    const auto time = [](double milliseconds) {
      return std::chrono::nanoseconds{std::llround(1e6 * milliseconds)};
    };
    const auto count = static_cast<double>(batches);
    penstock::transfer_stats stats;
    stats.age = time(all);
    stats.copies = stats.step.batches = stats.ahead.looks = batches;
    stats.ahead.sum = ahead;
    stats.wait_for_batch.time = time(for_batches);
    stats.wait_for_copy.time = time(for_copies);
    stats.wait_for_slot.time = time(for_leases);
    stats.step.busy = time(body * count);
    penstock::loader_stats loader;
    loader.age = time(all);
    loader.workers = workers;
    loader.step.batches = batches;
    double reading = read * static_cast<double>(workers) * count;
    if (slow_every != 0) reading += slow * count / static_cast<double>(slow_every);
    loader.read.busy = time(reading);
    loader.processor = time(load * computing * count);
    if (reports_queues)
      loader.run_queue = time((read * static_cast<double>(workers) - load) * count);
    loader.wait_for_demand.time = time(std::max(0.0, all * static_cast<double>(workers) - reading));
    loader.throttled.time = time(throttled * all);
    add_sample_times(loader);
    stats.loader = loader;
    return stats;
  }

  void add_sample_times(penstock::loader_stats& loader) const {
    const auto add = [&](double milliseconds, std::uint64_t times) {
      const auto ticks = static_cast<std::uint64_t>(1e6 * milliseconds);
      loader.read.times.counts[penstock::detail::log_buckets::of(ticks)] += times;
      loader.read.times.longest_ticks = std::max(loader.read.times.longest_ticks, ticks);
    };
    add(load / 64, 64 * 400);
    if (slow_every != 0) add(slow, std::max<std::size_t>(400 / slow_every, 64 * 8));
  }
};

}  // namespace test
