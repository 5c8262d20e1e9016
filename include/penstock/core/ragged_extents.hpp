// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <limits>

#include <penstock/core/extents.hpp>

#include <penstock/core/support/host_device_begin.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// In place of extents: each sample has as many values as it has, `field<"tokens", std::uint16_t,
/// ragged>`. A batch has the values of its samples one after the other, see `ragged_view`.
inline constexpr std::size_t ragged = dyn - 1;

/// The extents of a ragged field are bounds, which a dataset tells once: how long the longest
/// sample is, and how many values a batch has room for.
///
///     record_extents<R> extents() const { return {{.longest = 2048}, {}}; }
///     record_extents<R> extents() const { return {{.longest = 2048, .values_per_batch = 65536}, {}}; }
template <>
class extents<ragged> {
 public:
  /// How many dimensions there are.
  static constexpr std::size_t rank = 1;
  /// How many of them are known at run time only.
  static constexpr std::size_t dynamic_rank = 1;

  /// The values of the longest sample, at least 1. A sample that has more is an error.
  std::size_t longest = 0;
  /// The values that a batch has room for, at least `longest` and below 2^31; 0: as many as samples
  /// of the longest kind take. See `loader_options::values_per_batch`.
  std::size_t values_per_batch = 0;

  /// `longest` for dimension 0; 1 for `dimension >= rank`.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::size_t operator[](
      std::size_t dimension) const noexcept {
    return dimension == 0 ? longest : 1;
  }
  /// The most values of a sample.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::size_t size() const noexcept { return longest; }

  /// The most values of a batch of `samples` samples; the largest number where it has no room.
  [[nodiscard]] constexpr std::size_t size_of_batch(std::size_t samples) const noexcept {
    constexpr std::size_t most = (std::numeric_limits<std::size_t>::max)();
    const bool wraps = longest != 0 && samples > most / longest;
    const std::size_t all = wraps ? most : samples * longest;
    return values_per_batch == 0 || values_per_batch > all ? all : values_per_batch;
  }

  friend constexpr bool operator==(const extents&, const extents&) = default;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock

#include <penstock/core/support/host_device_end.hpp>
