// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/image/detail/resample/resample_check.hpp>
#include <penstock_ext/image/detail/resample/resample_filter.hpp>
#include <penstock_ext/image/detail/resample/resample_pass.hpp>
#include <penstock_ext/image/detail/resample/resample_table.hpp>
#include <penstock_ext/image/geometry.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// How the pixels around a point weigh. All but `nearest` reach over more source pixels where the
/// picture shrinks, so that nothing is skipped (antialiasing).
enum class resize_filter {
  nearest,   ///< the one pixel in whose area the point is
  box,       ///< the mean of the area
  bilinear,  ///< a triangle two pixels wide
  hamming,   ///< two pixels wide, sharper than bilinear
  bicubic,   ///< Keys' cubic with a = -1/2, four pixels wide
  lanczos,   ///< sinc(x) sinc(x / 3), six pixels wide
};

/// Which of the two passes comes first. Between them values are rounded to bytes, so the order can
/// change a value, by up to 4 with `bicubic` and 11 with `lanczos`.
enum class pass_order {
  /// Pillow up to 12, what most trained models have seen: horizontal first, but for a picture that
  /// becomes lower and is more than a hundred times as high as it is wide.
  horizontal_first,
  /// Pillow 13: vertical first where rows are lost, and more than twice as many as columns.
  by_shrink,
};

/// Options of a `resizer`.
struct resize_options {
  resize_filter filter = resize_filter::bilinear;   ///< how pixels weigh
  pass_order order = pass_order::horizontal_first;  ///< which pass comes first
};

/// Crops, resizes and mirrors 8-bit pictures, to the bit as Pillow's
/// `image.crop(box).resize(size, filter)` does with one byte a channel: antialiased where a picture
/// shrinks, with coefficients of 22 bits after the point. Pixels outside the crop do not count.
///
///     penstock::resizer resize{{.filter = penstock::resize_filter::bicubic}};
///     resize(picture, thumbnail);   // all of it, to the size of `thumbnail`
///     resize(picture, plan, slot);  // as a geometry has drawn it
///
/// Pictures have 1, 3 or 4 channels, none of which is treated as alpha (Pillow's modes L, RGB and
/// CMYK), and sides of up to 2^24 pixels. One object is for one thread at a time: it keeps its
/// tables and the rows between the two passes, so that it allocates nothing once it has seen the
/// largest picture. The bits are the same on every machine, with or without vector instructions.
///
/// Source: the method is that of Pillow's documentation and of its changes 977, 1933, 2254 and, for
/// `pass_order::by_shrink`, 9549.
class resizer {
 public:
  /// With bilinear weights and the passes of Pillow up to 12, unless told otherwise.
  explicit resizer(const resize_options& options = {})
      : resizer(options, detail::fastest_resample_path()) {}

  /// With the loops `path`, which the machine must have: for tests.
  resizer(const resize_options& options, detail::resample_path path)
      : options_(options), path_(path) {}

  /// Writes what `plan` makes of `in` to `out`, all of which is written; `out` has the size
  /// `plan.size()` and as many channels as `in`, and must not overlap it. Only the rows and columns
  /// kept are computed. Bytes between two rows of `in` may be read, and count for nothing.
  /// Throws std::invalid_argument, and writes nothing, where sizes, boxes or channels do not fit;
  /// std::bad_alloc, when a larger picture than before finds no memory.
  void operator()(const const_pixels& in, const image_plan& plan, const pixels& out) {
    detail::check_resize(in, plan, out);
    const image_border& border = plan.border;
    const std::size_t left = plan.mirrored ? border.right : border.left;
    const pixels kept = out.part({left, border.top, plan.kept.size});
    if (plan.size() != plan.kept.size) detail::clear_around(out, {left, border.top, kept.size});
    const bool same_width = plan.crop.size.width == plan.scaled.width;
    const bool same_height = plan.crop.size.height == plan.scaled.height;
    if (options_.filter == resize_filter::nearest) {
      const const_pixels crop = in.part(plan.crop);
      if (in.channels == 1) detail::resize_nearest<1>(crop, plan, kept, columns_);
      if (in.channels == 3) detail::resize_nearest<3>(crop, plan, kept, columns_);
      if (in.channels == 4) detail::resize_nearest<4>(crop, plan, kept, columns_);
    } else if (same_width && !plan.mirrored && same_height) {
      detail::copy_rows(in.part(plan.crop).part(plan.kept), kept);
    } else {
      resample(in, plan, kept, !same_width || plan.mirrored, !same_height);
    }
  }

  /// Resizes all of `in` to the size of `out`.
  void operator()(const const_pixels& in, const pixels& out) {
    (*this)(in, {{0, 0, in.size}, out.size, {0, 0, out.size}}, out);
  }

  /// What the object was made with.
  [[nodiscard]] const resize_options& options() const noexcept { return options_; }

 private:
  void resample(const const_pixels& in, const image_plan& plan, const pixels& out, bool columns,
                bool rows) {
    const image_box& crop = plan.crop;
    const image_box& kept = plan.kept;
    if (columns) {
      make(horizontal_,
           {crop.size.width, plan.scaled.width, kept.left, kept.size.width, plan.mirrored});
    }
    if (rows) {
      make(vertical_, {crop.size.height, plan.scaled.height, kept.top, kept.size.height, false});
    }
    const const_pixels source = in.part(crop);
    // The last row may end where the memory does.
    const std::uint8_t* const end = in.row(in.size.height - 1) + in.size.width * in.channels;
    if (!rows) {
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
    if (table.was_made_for(span)) return;
    if (span.length == span.scaled) {
      table.make_identity();
    } else if (options_.filter == resize_filter::box) {
      table.make(detail::box_weight{});
    } else if (options_.filter == resize_filter::bilinear) {
      table.make(detail::bilinear_weight{});
    } else if (options_.filter == resize_filter::hamming) {
      table.make(detail::hamming_weight{});
    } else if (options_.filter == resize_filter::bicubic) {
      table.make(detail::bicubic_weight{});
    } else {
      table.make(detail::lanczos_weight{});
    }
    detail::arrange_coefficients(path_, table);
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
