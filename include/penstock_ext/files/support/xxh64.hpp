// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/support/little_endian.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// XXH64 with the seed 0, for sums of files: it tells damage, and no intent. Source: Y. Collet,
/// "xxHash fast digest algorithm", the specification 0.1.1.
class xxh64 {
 public:
  /// Adds the bytes of `text` at the end.
  xxh64& add(std::string_view text) noexcept {
    const auto held = static_cast<std::size_t>(size_ % stripe);
    size_ += text.size();
    if (held != 0) {
      const std::size_t piece = (std::min)(text.size(), stripe - held);
      std::memcpy(block_.data() + held, text.data(), piece);
      text.remove_prefix(piece);
      if (held + piece < stripe) return *this;
      mix(block_.data());
    }
    for (; text.size() >= stripe; text.remove_prefix(stripe)) {
      std::memcpy(block_.data(), text.data(), stripe);
      mix(block_.data());
    }
    if (!text.empty()) std::memcpy(block_.data(), text.data(), text.size());
    return *this;
  }

  /// The sum of all that was added.
  [[nodiscard]] std::uint64_t sum() const noexcept {
    std::uint64_t hash = prime5;
    if (size_ >= stripe) {
      hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
             std::rotl(lanes_[3], 18);
      for (const std::uint64_t lane : lanes_) hash = (hash ^ step(0, lane)) * prime1 + prime4;
    }
    hash += size_;
    const std::byte* at = block_.data();
    auto left = static_cast<std::size_t>(size_ % stripe);
    for (; left >= 8; left -= 8, at += 8) {
      hash = std::rotl(hash ^ step(0, little_endian<8>(at)), 27) * prime1 + prime4;
    }
    if (left >= 4) {
      hash = std::rotl(hash ^ little_endian<4>(at) * prime1, 23) * prime2 + prime3;
      left -= 4;
      at += 4;
    }
    for (; left > 0; --left, ++at) {
      hash = std::rotl(hash ^ std::to_integer<std::uint64_t>(*at) * prime5, 11) * prime1;
    }
    hash = (hash ^ hash >> 33U) * prime2;
    hash = (hash ^ hash >> 29U) * prime3;
    return hash ^ hash >> 32U;
  }

 private:
  static constexpr std::size_t stripe = 32;
  static constexpr std::uint64_t prime1 = 0x9e3779b185ebca87U;
  static constexpr std::uint64_t prime2 = 0xc2b2ae3d27d4eb4fU;
  static constexpr std::uint64_t prime3 = 0x165667b19e3779f9U;
  static constexpr std::uint64_t prime4 = 0x85ebca77c2b2ae63U;
  static constexpr std::uint64_t prime5 = 0x27d4eb2f165667c5U;

  [[nodiscard]] static std::uint64_t step(std::uint64_t lane, std::uint64_t word) noexcept {
    return std::rotl(lane + word * prime2, 31) * prime1;
  }
  void mix(const std::byte* from) noexcept {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      lanes_[i] = step(lanes_[i], little_endian<8>(from + 8 * i));
    }
  }

  std::array<std::uint64_t, 4> lanes_{prime1 + prime2, prime2, 0, 0 - prime1};
  std::array<std::byte, stripe> block_{};  // its first size_ % stripe bytes are not mixed yet
  std::uint64_t size_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
