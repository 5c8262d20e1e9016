// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <penstock/core/version.hpp>
#include <penstock/load/support/loader_observer.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/transfer/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Chooses the number of device slots that a feed uses while its loop runs. Called by the consumer
/// thread once for each batch. Times are in ticks of the feed statistics.
class feed_tuner {
 public:
  feed_tuner() = default;
  feed_tuner(feed_tuner&&) = delete;
  virtual ~feed_tuner() = default;

  /// Records the start of a range.
  virtual void begin(std::uint64_t now) noexcept = 0;
  /// Records the end of the range.
  virtual void end(std::uint64_t now) noexcept = 0;
  /// Records that the consumer has received batch `number` after a total wait of `waited` ticks,
  /// and that `count` slots are open. Returns the number of slots that should be open. If this
  /// differs from `count`, the feed calls `record_opened` next.
  [[nodiscard]] virtual std::size_t take(std::uint64_t now, std::uint64_t waited, std::size_t count,
                                         std::uint64_t number) noexcept = 0;
  /// Records that `count` slots are now open, which is less than `take` returned if the device is
  /// out of memory.
  virtual void record_opened(std::uint64_t now, std::size_t count) noexcept = 0;
  /// Returns the history of the depths. Any thread may call this.
  [[nodiscard]] virtual tuning_history history(const tick_times& times) const = 0;
};

/// The code of `transfer_options::depth = automatic` (see `loop_tuning`).
struct depth_tuning {
  /// Creates the tuner of a feed. `flow` identifies the feed in a trace.
  std::unique_ptr<feed_tuner> (*make)(const transfer_options& options, std::uint64_t flow,
                                      double ten_milliseconds);
  /// Returns the functions. Defined in `depth_tuner.hpp`.
  template <class>
  [[nodiscard]] static constexpr const depth_tuning* code() noexcept;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
