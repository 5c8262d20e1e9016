// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <initializer_list>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A hash of a sequence of 64-bit words (FNV-1a by words). Equal on every machine, because saved
/// states contain it.
class word_hash {
 public:
  /// Starts the hash of an empty sequence, or continues the hash `begun`.
  constexpr explicit word_hash(std::uint64_t begun = 0xcbf29ce484222325) noexcept : hash_(begun) {}

  constexpr void add(std::uint64_t word) noexcept {
    hash_ = (hash_ ^ word) * 0x100000001b3;
    hash_ ^= hash_ >> 32;
  }
  /// Adds the words of a list or container, in order.
  template <class Words = std::initializer_list<std::uint64_t>>
  constexpr word_hash& add_all(const Words& words) noexcept {
    for (const std::uint64_t word : words) add(word);
    return *this;
  }
  /// Returns the hash of all words so far.
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return hash_; }

 private:
  std::uint64_t hash_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
