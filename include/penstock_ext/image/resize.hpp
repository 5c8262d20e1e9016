// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/image/detail/exact_math.hpp>
#include <penstock_ext/image/detail/resample.hpp>
#include <penstock_ext/image/geometry.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Throws std::invalid_argument unless `plan` is valid for the input image `in` and the output
/// image `out`.
inline void check_resize(const const_pixels& in, const image_plan& plan, const pixels& out) {
  const auto reject = [](const std::string& expected, const std::string& found) {
    throw std::invalid_argument("resizer: expected " + expected + ", found " + found);
  };
  if (in.channels != out.channels || (in.channels != 1 && in.channels != 3 && in.channels != 4)) {
    reject("1, 3 or 4 channels in both images",
           std::to_string(in.channels) + " and " + std::to_string(out.channels));
  }
  for (const image_size& size : {in.size, plan.scaled}) {
    if (!has_pixels(size)) {
      reject("sides of 1 to 2^24 pixels", to_text(size));
    }
  }
  if (!is_part_of(plan.crop, in.size)) {
    reject("a crop inside the image of " + to_text(in.size), to_text(plan.crop));
  }
  if (!is_part_of(plan.kept, plan.scaled)) {
    reject("a kept part inside the scaled crop of " + to_text(plan.scaled), to_text(plan.kept));
  }
  if (out.size != plan.size()) {
    reject("a place for " + to_text(plan.size()) + " pixels", to_text(out.size));
  }
}

/// Copies `from` to `to`, which has the same size.
inline void copy_rows(const const_pixels& from, const pixels& to) {
  for (std::size_t y = 0; y < to.size.height; ++y) {
    std::memcpy(to.row(y), from.row(y), to.size.width * to.channels);
  }
}

/// Fills `out` with zeros outside the rectangle `inner`.
inline void clear_around(const pixels& out, const image_box& inner) {
  for (std::size_t y = 0; y < out.size.height; ++y) {
    const bool beside = y >= inner.top && y - inner.top < inner.size.height;
    const std::size_t left = beside ? inner.left : out.size.width;
    const std::size_t right = beside ? inner.left + inner.size.width : out.size.width;
    std::memset(out.row(y), 0, left * out.channels);
    std::memset(out.row(y) + right * out.channels, 0, (out.size.width - right) * out.channels);
  }
}

/// Resizes an axis of `length` pixels to `scaled` pixels. Calls `take` with the nearest source
/// pixel of each of the `count` result pixels starting at `first`. As in Pillow, positions are
/// running sums from the first pixel, because a product may be rounded differently.
template <class Take>
void each_nearest(std::size_t length, std::size_t scaled, std::size_t first, std::size_t count,
                  Take take) {
  const double step = static_cast<double>(static_cast<float>(length)) / static_cast<double>(scaled);
  double at = step * 0.5;
  for (std::size_t i = 0; i < first + count; ++i, at += step) {
    if (i >= first) take(i - first, (std::min)(static_cast<std::size_t>(at), length - 1));
  }
}

/// Resizes `in`, the crop of `plan`, with nearest-neighbor sampling. `columns` is a buffer that is
/// reused between calls.
template <std::size_t Channels>
void resize_nearest(const const_pixels& in, const image_plan& plan, const pixels& out,
                    std::vector<std::uint32_t>& columns) {
  const std::size_t width = out.size.width;
  columns.resize((std::max)(columns.size(), width));
  each_nearest(in.size.width, plan.scaled.width, plan.kept.left, width,
               [&](std::size_t x, std::size_t from) {
                 columns[plan.mirrored ? width - 1 - x : x] =
                     static_cast<std::uint32_t>(from * Channels);
               });
  each_nearest(in.size.height, plan.scaled.height, plan.kept.top, out.size.height,
               [&, at = columns.data()](std::size_t y, std::size_t from) {
                 const std::uint8_t* const row = in.row(from);
                 std::uint8_t* to = out.row(y);
                 for (std::size_t x = 0; x < width; ++x, to += Channels) {
                   std::memcpy(to, row + at[x], Channels);
                 }
               });
}

/// Weights of a box filter. The box includes its right end.
struct box_weight {
  static constexpr double support = 0.5;
  double operator()(double x) const noexcept { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }
};

/// Weights of a triangle (bilinear) filter.
struct bilinear_weight {
  static constexpr double support = 1.0;
  double operator()(double x) const noexcept {
    x = x < 0 ? -x : x;
    return x < 1 ? 1 - x : 0.0;
  }
};

/// Weights of a sinc with a Hamming window, whose factors are floats.
struct hamming_weight {
  static constexpr double support = 1.0;
  double operator()(double x) const noexcept {
    x = x < 0 ? -x : x;
    if (x == 0) return 1.0;
    if (x >= 1) return 0.0;
    const double cosine = x < 0.5 ? sin_pi(0.5 - x) : -sin_pi(x - 0.5);
    return sin_pi(x) / (x * pi) * (double{0.54f} + rounded(double{0.46f} * cosine));
  }
};

/// Weights of Keys' cubic with a = -1/2.
struct bicubic_weight {
  static constexpr double support = 2.0;
  double operator()(double x) const noexcept {
    x = x < 0 ? -x : x;
    if (x < 1) return rounded((rounded(1.5 * x) - 2.5) * x * x) + 1;
    if (x < 2) return (rounded((rounded((x - 5) * x) + 8) * x) - 4) * -0.5;
    return 0.0;
  }
};

/// Weights of sinc(x) sinc(x / 3) for |x| < 3.
struct lanczos_weight {
  static constexpr double support = 3.0;
  double operator()(double x) const noexcept {
    if (!(x >= -3 && x < 3)) return 0.0;
    if (x == 0) return 1.0;
    x = x < 0 ? -x : x;
    // One series computes both sines: sin 3a = sin a (3 - 4 sin^2 a).
    const double sine = sin_pi(x / 3);
    const double square = rounded(sine * sine);
    const double x_pi = x * pi;
    return square * (3 - rounded(4 * square)) * 3 / (x_pi * x_pi);
  }
};

/// Implementations of the passes. All are bit-identical.
enum class resample_path { plain, avx2, neon };

/// Returns the fastest implementation that this machine supports.
inline resample_path fastest_resample_path() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") ? resample_path::avx2 : resample_path::plain;
#elif defined(__aarch64__)
  return resample_path::neon;
#else
  return resample_path::plain;
#endif
}

/// Returns the integer part of a weighted sum, clamped to a byte.
inline std::uint8_t clipped(std::int32_t sum) noexcept {
  return static_cast<std::uint8_t>(
      (std::min)((std::max)(sum >> coefficient_bits, std::int32_t{0}), std::int32_t{255}));
}

/// Computes a row with plain loops.
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

/// Computes `size` bytes of a row from `taps` rows with plain loops. `coefficient(tap)` returns the
/// weight of a row.
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

/// Resizes rows horizontally with the weights of `table`. `end` is the end of the readable memory.
/// Rows close to the end are first copied to `spare_`.
class horizontal_pass {
 public:
  /// Resizes `in` into `out`, which has as many rows as `in` and table.size() columns.
  void operator()(resample_path path, const resample_table& table, const const_pixels& in,
                  const std::uint8_t* end, const pixels& out) {
    if (in.channels == 1) return run<1>(path, table, in, end, out);
    if (in.channels == 3) return run<3>(path, table, in, end, out);
    run<4>(path, table, in, end, out);
  }

 private:
  // Number of bytes that an implementation may read beyond the last pixel of a window.
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
        const std::size_t row = (std::min)(y + i, rows - 1);  // repeats the last row if fewer than
                                                              // four remain
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

/// Resizes columns vertically with the weights of `table`. The first row of `in` is row `above` of
/// the table.
inline void vertical_pass(resample_path path, const resample_table& table, const const_pixels& in,
                          std::size_t above, const pixels& out) {
  const std::size_t bytes = out.size.width * out.channels;
  for (std::size_t y = 0; y < out.size.height; ++y) {
    const resample_window window = table.window(y);
    const std::int32_t* const k = table.coefficients(y);
    const std::uint8_t* const from = in.row(window.start - above);
#if defined(__x86_64__)
    if (path != resample_path::plain) {
      if (bytes >= 32) {
        columns_avx2(k, window.taps, from, in.pitch, out.row(y), bytes);
      } else {
        columns_plain([k](std::size_t tap) { return whole_coefficient(k, tap); }, window.taps, from,
                      in.pitch, out.row(y), bytes);
      }
      continue;
    }
#elif defined(__aarch64__)
    if (path != resample_path::plain && bytes >= 16) {
      columns_neon(k, window.taps, from, in.pitch, out.row(y), bytes);
      continue;
    }
#endif
    columns_plain([k](std::size_t tap) { return k[tap]; }, window.taps, from, in.pitch, out.row(y),
                  bytes);
  }
}

}  // namespace detail

/// Filters that weight the pixels around a point. If the image shrinks, all filters except
/// `nearest` widen so that no pixel is skipped (antialiasing).
enum class resize_filter {
  nearest,   ///< the pixel that contains the point
  box,       ///< the mean of the covered area
  bilinear,  ///< a triangle two pixels wide
  hamming,   ///< two pixels wide, sharper than bilinear
  bicubic,   ///< Keys' cubic with a = -1/2, four pixels wide
  lanczos,   ///< sinc(x) sinc(x / 3), six pixels wide
};

/// Order of the two passes. Values are rounded to bytes between the passes, so the order can change
/// a value, by up to 4 with `bicubic` and 11 with `lanczos`.
enum class pass_order {
  /// The order of Pillow up to version 12, with which most models were trained. The horizontal pass
  /// is first, unless the height shrinks and is more than a hundred times the width.
  horizontal_first,
  /// The order of Pillow 13. The vertical pass is first if the height shrinks by more than twice
  /// the factor of the width.
  by_shrink,
};

/// Options of a `resizer`.
struct resize_options {
  resize_filter filter = resize_filter::bilinear;   ///< weights of the source pixels
  pass_order order = pass_order::horizontal_first;  ///< order of the passes
};

/// Crops, resizes and flips 8-bit images. The result is bit-identical to Pillow's
/// `image.crop(box).resize(size, filter)` for one byte per channel. Shrinking antialiases.
/// Coefficients have 22 fractional bits. Pixels outside the crop have no effect.
///
///     penstock::resizer resize{{.filter = penstock::resize_filter::bicubic}};
///     resize(image, thumbnail);   // the whole image, to the size of `thumbnail`
///     resize(image, plan, slot);  // by the plan of a geometry
///
/// Images must have 1, 3 or 4 channels, and sides of up to 2^24 pixels. No channel is treated as
/// alpha (Pillow's modes L, RGB and CMYK). Not thread-safe. The resizer reuses its tables and
/// intermediate rows, so it allocates only for images larger than all before. Results are the same
/// on every machine, with or without vector instructions.
///
/// Source: Pillow's documentation, its pull requests 977, 1933 and 2254, and for
/// `pass_order::by_shrink` 9549.
class resizer {
 public:
  /// Uses bilinear weights and the pass order of Pillow up to version 12 by default.
  explicit resizer(const resize_options& options = {})
      : resizer(options, detail::fastest_resample_path()) {}

  /// Uses the implementation `path`, which the machine must support. Intended for tests.
  resizer(const resize_options& options, detail::resample_path path)
      : options_(options), path_(path) {}

  /// Crops, resizes and flips `in` according to `plan` and writes all of `out`. `out` must have the
  /// size `plan.size()` and as many channels as `in`, and must not overlap `in`. Computes only the
  /// rows and columns that the plan keeps. May read the padding between rows of `in`, which has no
  /// effect. Throws std::invalid_argument, and writes nothing, if sizes, boxes or channels do not
  /// fit. Throws std::bad_alloc if an allocation fails.
  void operator()(const const_pixels& in, const image_plan& plan, const pixels& out) {
    detail::check_resize(in, plan, out);
    const image_border& border = plan.border;
    const std::size_t left = plan.mirrored ? border.right : border.left;
    const pixels kept = out.part({left, border.top, plan.kept.size});
    if (plan.size() != plan.kept.size) detail::clear_around(out, {left, border.top, kept.size});
    if (options_.filter == resize_filter::nearest) {
      const const_pixels crop = in.part(plan.crop);
      if (in.channels == 1) detail::resize_nearest<1>(crop, plan, kept, columns_);
      if (in.channels == 3) detail::resize_nearest<3>(crop, plan, kept, columns_);
      if (in.channels == 4) detail::resize_nearest<4>(crop, plan, kept, columns_);
    } else {
      resample(in, plan, kept);
    }
  }

  /// Resizes all of `in` to the size of `out`.
  void operator()(const const_pixels& in, const pixels& out) {
    (*this)(in, {{0, 0, in.size}, out.size, {0, 0, out.size}}, out);
  }

  /// Returns the options passed to the constructor.
  [[nodiscard]] const resize_options& options() const noexcept { return options_; }

 private:
  // Runs only the passes that are needed.
  void resample(const const_pixels& in, const image_plan& plan, const pixels& out) {
    const image_box& crop = plan.crop;
    const image_box& kept = plan.kept;
    const bool columns = plan.mirrored || crop.size.width != plan.scaled.width;
    const bool rows = crop.size.height != plan.scaled.height;
    if (columns) {
      make(horizontal_,
           {crop.size.width, plan.scaled.width, kept.left, kept.size.width, plan.mirrored});
    }
    if (rows) {
      make(vertical_, {crop.size.height, plan.scaled.height, kept.top, kept.size.height, false});
    }
    const const_pixels source = in.part(crop);
    // The readable memory may end with the last row.
    const std::uint8_t* const end = in.row(in.size.height - 1) + in.size.width * in.channels;
    if (!columns && !rows) {
      detail::copy_rows(source.part(kept), out);
    } else if (!rows) {
      pass_(path_, horizontal_, source.part({0, kept.top, {crop.size.width, kept.size.height}}),
            end, out);
    } else if (!columns) {
      detail::vertical_pass(path_, vertical_,
                            source.part({kept.left, 0, {kept.size.width, crop.size.height}}), 0,
                            out);
    } else if (vertical_first(crop.size, plan.scaled)) {
      const std::size_t width = horizontal_.end();
      const pixels between = buffer({width, kept.size.height}, in.channels);
      detail::vertical_pass(path_, vertical_, source.part({0, 0, {width, crop.size.height}}), 0,
                            between);
      pass_(path_, horizontal_, between, buffer_.data() + buffer_.size(), out);
    } else {
      const std::size_t above = vertical_.begin();
      const std::size_t height = vertical_.end() - above;
      const pixels between = buffer({kept.size.width, height}, in.channels);
      pass_(path_, horizontal_, source.part({0, above, {crop.size.width, height}}), end, between);
      detail::vertical_pass(path_, vertical_, between, above, out);
    }
  }

  void make(detail::resample_table& table, const detail::resample_span& span) {
    if (table.is_for(span)) return;
    if (span.length == span.scaled) {
      table.make_identity(span);
    } else if (options_.filter == resize_filter::box) {
      table.make(span, detail::box_weight{});
    } else if (options_.filter == resize_filter::bilinear) {
      table.make(span, detail::bilinear_weight{});
    } else if (options_.filter == resize_filter::hamming) {
      table.make(span, detail::hamming_weight{});
    } else if (options_.filter == resize_filter::bicubic) {
      table.make(span, detail::bicubic_weight{});
    } else {
      table.make(span, detail::lanczos_weight{});
    }
#if defined(__x86_64__)
    if (path_ == detail::resample_path::avx2) detail::split_coefficients_avx2(table);
#endif
  }

  bool vertical_first(const image_size& from, const image_size& to) const noexcept {
    if (options_.order == pass_order::horizontal_first) {
      return from.height > 100 * from.width && to.height < from.height;
    }
    const auto lost = [](std::size_t before, std::size_t after) {
      return static_cast<std::int64_t>(before) - static_cast<std::int64_t>(after);
    };
    const std::int64_t rows = lost(from.height, to.height);
    return rows > 0 && rows > 2 * lost(from.width, to.width);
  }

  pixels buffer(const image_size& size, std::size_t channels) {
    const std::size_t pitch = (size.width * channels + 31) / 32 * 32;
    if (buffer_.size() < pitch * size.height) buffer_.resize(pitch * size.height);
    return {buffer_.data(), size, channels, pitch};
  }

  resize_options options_;
  detail::resample_path path_;
  detail::resample_table horizontal_;
  detail::resample_table vertical_;
  detail::horizontal_pass pass_;
  std::vector<std::uint8_t> buffer_;
  std::vector<std::uint32_t> columns_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
