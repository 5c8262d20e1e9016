// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// How a histogram of times sorts numbers: eight buckets of equal width for each power of two, so
/// that a bucket's middle is at most a sixteenth off. Numbers below eight have buckets of their
/// own; those from 2^44 on, hours of a processor's ticks, share the last one.
struct log_buckets {
  /// How many there are.
  static constexpr std::size_t count = 336;

  /// The bucket of a number.
  [[nodiscard]] static constexpr std::size_t of(std::uint64_t value) noexcept {
    if (value < each) return static_cast<std::size_t>(value);
    const auto power = static_cast<unsigned>(std::bit_width(value)) - 1;
    if (power >= top) return count - 1;
    const std::uint64_t place = (value >> (power - bits)) & (each - 1);
    return static_cast<std::size_t>((power - bits + 1) * each + place);
  }
  /// The smallest number in a bucket.
  [[nodiscard]] static constexpr std::uint64_t first(std::size_t bucket) noexcept {
    if (bucket < each) return bucket;
    const std::size_t power = bucket / each - 1;
    return (each + bucket % each) << power;
  }
  /// The largest one; of the last bucket, that of a bucket of its width.
  [[nodiscard]] static constexpr std::uint64_t last(std::size_t bucket) noexcept {
    return first(bucket + 1) - 1;
  }

 private:
  static constexpr unsigned bits = 3;
  static constexpr std::uint64_t each = std::uint64_t{1} << bits;
  static constexpr unsigned top = 44;
  static_assert(count == (top - bits + 1) * each);
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
