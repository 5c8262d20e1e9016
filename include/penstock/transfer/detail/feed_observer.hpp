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

/// All that is counted and timed of one transfer: its consumer's thread writes, any thread takes a
/// snapshot.
class feed_observer : public consumer_meters<tick_clock> {
 public:
  /// For samples of `sample_bytes` bytes as they travel, and `out_bytes` as the consumer gets them,
  /// ragged fields not counted.
  feed_observer(std::size_t sample_bytes, std::size_t out_bytes, bool transforms) noexcept
      : consumer_meters<tick_clock>(clock_),
        sample_bytes_(sample_bytes),
        out_bytes_(out_bytes),
        transforms_(transforms) {}
  feed_observer(feed_observer&&) = delete;

  /// The consumer's thread has queued the copy of a batch, whose ragged fields hold `value_bytes`.
  void note_copy(std::uint64_t samples, std::uint64_t value_bytes) noexcept {
    copies_.add(1);
    copied_.add(samples);
    if (value_bytes != 0) values_.add(value_bytes);
  }
  /// A batch stays in its host slot, for the device to work on it there.
  void note_zero_copy() noexcept { zero_copies_.add(1); }
  /// It gets a batch, with `ahead` copies queued after it.
  void note_handed_out(std::uint64_t samples, std::uint64_t ahead) noexcept {
    note_batch(samples);
    note_depth(ahead);
  }
  /// It has got so many batches anew in a replay, which took so long.
  void note_replay(std::uint64_t batches, std::chrono::nanoseconds time) noexcept {
    replayed_.add(batches);
    replay_time_.add(static_cast<std::uint64_t>(time.count()));
  }

  /// @name The consumer, for what follows from them while the loop runs: these wait for nothing
  /// @{
  [[nodiscard]] std::uint64_t ticks() const noexcept { return clock_.now(); }
  [[nodiscard]] double ten_milliseconds() const noexcept {
    return static_cast<double>(clock_.ten_milliseconds());
  }
  /// The ticks by `now` that it has waited for copies that were not complete.
  [[nodiscard]] std::uint64_t waited_for_copy(std::uint64_t now) const noexcept {
    return copy().read(now).ticks;
  }
  /// @}

  /// How long ticks are. From any thread.
  [[nodiscard]] tick_times times() const { return {clock_.look().nanoseconds_per_tick}; }

  /// The device's clock has told these times of a batch.
  void note_device(const device_stats& one) noexcept {
    timed_.add(one.batches);
    const auto add = [](tally& to, std::chrono::nanoseconds time) {
      to.add(static_cast<std::uint64_t>((std::max)(time, std::chrono::nanoseconds{0}).count()));
    };
    add(device_copy_, one.copy);
    add(device_transform_, one.transform);
    add(device_idle_, one.idle);
    add(device_step_, one.step);
  }

  /// Before there is a batch: whether the loop's body is the step.
  void set_body(bool is_body) noexcept { is_body_ = is_body; }

  /// What has happened so far, without the source. From any thread.
  [[nodiscard]] transfer_stats snapshot() const {
    const auto at = clock_.look();
    const tick_times times{at.nanoseconds_per_tick};
    transfer_stats all;
    all.transfer = clock_.name();
    all.age = at.since;
    all.clock = clock_.source();
    all.clock_has_stepped = at.has_stepped;
    all.is_body = is_body_;
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
                grown(times.of(range().read(at.ticks).ticks), waits)};
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
  bool is_body_ = false;
  mutable tick_clock clock_;
  tally copies_;
  tally copied_;
  tally zero_copies_;
  tally values_;
  tally replayed_;
  tally replay_time_;  // nanoseconds, as those of the device
  tally timed_;
  tally device_copy_;
  tally device_transform_;
  tally device_idle_;
  tally device_step_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
