// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What the SHA family has in common: bytes are taken in blocks of 64, and the last one is padded
/// with their number of bits. `Rounds` has the initial state, an array of words, and mixes the words
/// of a block into a state. Source: FIPS 180-4.
template <class Rounds>
class sha_blocks {
  using state_type = std::remove_const_t<decltype(Rounds::initial)>;

 public:
  /// The sum, as bytes.
  using sum_type = std::array<std::uint8_t, sizeof(state_type)>;

  /// Adds the bytes of `text` at the end.
  sha_blocks& add(std::string_view text) noexcept { return add(std::as_bytes(std::span{text})); }

  /// Adds `bytes` at the end.
  sha_blocks& add(std::span<const std::byte> bytes) noexcept {
    while (!bytes.empty()) {
      const auto filled = static_cast<std::size_t>(size_ % block_.size());
      const std::size_t count = (std::min)(bytes.size(), block_.size() - filled);
      std::memcpy(block_.data() + filled, bytes.data(), count);
      bytes = bytes.subspan(count);
      size_ += count;
      if (size_ % block_.size() == 0) mix();
    }
    return *this;
  }

  /// The sum of all that was added; nothing is to be added after it.
  [[nodiscard]] sum_type sum() noexcept {
    // A bit of 1, bits of 0 up to the block's last eight bytes, and there the number of bits.
    std::array<std::byte, 72> padding{std::byte{0x80}};
    const auto filled = static_cast<std::size_t>(size_ % block_.size());
    const std::size_t zeros_end = filled < 56 ? 56 - filled : 120 - filled;
    const std::uint64_t bits = size_ * 8;
    for (std::size_t i = 0; i < 8; ++i) {
      padding[zeros_end + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
    }
    add(std::span{padding}.first(zeros_end + 8));
    sum_type bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
    }
    return bytes;
  }

 private:
  void mix() noexcept {
    std::array<std::uint32_t, 16> words{};
    for (std::size_t i = 0; i < block_.size(); ++i) words[i / 4] = words[i / 4] << 8U | block_[i];
    Rounds::mix(state_, words);
  }

  state_type state_ = Rounds::initial;
  std::array<std::uint8_t, 64> block_{};
  std::uint64_t size_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
