// SPDX-License-Identifier: BSL-1.0
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/image/detail/exact_math.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Number of fractional bits of a coefficient. A 32-bit sum must also hold the 8 bits of the
/// result, the sign, and one more bit for partial sums that exceed 1 before negative weights reduce
/// them.
inline constexpr int coefficient_bits = 22;
/// Initial value of every weighted sum, with which the final truncation rounds to nearest.
inline constexpr std::int32_t coefficient_half = 1 << (coefficient_bits - 1);

/// A resize along one axis, from `length` pixels to `scaled` pixels. Only the `count` result pixels
/// starting at `first` are computed. If `reversed` is true, they are written in reverse order.
struct resample_span {
  std::size_t length = 0;
  std::size_t scaled = 0;
  std::size_t first = 0;
  std::size_t count = 0;
  bool reversed = false;

  friend bool operator==(const resample_span&, const resample_span&) = default;
};

/// The source pixels of one result pixel: `taps` pixels starting at `start`.
struct resample_window {
  std::uint32_t start = 0;
  std::uint32_t taps = 0;
};

/// The windows and coefficients of an axis, reused until the span changes. `coefficients(i)`
/// returns the 4 * groups() coefficients of result pixel `i`, with zeros after the last tap.
class resample_table {
 public:
  /// Returns true if the table was computed for `span`.
  [[nodiscard]] bool is_for(const resample_span& span) const noexcept { return span == span_; }

  /// Computes the table of `span` from the filter `weight`.
  template <class Weight>
  void make(const resample_span& span, Weight weight) {
    const double scale =
        static_cast<double>(static_cast<float>(span.length)) / static_cast<double>(span.scaled);
    const double filter_scale = scale < 1 ? 1 : scale;
    const double support = Weight::support * filter_scale;
    const double inverse = 1 / filter_scale;
    const auto max = static_cast<std::size_t>(std::ceil(support)) * 2 + 1;
    weights_.resize((std::max)(weights_.size(), max));
    reserve(span, (max + 3) / 4);  // no operation below throws
    const auto length = static_cast<std::int64_t>(span.length);
    for (std::size_t i = 0; i < span.count; ++i) {
      const std::size_t at = span.first + (span.reversed ? span.count - 1 - i : i);
      const double centre = rounded((static_cast<double>(at) + 0.5) * scale);
      const double first = centre - support + 0.5;
      const double last = centre + support + 0.5;
      const auto from = (std::max)(static_cast<std::int64_t>(first), std::int64_t{0});
      const auto to = (std::min)(static_cast<std::int64_t>(last), length);
      const auto taps = static_cast<std::size_t>(to - from);
      double sum = 0;
      for (std::size_t tap = 0; tap < taps; ++tap) {
        const auto x = static_cast<double>(from + static_cast<std::int64_t>(tap));
        weights_[tap] = weight(rounded((x - centre + 0.5) * inverse));
        sum += weights_[tap];
      }
      std::int32_t* const out = coefficients(i);
      for (std::size_t tap = 0; tap < taps; ++tap) out[tap] = fixed(weights_[tap], sum);
      std::fill(out + taps, out + 4 * groups_, 0);
      windows_[i] = {static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(taps)};
    }
  }

  /// Computes a table that copies the pixels of `span`, for images that are flipped but not
  /// resized.
  void make_identity(const resample_span& span) {
    reserve(span, 1);
    for (std::size_t i = 0; i < span.count; ++i) {
      const std::size_t at = span.first + (span.reversed ? span.count - 1 - i : i);
      std::fill_n(coefficients(i), 4, 0);
      *coefficients(i) = 1 << coefficient_bits;
      windows_[i] = {static_cast<std::uint32_t>(at), 1};
    }
  }

  /// Returns the number of result pixels.
  [[nodiscard]] std::size_t size() const noexcept { return span_.count; }
  /// Returns the window of pixel `i`.
  [[nodiscard]] resample_window window(std::size_t i) const noexcept { return windows_[i]; }
  /// Returns the number of coefficient groups for each pixel. A group has four coefficients.
  [[nodiscard]] std::size_t groups() const noexcept { return groups_; }
  /// Returns the coefficients of pixel `i`.
  [[nodiscard]] const std::int32_t* coefficients(std::size_t i) const noexcept {
    return coefficients_.data() + i * 4 * groups_;
  }
  /// Returns the coefficients of pixel `i`.
  [[nodiscard]] std::int32_t* coefficients(std::size_t i) noexcept {
    return coefficients_.data() + i * 4 * groups_;
  }
  /// Returns the first source pixel of all windows. Window ends are monotonic, so the first or the
  /// last window contains it.
  [[nodiscard]] std::size_t begin() const noexcept {
    return windows_[span_.reversed ? span_.count - 1 : 0].start;
  }
  /// Returns one past the last source pixel of all windows.
  [[nodiscard]] std::size_t end() const noexcept {
    const resample_window& last = windows_[span_.reversed ? 0 : span_.count - 1];
    return std::size_t{last.start} + last.taps;
  }

 private:
  void reserve(const resample_span& span, std::size_t groups) {
    windows_.resize((std::max)(windows_.size(), span.count));
    coefficients_.resize((std::max)(coefficients_.size(), span.count * 4 * groups));
    span_ = span;
    groups_ = groups;
  }

  static std::int32_t fixed(double weight, double sum) noexcept {
    const double share = sum != 0 ? weight / sum : weight;
    const double scaled = share * (1 << coefficient_bits);  // exact
    return static_cast<std::int32_t>(share < 0 ? scaled - 0.5 : scaled + 0.5);
  }

  resample_span span_;
  std::size_t groups_ = 0;
  std::vector<std::int32_t> coefficients_;
  std::vector<resample_window> windows_;
  std::vector<double> weights_;
};

#if defined(__x86_64__)

// Both passes with 256-bit vectors. Each coefficient c is split into 16-bit halves, c = high * 2^12
// + low. One instruction then multiplies sixteen values and adds them in pairs. Sums are wrapping
// 32-bit integers, so their order does not matter, and the result is bit-identical to the plain
// loops.

inline constexpr int coefficient_low_bits = 12;

/// Replaces each group of four coefficients with four low halves and four high halves.
[[gnu::target("avx2")]] inline void split_coefficients_avx2(resample_table& table) {
  const std::size_t groups = table.size() * table.groups();
  std::int32_t* at = table.coefficients(0);
  constexpr int rest = 32 - coefficient_low_bits;
  for (std::size_t i = 0; i < groups; ++i, at += 4) {
    __m128i* const group = reinterpret_cast<__m128i*>(at);
    const __m128i whole = _mm_loadu_si128(group);
    const __m128i low = _mm_srai_epi32(_mm_slli_epi32(whole, rest), rest);
    const __m128i high = _mm_srai_epi32(_mm_sub_epi32(whole, low), coefficient_low_bits);
    _mm_storeu_si128(group, _mm_packs_epi32(low, high));
  }
}

/// Returns the coefficient of `tap`, recombined from its halves.
inline std::int32_t whole_coefficient(const std::int32_t* k, std::size_t tap) noexcept {
  std::int16_t halves[8];
  std::memcpy(halves, k + (tap & ~std::size_t{3}), sizeof halves);
  return halves[tap % 4] + (std::int32_t{halves[4 + tap % 4]} << coefficient_low_bits);
}

/// Writes 3 or 4 bytes of a pixel.
[[gnu::always_inline]] inline void store_avx2(std::uint8_t* to, int pixel, std::size_t size) {
  if (size == 4) {
    std::memcpy(to, &pixel, 4);
  } else {
    std::memcpy(to, &pixel, 3);
  }
}

/// Computes all result pixels of four rows. `in` and `out` contain the row starts. Reads up to 15
/// bytes beyond a row's last pixel, and writes nothing beyond it.
template <std::size_t Channels>
[[gnu::target("avx2")]] inline void four_rows_avx2(const resample_table& table,
                                                   const std::uint8_t* const (&in)[4],
                                                   std::uint8_t* const (&out)[4]) {
  // 16-bit pairs of taps 0 and 1 for each channel, then pairs of taps 2 and 3.
  constexpr char c = Channels;
  constexpr char z = -1;
  constexpr char r = Channels == 4 ? 3 : z;
  constexpr char s = Channels == 4 ? 7 : z;
  const __m256i first = _mm256_setr_epi8(0, z, c, z, 1, z, c + 1, z, 2, z, c + 2, z, r, z, s, z, 0,
                                         z, c, z, 1, z, c + 1, z, 2, z, c + 2, z, r, z, s, z);
  const __m256i two =
      _mm256_setr_epi8(2 * c, 0, 2 * c, 0, 2 * c, 0, 2 * c, 0, 2 * c, 0, 2 * c, 0,
                       r < 0 ? 0 : 2 * c, 0, r < 0 ? 0 : 2 * c, 0, 2 * c, 0, 2 * c, 0, 2 * c, 0,
                       2 * c, 0, 2 * c, 0, 2 * c, 0, r < 0 ? 0 : 2 * c, 0, r < 0 ? 0 : 2 * c, 0);
  const __m256i second = _mm256_add_epi8(first, two);
  const auto [in_0, in_1, in_2, in_3] = in;
  const auto [out_0, out_1, out_2, out_3] = out;
  const std::size_t count = table.size();
  for (std::size_t i = 0; i < count; ++i) {
    const resample_window window = table.window(i);
    const std::int32_t* k = table.coefficients(i);
    const std::int32_t* const end = k + ((window.taps + 3) & ~3u);
    std::size_t at = window.start * Channels;
    __m256i low_a = _mm256_set1_epi32(coefficient_half);
    __m256i low_b = low_a;
    __m256i high_a = _mm256_setzero_si256();
    __m256i high_b = high_a;
    for (; k != end; k += 4, at += 4 * Channels) {
      const __m256i a = _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(in_1 + at),
                                            reinterpret_cast<const __m128i*>(in_0 + at));
      const __m256i b = _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(in_3 + at),
                                            reinterpret_cast<const __m128i*>(in_2 + at));
      const __m256i a_first = _mm256_shuffle_epi8(a, first);
      const __m256i b_first = _mm256_shuffle_epi8(b, first);
      const __m256i a_second = _mm256_shuffle_epi8(a, second);
      const __m256i b_second = _mm256_shuffle_epi8(b, second);
      const __m256i low_first = _mm256_set1_epi32(k[0]);
      const __m256i low_second = _mm256_set1_epi32(k[1]);
      const __m256i high_first = _mm256_set1_epi32(k[2]);
      const __m256i high_second = _mm256_set1_epi32(k[3]);
      low_a = _mm256_add_epi32(low_a, _mm256_madd_epi16(a_first, low_first));
      low_b = _mm256_add_epi32(low_b, _mm256_madd_epi16(b_first, low_first));
      high_a = _mm256_add_epi32(high_a, _mm256_madd_epi16(a_first, high_first));
      high_b = _mm256_add_epi32(high_b, _mm256_madd_epi16(b_first, high_first));
      low_a = _mm256_add_epi32(low_a, _mm256_madd_epi16(a_second, low_second));
      low_b = _mm256_add_epi32(low_b, _mm256_madd_epi16(b_second, low_second));
      high_a = _mm256_add_epi32(high_a, _mm256_madd_epi16(a_second, high_second));
      high_b = _mm256_add_epi32(high_b, _mm256_madd_epi16(b_second, high_second));
    }
    const __m256i a = _mm256_srai_epi32(
        _mm256_add_epi32(low_a, _mm256_slli_epi32(high_a, coefficient_low_bits)), coefficient_bits);
    const __m256i b = _mm256_srai_epi32(
        _mm256_add_epi32(low_b, _mm256_slli_epi32(high_b, coefficient_low_bits)), coefficient_bits);
    const __m256i words = _mm256_packs_epi32(a, b);
    const __m256i bytes = _mm256_packus_epi16(words, words);  // rows 0, 2, -, - | 1, 3, -, -
    const __m128i even = _mm256_castsi256_si128(bytes);
    const __m128i odd = _mm256_extracti128_si256(bytes, 1);
    const std::size_t to = i * Channels;
    const std::size_t size = i + 1 < count ? 4 : Channels;  // the next pixel overwrites the fourth
                                                            // byte
    store_avx2(out_0 + to, _mm_cvtsi128_si32(even), size);
    store_avx2(out_1 + to, _mm_cvtsi128_si32(odd), size);
    store_avx2(out_2 + to, _mm_extract_epi32(even, 1), size);
    store_avx2(out_3 + to, _mm_extract_epi32(odd, 1), size);
  }
}

/// Computes all result pixels of four rows with one channel.
template <>
[[gnu::target("avx2")]] inline void four_rows_avx2<1>(const resample_table& table,
                                                      const std::uint8_t* const (&in)[4],
                                                      std::uint8_t* const (&out)[4]) {
  // Shuffle mask that widens the four taps of a row to 16 bits and repeats them, once for the low
  // and once for the high parts of the coefficients.
  const __m256i widen = _mm256_set1_epi64x(static_cast<long long>(0xff03ff02ff01ff00ull));
  const __m128i half = _mm_set1_epi32(coefficient_half);
  for (std::size_t i = 0; i < table.size(); ++i) {
    const resample_window window = table.window(i);
    const std::int32_t* k = table.coefficients(i);
    const std::int32_t* const end = k + ((window.taps + 3) & ~3u);
    std::size_t at = window.start;
    __m256i sum_a = _mm256_setzero_si256();
    __m256i sum_b = sum_a;
    for (; k != end; k += 4, at += 4) {
      int taps[4];
      for (std::size_t row = 0; row < 4; ++row) std::memcpy(&taps[row], in[row] + at, 4);
      const __m256i coefficients =
          _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(k)));
      const __m256i a = _mm256_set_m128i(_mm_set1_epi32(taps[1]), _mm_set1_epi32(taps[0]));
      const __m256i b = _mm256_set_m128i(_mm_set1_epi32(taps[3]), _mm_set1_epi32(taps[2]));
      sum_a =
          _mm256_add_epi32(sum_a, _mm256_madd_epi16(_mm256_shuffle_epi8(a, widen), coefficients));
      sum_b =
          _mm256_add_epi32(sum_b, _mm256_madd_epi16(_mm256_shuffle_epi8(b, widen), coefficients));
    }
    // Low and high sums of rows 0 and 2 | rows 1 and 3.
    const __m256i halves = _mm256_hadd_epi32(sum_a, sum_b);
    const __m128i x = _mm256_castsi256_si128(halves);
    const __m128i y = _mm256_extracti128_si256(halves, 1);
    const __m128i low = _mm_castps_si128(
        _mm_shuffle_ps(_mm_castsi128_ps(x), _mm_castsi128_ps(y), _MM_SHUFFLE(2, 0, 2, 0)));
    const __m128i high = _mm_castps_si128(
        _mm_shuffle_ps(_mm_castsi128_ps(x), _mm_castsi128_ps(y), _MM_SHUFFLE(3, 1, 3, 1)));
    const __m128i sums = _mm_srai_epi32(
        _mm_add_epi32(_mm_add_epi32(low, half), _mm_slli_epi32(high, coefficient_low_bits)),
        coefficient_bits);
    const __m128i words = _mm_packs_epi32(sums, sums);
    std::uint8_t bytes[4];
    const int packed = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    std::memcpy(bytes, &packed, 4);  // rows 0, 2, 1, 3
    out[0][i] = bytes[0];
    out[2][i] = bytes[1];
    out[1][i] = bytes[2];
    out[3][i] = bytes[3];
  }
}

/// Weighted sums of eight columns.
struct column_sums_avx2 {
  __m256i low;
  __m256i high;
};

/// Adds two rows, whose pixels are interleaved in `pixels`.
[[gnu::target("avx2"), gnu::always_inline]] inline void add_rows_avx2(column_sums_avx2& sums,
                                                                      __m256i pixels, __m256i low,
                                                                      __m256i high) {
  sums.low = _mm256_add_epi32(sums.low, _mm256_madd_epi16(pixels, low));
  sums.high = _mm256_add_epi32(sums.high, _mm256_madd_epi16(pixels, high));
}

/// Returns the integer parts of the sums.
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i whole_avx2(
    const column_sums_avx2& sums) {
  return _mm256_srai_epi32(
      _mm256_add_epi32(sums.low, _mm256_slli_epi32(sums.high, coefficient_low_bits)),
      coefficient_bits);
}

/// Computes 32 bytes of a row from the same columns of `taps` rows starting at `in`.
[[gnu::target("avx2")]] inline void column_block_avx2(const std::int32_t* k, std::size_t taps,
                                                      const std::uint8_t* in, std::size_t pitch,
                                                      std::uint8_t* out) {
  const __m256i zero = _mm256_setzero_si256();
  const column_sums_avx2 none{_mm256_set1_epi32(coefficient_half), zero};
  column_sums_avx2 sums_0 = none;
  column_sums_avx2 sums_1 = none;
  column_sums_avx2 sums_2 = none;
  column_sums_avx2 sums_3 = none;
  for (std::size_t tap = 0; tap < taps; tap += 2, in += 2 * pitch) {
    // The coefficient of a missing next row is 0.
    const std::uint8_t* const next = tap + 1 < taps ? in + pitch : in;
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(next));
    const std::int32_t* const pair = k + (tap & ~std::size_t{3}) + (tap & 2) / 2;
    const __m256i low = _mm256_set1_epi32(pair[0]);
    const __m256i high = _mm256_set1_epi32(pair[2]);
    const __m256i left = _mm256_unpacklo_epi8(a, b);
    const __m256i right = _mm256_unpackhi_epi8(a, b);
    add_rows_avx2(sums_0, _mm256_unpacklo_epi8(left, zero), low, high);
    add_rows_avx2(sums_1, _mm256_unpackhi_epi8(left, zero), low, high);
    add_rows_avx2(sums_2, _mm256_unpacklo_epi8(right, zero), low, high);
    add_rows_avx2(sums_3, _mm256_unpackhi_epi8(right, zero), low, high);
  }
  const __m256i left = _mm256_packs_epi32(whole_avx2(sums_0), whole_avx2(sums_1));
  const __m256i right = _mm256_packs_epi32(whole_avx2(sums_2), whole_avx2(sums_3));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_packus_epi16(left, right));
}

/// Computes `size` bytes of a row. `size` must be at least 32. The last block of 32 bytes may
/// overlap the previous block.
[[gnu::target("avx2")]] inline void columns_avx2(const std::int32_t* k, std::size_t taps,
                                                 const std::uint8_t* in, std::size_t pitch,
                                                 std::uint8_t* out, std::size_t size) {
  for (std::size_t at = 0; at + 32 <= size; at += 32) {
    column_block_avx2(k, taps, in + at, pitch, out + at);
  }
  if (size % 32 != 0) column_block_avx2(k, taps, in + size - 32, pitch, out + size - 32);
}

#elif defined(__aarch64__)

// Both passes with 128-bit vectors, which every 64-bit Arm processor supports. Products have 32
// bits, as in the plain loops.

/// Returns four bytes as a vector of four 32-bit values.
inline int32x4_t four_bytes_neon(const std::uint8_t* from) noexcept {
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, from, 4);
  const uint16x8_t words = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes)));
  return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(words)));
}

/// Returns four sums, clamped to bytes.
inline std::uint32_t clipped_neon(int32x4_t sums) noexcept {
  const int16x4_t words = vqmovn_s32(vshrq_n_s32(sums, coefficient_bits));
  return vget_lane_u32(vreinterpret_u32_u8(vqmovun_s16(vcombine_s16(words, words))), 0);
}

/// Computes all result pixels of four rows. `in` and `out` contain the row starts. Reads one byte
/// beyond a row's last pixel, and writes nothing beyond it.
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
    // Writes four bytes even for three channels. The next pixel overwrites the fourth byte.
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

/// Computes all result pixels of four rows with one channel.
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

/// Computes 16 bytes of a row from the same columns of `taps` rows starting at `in`.
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

/// Computes `size` bytes of a row. `size` must be at least 16. The last block of 16 bytes may
/// overlap the previous block.
inline void columns_neon(const std::int32_t* k, std::size_t taps, const std::uint8_t* in,
                         std::size_t pitch, std::uint8_t* out, std::size_t size) {
  for (std::size_t at = 0; at + 16 <= size; at += 16) {
    column_block_neon(k, taps, in + at, pitch, out + at);
  }
  if (size % 16 != 0) column_block_neon(k, taps, in + size - 16, pitch, out + size - 16);
}

#endif

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
