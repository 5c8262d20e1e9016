// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <penstock/core/version.hpp>
#include <penstock_ext/image/detail/resample/resample_table.hpp>

#if defined(__aarch64__)
#include <arm_neon.h>

// Both passes on the 128 bits that every 64-bit Arm has: 32-bit products, as in the plain loops.

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Four bytes as four sums have them.
inline int32x4_t four_bytes_neon(const std::uint8_t* from) noexcept {
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, from, 4);
  const uint16x8_t words = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes)));
  return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(words)));
}

/// Four sums as bytes.
inline std::uint32_t clipped_neon(int32x4_t sums) noexcept {
  const int16x4_t words = vqmovn_s32(vshrq_n_s32(sums, coefficient_bits));
  return vget_lane_u32(vreinterpret_u32_u8(vqmovun_s16(vcombine_s16(words, words))), 0);
}

/// Pixel by pixel of the table, for four rows at a time: `in` and `out` are where they begin. Reads
/// a byte after a row's last pixel; writes nothing after it.
template <std::size_t Channels>
inline void four_rows_neon(const resample_table& table, const std::uint8_t* const (&in)[4],
                           std::uint8_t* const (&out)[4]) {
  const std::size_t count = table.size();
  for (std::size_t i = 0; i < count; ++i) {
    const resample_window window = table.window(i);
    const std::int32_t* const k = table.coefficients(i);
    std::size_t at = window.start * Channels;
    int32x4_t sums[4];
    for (int32x4_t& sum : sums) sum = vdupq_n_s32(coefficient_half);
    for (std::size_t tap = 0; tap < window.taps; ++tap, at += Channels) {
      for (std::size_t row = 0; row < 4; ++row) {
        sums[row] = vmlaq_n_s32(sums[row], four_bytes_neon(in[row] + at), k[tap]);
      }
    }
    // Four bytes even for three channels: the fourth is overwritten by the next pixel.
    for (std::size_t row = 0; row < 4; ++row) {
      const std::uint32_t pixel = clipped_neon(sums[row]);
      if (i + 1 < count) {
        std::memcpy(out[row] + i * Channels, &pixel, 4);
      } else {
        std::memcpy(out[row] + i * Channels, &pixel, Channels);
      }
    }
  }
}

/// The like for one channel.
template <>
inline void four_rows_neon<1>(const resample_table& table, const std::uint8_t* const (&in)[4],
                              std::uint8_t* const (&out)[4]) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    const resample_window window = table.window(i);
    const std::int32_t* const k = table.coefficients(i);
    int32x4_t sums = vdupq_n_s32(coefficient_half);
    for (std::size_t tap = 0; tap < window.taps; ++tap) {
      const std::size_t at = window.start + tap;
      const std::uint8_t bytes[4] = {in[0][at], in[1][at], in[2][at], in[3][at]};
      sums = vmlaq_n_s32(sums, four_bytes_neon(bytes), k[tap]);
    }
    const std::uint32_t bytes = clipped_neon(sums);
    for (int row = 0; row < 4; ++row) out[row][i] = static_cast<std::uint8_t>(bytes >> 8 * row);
  }
}

/// 16 bytes of a row from as many of each of the `taps` rows from `in` on.
inline void column_block_neon(const std::int32_t* k, std::size_t taps, const std::uint8_t* in,
                              std::size_t pitch, std::uint8_t* out) {
  int32x4_t sums[4];
  for (int32x4_t& sum : sums) sum = vdupq_n_s32(coefficient_half);
  for (std::size_t tap = 0; tap < taps; ++tap) {
    const uint8x16_t bytes = vld1q_u8(in + tap * pitch);
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes));
    const uint16x8_t high = vmovl_u8(vget_high_u8(bytes));
    const uint16x4_t words[4] = {vget_low_u16(low), vget_high_u16(low), vget_low_u16(high),
                                 vget_high_u16(high)};
    for (int i = 0; i < 4; ++i) {
      sums[i] = vmlaq_n_s32(sums[i], vreinterpretq_s32_u32(vmovl_u16(words[i])), k[tap]);
    }
  }
  int16x4_t words[4];
  for (int i = 0; i < 4; ++i) words[i] = vqmovn_s32(vshrq_n_s32(sums[i], coefficient_bits));
  vst1q_u8(out, vcombine_u8(vqmovun_s16(vcombine_s16(words[0], words[1])),
                            vqmovun_s16(vcombine_s16(words[2], words[3]))));
}

/// `size` bytes of a row, at least 16: the last 16 may be some that were written before.
inline void columns_neon(const std::int32_t* k, std::size_t taps, const std::uint8_t* in,
                         std::size_t pitch, std::uint8_t* out, std::size_t size) {
  for (std::size_t at = 0; at + 16 <= size; at += 16) {
    column_block_neon(k, taps, in + at, pitch, out + at);
  }
  if (size % 16 != 0) column_block_neon(k, taps, in + size - 16, pitch, out + size - 16);
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
#endif
