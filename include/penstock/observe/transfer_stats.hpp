// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include <penstock/observe/loader_stats.hpp>
#include <penstock/observe/stage_stats.hpp>
#include <penstock/observe/stats_clock.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What a transfer has done, from its construction to the snapshot, or between two snapshots. Made
/// by `transfer::stats()`; see `loader_stats`, also for the texts.
///
/// The host does not wait for copies and transforms, so it does not know how long the device takes
/// for them: that is in `device`, where `transfer_options::time_device` asks for it.
struct transfer_stats {
  std::uint64_t transfer = 0;               ///< names the transfer; of a sum, all of them
  std::chrono::nanoseconds age{0};          ///< the time that this is about
  stats_clock clock = stats_clock::steady;  ///< what times are measured by
  bool clock_has_stepped = false;           ///< see `loader_stats`

  std::uint64_t depth = 0;  ///< device slots that are filled by turns, at the snapshot
  bool is_body = false;     ///< whether the loop's body is the step, and no stream was named

  std::uint64_t copies = 0;      ///< batches whose copy was queued
  std::uint64_t samples = 0;     ///< of those batches
  std::uint64_t bytes = 0;       ///< of those samples, as they travel
  std::uint64_t transforms = 0;  ///< batches whose transform on the device was queued

  wait_stats wait_for_batch;  ///< the source had none; a loader without workers reads then
  wait_stats wait_for_slot;   ///< every device slot was leased, see `transfer_options::when_held`
  wait_stats wait_for_copy;   ///< where the loop's body is the step: the copy was not complete
  depth_stats ahead;          ///< copies that were queued after the batch that was handed out
  step_stats step;            ///< what the consumer got, and the loop's body
  replay_stats replay;        ///< the step alone, on batches that are there
  device_stats device;        ///< what the device's clock says of some batches

  /// Of the source, where that is a loader.
  std::optional<loader_stats> loader;
};

/// What came between two snapshots of one transfer, or of the same sum of transfers. Throws
/// `stats_mismatch`.
[[nodiscard]] inline transfer_stats operator-(const transfer_stats& later,
                                              const transfer_stats& earlier) {
  using detail::difference;
  using detail::grown;
  detail::require_later("transfer_stats", later.transfer, earlier.transfer, later.age, earlier.age);
  transfer_stats between = later;
  between.age -= earlier.age;
  between.copies = grown(later.copies, earlier.copies);
  between.samples = grown(later.samples, earlier.samples);
  between.bytes = grown(later.bytes, earlier.bytes);
  between.transforms = grown(later.transforms, earlier.transforms);
  between.wait_for_batch = difference(later.wait_for_batch, earlier.wait_for_batch);
  between.wait_for_slot = difference(later.wait_for_slot, earlier.wait_for_slot);
  between.wait_for_copy = difference(later.wait_for_copy, earlier.wait_for_copy);
  between.ahead = difference(later.ahead, earlier.ahead);
  between.step = difference(later.step, earlier.step);
  between.replay = difference(later.replay, earlier.replay);
  between.device = difference(later.device, earlier.device);
  between.loader.reset();
  if (later.loader && earlier.loader) between.loader = *later.loader - *earlier.loader;
  return between;
}

/// What several transfers have done together, and their loaders where each has one. Throws
/// `stats_mismatch` where they were measured by different clocks.
[[nodiscard]] inline transfer_stats operator+(const transfer_stats& a, const transfer_stats& b) {
  using detail::sum;
  detail::require_one_clock("transfer_stats", a.clock == b.clock);
  transfer_stats both = a;
  both.transfer += b.transfer;
  both.age = (std::max)(a.age, b.age);
  both.clock_has_stepped = a.clock_has_stepped || b.clock_has_stepped;
  both.copies += b.copies;
  both.samples += b.samples;
  both.bytes += b.bytes;
  both.transforms += b.transforms;
  both.wait_for_batch = sum(a.wait_for_batch, b.wait_for_batch);
  both.wait_for_slot = sum(a.wait_for_slot, b.wait_for_slot);
  both.wait_for_copy = sum(a.wait_for_copy, b.wait_for_copy);
  both.ahead = sum(a.ahead, b.ahead);
  both.step = sum(a.step, b.step);
  both.replay = sum(a.replay, b.replay);
  both.device = sum(a.device, b.device);
  both.loader.reset();
  if (a.loader && b.loader) both.loader = *a.loader + *b.loader;
  return both;
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
