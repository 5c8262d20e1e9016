// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock_ext/image/pixels.hpp>

namespace test {

/// An image that owns its memory. The memory ends directly after the last row.
struct owned_image {
  owned_image(penstock::image_size of, std::size_t values, std::size_t gap = 0)
      : size(of),
        channels(values),
        pitch(of.width * values + gap),
        bytes(pitch * of.height - gap) {}

  penstock::pixels view() { return {bytes.data(), size, channels, pitch}; }
  penstock::const_pixels view() const { return {bytes.data(), size, channels, pitch}; }
  std::uint8_t& at(std::size_t x, std::size_t y, std::size_t channel) {
    return bytes[y * pitch + x * channels + channel];
  }

  penstock::image_size size;
  std::size_t channels;
  std::size_t pitch;
  std::vector<std::uint8_t> bytes;
};

/// Returns an image of simple random bytes: the high byte of x -> 1664525 x + 1013904223.
inline owned_image random_image(penstock::image_size size, std::size_t channels,
                                std::uint32_t state = 1) {
  owned_image made{size, channels};
  for (std::uint8_t& byte : made.bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::uint8_t>(state >> 24);
  }
  return made;
}

/// Returns the FNV-1a hash of the bytes for golden values.
inline std::uint64_t sum_of(const std::vector<std::uint8_t>& bytes) {
  std::uint64_t sum = 0xcbf29ce484222325ull;
  for (const std::uint8_t byte : bytes) sum = (sum ^ byte) * 0x100000001b3ull;
  return sum;
}

}  // namespace test
