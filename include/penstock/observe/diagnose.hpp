// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string>

#include <penstock/observe/detail/judging/judge.hpp>
#include <penstock/observe/detail/judging/loop_times.hpp>
#include <penstock/observe/verdict.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What limits a loop, from what its statistics were and what they are now: `loader::stats()` or
/// `transfer::stats()`, between which the loop ran. The verdict follows from which thread waits for
/// which, not from utilisation. `cores`: those that the process may use at once; 0: what affinity
/// and cgroup allow. Throws `stats_mismatch` where the two do not go together.
///
///     const auto before = feed.stats();
///     for (auto& batch : feed.epoch(0)) ...
///     std::cout << ps::diagnose(before, feed.stats()).str() << '\n';
template <class Stats>
  requires requires(const Stats& stats) { detail::times_of(stats); }
[[nodiscard]] verdict diagnose(const Stats& before, const Stats& after, std::size_t cores = 0) {
  detail::loop_times times = detail::times_of(after - before);
  times.floor = detail::floor_of(after);
  return detail::judged(times, cores);
}

/// The answers that lead to a verdict, in the order in which people ask: is it the loader, the
/// copy, the step, the processor; the device where it was timed, and after a replay how far the
/// floor is. A line each, the verdict last.
[[nodiscard]] inline std::string explain(const verdict& said) {
  using detail::percent;
  using detail::tenths;
  if (said.limit == loop_limit::nothing) return said.str() + '\n';
  std::string text = "loader:    waited for during " + percent(said.for_batches) +
                     " of the time, " + tenths(said.busy_workers) + " of " +
                     std::to_string(said.workers) + " workers busy\n";
  text += "copy:      waited for during " + percent(said.for_copies) + "; leases " +
          percent(said.for_leases) + '\n';
  text += "step:      " + percent(1 - said.waiting) + " in the loop's body\n";
  text += "processor: " + tenths(said.busy_cores) + " of " + std::to_string(said.cores) +
          " cores busy, throttled " + percent(said.throttled) + '\n';
  if (said.device_step > 0) {
    text += "device:    a copy " + tenths(1e6 * said.device_copy) + " us, a step " +
            tenths(1e6 * said.device_step) + " us, idle before it " +
            tenths(1e6 * said.device_idle) + " us\n";
  }
  if (said.floor > 0) {
    text += "floor:     " + tenths(1e6 * said.floor) + " us a batch, the loop is " +
            percent(said.above_floor) + " above it\n";
  }
  return text + said.str() + '\n';
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
