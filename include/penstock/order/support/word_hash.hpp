// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A hash over words of 64 bits, in their order: FNV-1a by words. Every machine makes the same
/// of them, since states hold it.
class word_hash {
 public:
  /// A hash of nothing, or one that goes on where another has ended.
  constexpr explicit word_hash(std::uint64_t begun = 0xcbf29ce484222325) noexcept : hash_(begun) {}

  constexpr void add(std::uint64_t word) noexcept {
    hash_ = (hash_ ^ word) * 0x100000001b3;
    hash_ ^= hash_ >> 32;
  }
  /// The hash of all words so far.
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return hash_; }

 private:
  std::uint64_t hash_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
