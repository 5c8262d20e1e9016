// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <penstock/core/record.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/image/detail/decode/decode_dataset.hpp>
#include <penstock_ext/image/geometry.hpp>
#include <penstock_ext/image/image_decoder.hpp>
#include <penstock_ext/image/resize.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What a decoded picture is in a batch: rows of pixels of three values (height, width, RGB), and
/// the label that the blob source gives.
using image_record =
    record<field<"image", std::uint8_t, dyn, dyn, 3>, field<"label", std::int64_t>>;

/// How pictures are decoded and resized.
struct decode_options {
  /// The filter and the order of passes.
  resize_options resize = {};
  /// Where the crop is at least twice as large as the target, decode it at 1/2, 1/4 or 1/8 of its
  /// size if the decoder can. Faster for large pictures, and not exact: pixels are averaged in
  /// blocks first, and the crop grows to whole blocks.
  bool scaled = false;
};

namespace detail {

/// What `decode_images(...)` returns: `photos | decode_images<jpeg_decoder>(geometry)`.
template <image_geometry Geometry, image_decoder... Decoders>
class decode_adaptor {
 public:
  /// Holds what a dataset is made with until a blob source comes.
  decode_adaptor(Geometry geometry, const decode_options& options, Decoders... decoders)
      : geometry_(std::move(geometry)), options_(options), decoders_(std::move(decoders)...) {}

  /// The dataset of the decoded pictures of `source`: an lvalue is referred to and must outlive it,
  /// an rvalue is moved in.
  template <class Source>
  friend auto operator|(Source&& source, decode_adaptor self) {
    using blobs = std::remove_cvref_t<Source>;
    static_assert(blob_source<blobs>,
                  "penstock::decode_images: it takes a blob source: size(), bytes(index, buffer), "
                  "label(index) and key(index), all const");
    // One sentence, and no page of unmet constraints after it.
    if constexpr (blob_source<blobs>) {
      using stored = std::conditional_t<std::is_lvalue_reference_v<Source>, blob_ref<blobs>, blobs>;
      return decode_dataset<image_record, stored, Geometry, Decoders...>{
          stored(std::forward<Source>(source)), std::move(self.geometry_), self.options_.resize,
          self.options_.scaled, std::move(self.decoders_)};
    }
  }

 private:
  Geometry geometry_;
  decode_options options_;
  std::tuple<Decoders...> decoders_;
};

}  // namespace detail

/// Decodes the pictures of a blob source into a dataset of `image_record`:
///
///     auto train = photos | decode_images<jpeg_decoder, png_decoder>(random_resized_crop{224});
///
/// For each sample the geometry draws its plan by the sample's own random bits, knowing the
/// picture's size; then only the crop is decoded, by the first of the decoders whose `matches` says
/// so, and resized straight into its place in the batch. By the content: names don't count.
///
/// Errors of the blob source, of the decoder and of the geometry reach the consumer at that batch's
/// turn, or go to `on_error`; a picture that no decoder knows is an `image_unsupported` with its
/// format's name. Reading is thread-safe; the dataset keeps one set of decoders, of memory for an
/// encoded picture and for a crop for each thread that has read at the same time as others.
template <image_decoder... Decoders, image_geometry Geometry>
  requires(sizeof...(Decoders) > 0)
[[nodiscard]] auto decode_images(Geometry geometry, const decode_options& options = {}) {
  return detail::decode_adaptor<Geometry, Decoders...>{std::move(geometry), options, Decoders{}...};
}

/// With decoders that have options: `decode_images(center_crop{224}, {}, jpeg_decoder{{.strict =
/// false}}, png_decoder{})`. Each thread has a copy of each.
template <image_geometry Geometry, image_decoder... Decoders>
  requires(sizeof...(Decoders) > 0)
[[nodiscard]] auto decode_images(Geometry geometry, const decode_options& options,
                                 Decoders... decoders) {
  return detail::decode_adaptor<Geometry, Decoders...>{std::move(geometry), options,
                                                       std::move(decoders)...};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
