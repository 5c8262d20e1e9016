// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <penstock/load/support/loader_observer.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/support/clocks.hpp>
#include <penstock/observe/support/meters.hpp>
#include <penstock/threads/support/shared_value.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The counts and times of one transfer. The consumer thread writes them. Any thread may take a
/// snapshot.
class feed_observer : public consumer_meters {
 public:
  /// Creates an observer. A sample has `sample_bytes` bytes when it is copied, and `out_bytes`
  /// bytes when the consumer receives it, excluding ragged fields.
  feed_observer(std::size_t sample_bytes, std::size_t out_bytes, bool transforms) noexcept
      : sample_bytes_(sample_bytes), out_bytes_(out_bytes), transforms_(transforms) {}
  feed_observer(feed_observer&&) = delete;

  /// Counts a batch whose copy the consumer thread has queued. `value_bytes` is the size of its
  /// ragged values in bytes.
  void record_copy(std::uint64_t samples, std::uint64_t value_bytes) noexcept {
    copies_.add(1);
    copied_.add(samples);
    if (value_bytes != 0) values_.add(value_bytes);
  }
  /// Counts a batch that is not copied, because the device reads it directly from its host slot.
  void record_zero_copy() noexcept { zero_copies_.add(1); }
  /// Counts a batch that the consumer receives, with `ahead` copies queued after it.
  void record_handed_out(std::uint64_t samples, std::uint64_t ahead) noexcept {
    on_batch(samples);
    record_depth(ahead);
  }
  /// Counts `batches` batches of a replay, which took `time`.
  void record_replay(std::uint64_t batches, std::chrono::nanoseconds time) noexcept {
    replayed_.add(batches);
    replay_time_.add(static_cast<std::uint64_t>(time.count()));
  }

  /// Returns the ticks that the consumer has waited for incomplete copies, up to `now`. Does not
  /// wait.
  [[nodiscard]] std::uint64_t waited_for_copy(std::uint64_t now) const noexcept {
    return copy().read(now).ticks;
  }

  /// Adds the times of a batch that the device has measured.
  void record_device(const device_stats& one) noexcept {
    timed_.add(one.batches);
    const auto add = [](tally& to, std::chrono::nanoseconds time) {
      to.add(static_cast<std::uint64_t>((std::max)(time, std::chrono::nanoseconds{0}).count()));
    };
    add(device_copy_, one.copy);
    add(device_transform_, one.transform);
    add(device_idle_, one.idle);
    add(device_step_, one.step);
  }

  /// Specifies if the loop body is the step. Must be called before the first batch.
  void set_runs_inline(bool runs_inline) noexcept { runs_inline_ = runs_inline; }

  /// Returns the statistics so far, without the statistics of the source. Any thread may call this.
  [[nodiscard]] transfer_stats snapshot() const {
    const auto at = clock().look();
    const tick_times times{at.nanoseconds_per_tick};
    transfer_stats all;
    all.transfer = clock().name();
    all.age = at.since;
    all.clock = clock().source();
    all.clock_has_stepped = at.has_stepped;
    all.runs_inline = runs_inline_;
    all.copies = copies_.value();
    all.samples = copied_.value();
    all.bytes = all.samples * sample_bytes_ + values_.value();
    all.zero_copies = zero_copies_.value();
    all.transforms = transforms_ ? all.copies + all.zero_copies : 0;
    all.wait_for_batch = times.of(batch().read(at.ticks));
    all.wait_for_slot = times.of(lease().read(at.ticks));
    all.wait_for_copy = times.of(copy().read(at.ticks));
    all.ahead = {looks(), depths()};
    const auto waits = all.wait_for_batch.time + all.wait_for_slot.time + all.wait_for_copy.time;
    const std::uint64_t got = samples();
    all.step = {batches(), got, got * out_bytes_,
                grown(times.of(range().read(at.ticks).ticks), waits), run_queue()};
    const auto time = [](const tally& of) {
      return std::chrono::nanoseconds{static_cast<std::int64_t>(of.value())};
    };
    all.replay = {replayed_.value(), time(replay_time_)};
    all.device = {timed_.value(), time(device_copy_), time(device_transform_), time(device_idle_),
                  time(device_step_)};
    return all;
  }

 private:
  std::size_t sample_bytes_;
  std::size_t out_bytes_;
  bool transforms_;
  bool runs_inline_ = false;
  tally copies_;
  tally copied_;
  tally zero_copies_;
  tally values_;
  tally replayed_;
  tally replay_time_;  // in nanoseconds, like the tallies of the device
  tally timed_;
  tally device_copy_;
  tally device_transform_;
  tally device_idle_;
  tally device_step_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
