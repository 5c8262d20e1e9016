// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <penstock/load/support/hill_climber.hpp>
#include <penstock/load/support/loader_observer.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/observe/trace_target.hpp>
#include <penstock/transfer/detail/feed_tuner.hpp>
#include <penstock/transfer/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Reports each batch to a `hill_climber`, whose prefetch is the number of copies that run ahead.
/// Allocates only at construction, and does not wait.
template <class>
class basic_depth_tuner final : public feed_tuner {
 public:
  /// Creates a tuner for options with `depth = automatic`. `flow` identifies the feed in a trace.
  basic_depth_tuner(const transfer_options& options, std::uint64_t flow, double ten_milliseconds)
      : range_(checked_depth(options)),
        climber_({1, range_.first - 1}, {1, 1}, {1, range_.max - 1}, ten_milliseconds / 10, true),
        used_(range_.first),
        trace_(options.instrumentation.trace.add_track(flow, "penstock depth")),
        log_({0, 0, used_}) {}

  /// Creates a tuner. Used by `depth_tuning::make`.
  [[nodiscard]] static std::unique_ptr<feed_tuner> make(const transfer_options& options,
                                                        std::uint64_t flow,
                                                        double ten_milliseconds) {
    return std::make_unique<basic_depth_tuner>(options, flow, ten_milliseconds);
  }

  void begin(std::uint64_t now) noexcept override {
    climber_.pause();
    since_ = now;
  }
  void end(std::uint64_t now) noexcept override { record(now); }
  [[nodiscard]] std::size_t take(std::uint64_t now, std::uint64_t waited, std::size_t count,
                                 std::uint64_t number) noexcept override {
    if (count > used_) {  // The feed has opened more slots because of leases.
      held_ += count - used_;
      range_.max = (std::max)(range_.max, count);  // Therefore the device has memory for them.
      wanted_ = count;
      record_opened(now, count);
    }
    const auto result =
        climber_.record(now, waited, [] { return std::optional{std::uint64_t{0}}; });
    if (result) log_.add(number, as_depth(*result), {0, 0, slots_of(climber_.kept())});
    return wanted_ = slots_of(climber_.now());
  }
  void record_opened(std::uint64_t now, std::size_t count) noexcept override {
    if (count < wanted_) range_.max = count;  // The device is out of memory.
    record(now);
    used_ = count;
  }
  [[nodiscard]] tuning_history history(const tick_times& times) const override {
    return log_.snapshot(times);
  }

 private:
  [[nodiscard]] std::size_t slots_of(const tuning_setting& setting) const noexcept {
    return (std::min)(setting.prefetch + 1 + held_, range_.max);
  }
  [[nodiscard]] trial_result as_depth(const trial_result& result) const noexcept {
    return {{0, 0, slots_of(result.from)},
            {0, 0, slots_of(result.to)},
            result.why,
            result.ticks_from,
            result.ticks_to};
  }
  /// Records in the trace that `used_` slots were in use until `now`.
  void record(std::uint64_t now) noexcept {
    if (trace_ != nullptr) trace_->add_setting(trace_stage::depth, since_, now, 0, used_);
    since_ = now;
  }

  depth_range range_;
  hill_climber climber_;
  std::size_t used_;
  std::size_t wanted_ = 0;             // last result of `take`
  std::size_t held_ = 0;               // number of additional slots for leases that were moved out
  std::uint64_t since_ = 0;            // start of the current depth or range
  std::shared_ptr<trace_sink> trace_;  // null without a trace
  tuning_log log_;
};

/// The depth tuner of a feed.
using depth_tuner = basic_depth_tuner<void>;

/// The function table of `basic_depth_tuner<Named>`.
template <class Named>
inline constexpr depth_tuning depth_tuning_of{&basic_depth_tuner<Named>::make};

template <class Named>
constexpr const depth_tuning* depth_tuning::code() noexcept {
  return &depth_tuning_of<Named>;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
