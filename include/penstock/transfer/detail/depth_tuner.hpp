// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <penstock/load/support/hill_climber.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/observe/support/trace_writer.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/transfer/detail/feed_observer.hpp>
#include <penstock/transfer/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Chooses how many device slots a feed fills by turns while its loop runs, where `depth` is
/// `automatic`: tells a hill_climber of each batch, whose prefetch are the copies that run ahead.
/// For the consumer's thread. Allocates nothing but new slots, and waits for nothing else.
template <class Observer>
class basic_depth_tuner {
 public:
  /// For options with `depth = automatic`, and what counts the feed, and records it where the
  /// options say so: that must outlive it.
  basic_depth_tuner(const transfer_options& options, const Observer& seen)
      : range_(checked_depth(options)),
        seen_(&seen),
        climber_({1, range_.first - 1}, {1, 1}, {1, range_.most - 1}, seen.ten_milliseconds() / 10,
                 true),
        used_(range_.first),
        log_({0, 0, used_}) {
    if (options.observe.trace == nullptr) return;
    trace_ = options.observe.trace->add_track("penstock depth", seen.trace()->flow(),
                                              options.observe.trace->capacity());
  }

  /// A range begins.
  void begin() noexcept {
    climber_.pause();
    since_ = seen_->ticks();
  }
  /// The range is over.
  void end() noexcept { record(seen_->ticks()); }
  /// The consumer has got its batch `number`, of the slots of `ring`. Where its stream is the
  /// calling thread (`is_body`) it is known how long it waited for copies. A stream of its own
  /// waits unseen: there the time of a batch alone decides.
  template <class Ring>
  void take(Ring& ring, std::uint64_t number, bool is_body) noexcept {
    const std::uint64_t now = seen_->ticks();
    if (ring.count() > used_) {  // leases have made it more, and keep them
      held_ += ring.count() - used_;
      range_.most = (std::max)(range_.most, ring.count());  // there was room after all
      change(ring, ring.count(), now);
    }
    const std::uint64_t waited = is_body ? seen_->waited_for_copy(now) : now;
    const auto said = climber_.note(now, waited, [] { return std::optional{std::uint64_t{0}}; });
    if (said) log_.add(number, as_depth(*said), {0, 0, slots_of(climber_.kept())});
    const std::size_t wanted = slots_of(climber_.now());
    if (wanted != used_) change(ring, wanted, now);
  }

  /// What it has come to. From any thread.
  [[nodiscard]] tuning_history history() const { return log_.snapshot(seen_->times()); }

 private:
  [[nodiscard]] std::size_t slots_of(const tuning_setting& setting) const noexcept {
    return (std::min)(setting.prefetch + 1 + held_, range_.most);
  }
  [[nodiscard]] trial_result as_depth(const trial_result& said) const noexcept {
    return {{0, 0, slots_of(said.from)},
            {0, 0, slots_of(said.to)},
            said.why,
            said.ticks_from,
            said.ticks_to};
  }
  template <class Ring>
  void change(Ring& ring, std::size_t count, std::uint64_t now) noexcept {
    try {
      ring.open(count);
    } catch (...) {  // NOLINT: tuning ends no loop; the device tells it again where one may end
    }
    if (ring.count() < count) range_.most = ring.count();  // the device has room for no more
    record(now);
    used_ = ring.count();
  }
  /// So many slots were in use until `now`.
  void record(std::uint64_t now) noexcept {
    if (trace_ != nullptr) trace_->add_setting(trace_stage::depth, since_, now, 0, used_);
    since_ = now;
  }

  depth_range range_;
  const Observer* seen_;
  hill_climber climber_;
  std::size_t used_;
  std::size_t held_ = 0;                 // slots more, for leases that are kept
  std::uint64_t since_ = 0;              // when the depth, or the range, began
  std::shared_ptr<trace_writer> trace_;  // null: not traced
  tuning_log log_;
};

/// That of the library's transfers.
using depth_tuner = basic_depth_tuner<feed_observer>;

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
