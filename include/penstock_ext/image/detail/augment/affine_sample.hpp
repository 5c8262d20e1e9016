// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <penstock/core/version.hpp>
#include <penstock_ext/image/detail/augment/affine_warp.hpp>
#include <penstock_ext/image/detail/exact_math.hpp>
#include <penstock_ext/image/pixels.hpp>

// Pillow's weighing of the pixels around a point: sums and products of doubles, in its order.

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The two pixels around a point of a row.
struct bilinear_taps {
  static constexpr std::ptrdiff_t before = 0;  // the first one is that of the point
  static constexpr std::size_t count = 2;

  /// Between `v[0]` and `v[1]`.
  static double at(const double (&v)[count], double part) noexcept {
    return v[0] + rounded((v[1] - v[0]) * part);
  }
  static std::uint8_t to_byte(double value) noexcept { return static_cast<std::uint8_t>(value); }
};

/// The four pixels around a point of a row: a cubic through the middle two, a = -1.
struct bicubic_taps {
  static constexpr std::ptrdiff_t before = 1;
  static constexpr std::size_t count = 4;

  /// Between `v[1]` and `v[2]`.
  static double at(const double (&v)[count], double part) noexcept {
    const double slope = v[2] - v[0];
    const double second = 2 * (v[0] - v[1]) + v[2] - v[3];
    const double third = v[1] - v[0] - v[2] + v[3];
    return v[1] + rounded(part * (slope + rounded(part * (second + rounded(part * third)))));
  }
  static std::uint8_t to_byte(double value) noexcept {
    return static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0));
  }
};

/// Walks over a turned picture as `nearest_walk` does, and weighs the pixels around each point;
/// those of the edge are repeated.
template <std::size_t Channels, class Taps>
class weighed_walk {
 public:
  static constexpr std::size_t channels = Channels;

  /// Before the first row of `in`, turned by `m`; `fill` is a pixel of what lies outside.
  weighed_walk(const const_pixels& in, const affine_matrix& m, const std::uint8_t* fill) noexcept
      : in_(in), m_(m), fill_(fill) {}

  /// To the first pixel of the next row.
  void begin_row() noexcept {
    x_ = 0.5;
    ++y_;
  }
  /// Leaves out `count` pixels of the row.
  void skip(std::size_t count) noexcept { x_ += static_cast<double>(count); }
  /// Writes the next `count` pixels of the row.
  void write(std::uint8_t* to, std::size_t count) noexcept {
    const double along_x = rounded(m_.xy * y_);
    const double along_y = rounded(m_.yy * y_);
    const auto width = static_cast<double>(in_.size.width);
    const auto height = static_cast<double>(in_.size.height);
    for (; count > 0; --count, to += Channels, ++x_) {
      const double x = rounded(m_.xx * x_) + along_x + m_.x0;
      const double y = rounded(m_.yx * x_) + along_y + m_.y0;
      if (x >= 0 && x < width && y >= 0 && y < height) {
        write_at(x - 0.5, y - 0.5, to);
      } else {
        std::memcpy(to, fill_, Channels);
      }
    }
  }

 private:
  static constexpr std::size_t taps = Taps::count;

  // Where the taps around `at`, which is -0.5 or more, lie; and how far `at` is from the middle
  // one.
  static double place(double at, std::size_t length, std::ptrdiff_t (&places)[taps]) noexcept {
    const std::ptrdiff_t whole = at < 0 ? -1 : static_cast<std::ptrdiff_t>(at);
    const auto last = static_cast<std::ptrdiff_t>(length) - 1;
    for (std::size_t i = 0; i < taps; ++i) {
      places[i] = std::clamp<std::ptrdiff_t>(whole - Taps::before + static_cast<std::ptrdiff_t>(i),
                                             0, last);
    }
    return at - static_cast<double>(whole);
  }

  void write_at(double x, double y, std::uint8_t* to) const noexcept {
    std::ptrdiff_t columns[taps];
    std::ptrdiff_t rows[taps];
    const double right = place(x, in_.size.width, columns);
    const double down = place(y, in_.size.height, rows);
    for (std::size_t c = 0; c < Channels; ++c) {
      double of_rows[taps];
      for (std::size_t r = 0; r < taps; ++r) {
        const std::uint8_t* const row = in_.row(static_cast<std::size_t>(rows[r])) + c;
        double values[taps];
        for (std::size_t i = 0; i < taps; ++i) {
          values[i] = row[columns[i] * static_cast<std::ptrdiff_t>(Channels)];
        }
        of_rows[r] = Taps::at(values, right);
      }
      to[c] = Taps::to_byte(Taps::at(of_rows, down));
    }
  }

  const_pixels in_;
  affine_matrix m_;
  const std::uint8_t* fill_;
  double x_ = 0.5;
  double y_ = -0.5;  // of the row before the first one
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
