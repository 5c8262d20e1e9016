// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/image/detail/resample/resample_avx2.hpp>
#include <penstock_ext/image/detail/resample/resample_neon.hpp>
#include <penstock_ext/image/detail/resample/resample_table.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// How the passes are computed. All give the same bits.
enum class resample_path { plain, avx2, neon };

/// The fastest that this machine has.
inline resample_path fastest_resample_path() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") ? resample_path::avx2 : resample_path::plain;
#elif defined(__aarch64__)
  return resample_path::neon;
#else
  return resample_path::plain;
#endif
}

/// The whole part of a sum, as a byte.
inline std::uint8_t clipped(std::int32_t sum) noexcept {
  return static_cast<std::uint8_t>(
      (std::min)((std::max)(sum >> coefficient_bits, std::int32_t{0}), std::int32_t{255}));
}

/// One row by plain loops.
template <std::size_t Channels>
void row_plain(const resample_table& table, const std::uint8_t* in, std::uint8_t* out) {
  for (std::size_t i = 0; i < table.size(); ++i, out += Channels) {
    const resample_window window = table.window(i);
    const std::int32_t* const k = table.coefficients(i);
    const std::uint8_t* at = in + window.start * Channels;
    std::int32_t sums[Channels];
    for (std::int32_t& sum : sums) sum = coefficient_half;
    for (std::size_t tap = 0; tap < window.taps; ++tap, at += Channels) {
      for (std::size_t c = 0; c < Channels; ++c) sums[c] += at[c] * k[tap];
    }
    for (std::size_t c = 0; c < Channels; ++c) out[c] = clipped(sums[c]);
  }
}

/// `size` bytes of a row from `taps` rows by plain loops; `coefficient(tap)` says what one weighs.
template <class Coefficient>
void columns_plain(Coefficient coefficient, std::size_t taps, const std::uint8_t* in,
                   std::size_t pitch, std::uint8_t* out, std::size_t size) {
  constexpr std::size_t block = 64;
  std::int32_t sums[block];
  for (std::size_t at = 0; at < size; at += block) {
    const std::size_t width = (std::min)(block, size - at);
    std::fill(sums, sums + width, coefficient_half);
    for (std::size_t tap = 0; tap < taps; ++tap) {
      const std::uint8_t* const row = in + tap * pitch + at;
      const std::int32_t k = coefficient(tap);
      for (std::size_t x = 0; x < width; ++x) sums[x] += row[x] * k;
    }
    for (std::size_t x = 0; x < width; ++x) out[at + x] = clipped(sums[x]);
  }
}

/// Makes each row of `out` from the columns of the same row of `in`, as `table` says. `end` is
/// where the memory that may be read ends; rows that are near it are copied to `spare` before.
class horizontal_pass {
 public:
  /// The pass from `in` to `out`, which has as many rows and table.size() columns.
  void operator()(resample_path path, const resample_table& table, const const_pixels& in,
                  const std::uint8_t* end, const pixels& out) {
    if (in.channels == 1) return run<1>(path, table, in, end, out);
    if (in.channels == 3) return run<3>(path, table, in, end, out);
    run<4>(path, table, in, end, out);
  }

 private:
  // What a path may read after the last pixel of a window.
  static constexpr std::size_t beyond = 16;

  template <std::size_t Channels>
  void run(resample_path path, const resample_table& table, const const_pixels& in,
           const std::uint8_t* end, const pixels& out) {
    const std::size_t rows = in.size.height;
    if (path == resample_path::plain) {
      for (std::size_t y = 0; y < rows; ++y) row_plain<Channels>(table, in.row(y), out.row(y));
      return;
    }
    const std::size_t used = table.end() * Channels;
    if (spare_.size() < 4 * (used + beyond)) spare_.resize(4 * (used + beyond));
    for (std::size_t y = 0; y < rows; y += 4) {
      const std::uint8_t* from[4];
      std::uint8_t* to[4];
      for (std::size_t i = 0; i < 4; ++i) {
        const std::size_t row = (std::min)(y + i, rows - 1);  // the last one more than once
        from[i] = in.row(row);
        to[i] = out.row(row);
        if (static_cast<std::size_t>(end - from[i]) < used + beyond) {
          std::uint8_t* const copy = spare_.data() + i * (used + beyond);
          std::memcpy(copy, from[i], used);
          from[i] = copy;
        }
      }
#if defined(__x86_64__)
      four_rows_avx2<Channels>(table, from, to);
#elif defined(__aarch64__)
      four_rows_neon<Channels>(table, from, to);
#endif
    }
  }

  std::vector<std::uint8_t> spare_;
};

/// Makes each row of `out` from the rows of `in` that `table` says, the first of which is row
/// `above` of what the table counts.
inline void vertical_pass(resample_path path, const resample_table& table, const const_pixels& in,
                          std::size_t above, const pixels& out) {
  const std::size_t bytes = out.size.width * out.channels;
  for (std::size_t y = 0; y < out.size.height; ++y) {
    const resample_window window = table.window(y);
    const std::int32_t* const k = table.coefficients(y);
    const std::uint8_t* const from = in.row(window.start - above);
    if (path == resample_path::plain) {
      columns_plain([k](std::size_t tap) { return k[tap]; }, window.taps, from, in.pitch,
                    out.row(y), bytes);
      continue;
    }
#if defined(__x86_64__)
    if (bytes >= 32) {
      columns_avx2(k, window.taps, from, in.pitch, out.row(y), bytes);
    } else {
      columns_plain([k](std::size_t tap) { return whole_coefficient(k, tap); }, window.taps, from,
                    in.pitch, out.row(y), bytes);
    }
#elif defined(__aarch64__)
    if (bytes >= 16) {
      columns_neon(k, window.taps, from, in.pitch, out.row(y), bytes);
    } else {
      columns_plain([k](std::size_t tap) { return k[tap]; }, window.taps, from, in.pitch,
                    out.row(y), bytes);
    }
#endif
  }
}

/// Has a new table's coefficients lie as `path` reads them.
inline void arrange_coefficients(resample_path path, resample_table& table) {
#if defined(__x86_64__)
  if (path == resample_path::avx2) split_coefficients_avx2(table);
#else
  static_cast<void>(path);
  static_cast<void>(table);
#endif
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
