// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/blob/support/state_pool.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/geometry.hpp>
#include <penstock_ext/image/image_decoder.hpp>
#include <penstock_ext/image/pixels.hpp>
#include <penstock_ext/image/resize.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A blob source with a `prefetch(indices)` member for several blobs.
template <class Source>
concept prefetches_chunks = requires(const Source& source, std::span<const std::uint64_t> indices) {
  { source.prefetch(indices) } noexcept;
};

/// Converts `box` from `outer` coordinates to the coordinates of the image that contains `outer`.
[[nodiscard]] constexpr image_box moved(const image_box& box, const image_box& outer) noexcept {
  return {outer.left + box.left, outer.top + box.top, box.size};
}

/// Shrinks the crop of `plan`, which must not resize, to the kept part.
[[nodiscard]] constexpr image_plan without_rest(image_plan plan) noexcept {
  plan.crop = moved(plan.kept, plan.crop);
  plan.scaled = plan.kept.size;
  plan.kept = {0, 0, plan.kept.size};
  return plan;
}

/// Returns the part of the crop, in crop pixels, that a resize filter needs to compute the kept
/// part. The plan must satisfy `check_resize`.
[[nodiscard]] constexpr image_box needed_for(const image_plan& plan) noexcept {
  struct range {
    std::size_t first;
    std::size_t count;
  };
  // The widest filter extends three pixels to each side, measured in result pixels when shrinking.
  // One more pixel allows for rounding.
  const auto needed = [](std::size_t length, std::size_t scaled, const range& kept) -> range {
    const std::size_t reach = length > scaled ? 3 * length / scaled + 2 : 4;
    const std::size_t first = kept.first * length / scaled;
    const std::size_t end = ((kept.first + kept.count) * length + scaled - 1) / scaled;
    const std::size_t from = first - (std::min)(first, reach);
    return {from, (std::min)(length, end + reach) - from};
  };
  const range columns =
      needed(plan.crop.size.width, plan.scaled.width, {plan.kept.left, plan.kept.size.width});
  const range rows =
      needed(plan.crop.size.height, plan.scaled.height, {plan.kept.top, plan.kept.size.height});
  return {columns.first, rows.first, {columns.count, rows.count}};
}

/// Returns the largest of the denominators 8, 4, 2 and 1 at which the decoded crop is at least as
/// large as its resized size. Returns 1 if the crop itself is smaller.
[[nodiscard]] constexpr unsigned denominator_for(const image_plan& plan) noexcept {
  for (const unsigned denominator : {8u, 4u, 2u}) {
    if (plan.crop.size.width / denominator >= plan.scaled.width &&
        plan.crop.size.height / denominator >= plan.scaled.height) {
      return denominator;
    }
  }
  return 1;
}

/// Returns the region that covers all pixels of `crop` in an image decoded at 1/`denominator`
/// scale.
[[nodiscard]] constexpr image_box scaled_down(const image_box& crop,
                                              unsigned denominator) noexcept {
  const std::size_t left = crop.left / denominator;
  const std::size_t top = crop.top / denominator;
  const image_size end = scaled_down(
      image_size{crop.left + crop.size.width, crop.top + crop.size.height}, denominator);
  return {left, top, {end.width - left, end.height - top}};
}

/// Reverses the order of the pixels in each row of `out`.
template <class Value>
void mirror_rows(const basic_pixels<Value>& out) noexcept {
  for (std::size_t y = 0; y < out.size.height; ++y) {
    Value* left = out.row(y);
    Value* right = left + out.size.width * out.channels;
    for (std::size_t x = 0; x < out.size.width / 2; ++x, left += out.channels) {
      right -= out.channels;
      std::swap_ranges(left, left + out.channels, right);
    }
  }
}

/// A dataset of the decoded images of a blob source (see `decode_images`). The first field of the
/// record has 8-bit RGB or, as in `image16_record`, 16-bit values. `Held` is a blob source,
/// or a pointer to a blob source that must outlive the dataset.
template <penstock::record_type Record, class Held, image_geometry Geometry,
          image_decoder... Decoders>
class decode_dataset {
  using Source = std::remove_const_t<std::remove_pointer_t<Held>>;
  using Value = typename Record::template field_at<0>::value_type;
  using Slot = basic_pixels<Value>;
  static constexpr bool is_wide = std::is_same_v<Value, std::uint16_t>;
  static constexpr const char* name = is_wide ? "decode_images16" : "decode_images";

 public:
  using record_type = Record;
  static constexpr std::uint32_t stages = 1;
  static constexpr bool borrows = std::is_pointer_v<Held> || detail::borrows<Source>;

  /// Decodes the images of `held`. Each thread uses copies of `decoders`.
  decode_dataset(Held held, Geometry geometry, const resize_options& resize, bool scaled,
                 std::tuple<Decoders...> decoders)
      : held_(std::move(held)),
        geometry_(std::move(geometry)),
        scaled_(scaled),
        states_(std::make_unique<state_pool<state>>(state{std::move(decoders), resize})) {}

  [[nodiscard]] std::uint64_t size() const { return source().size(); }

  [[nodiscard]] record_extents<record_type> extents() const {
    const image_size size = geometry_.size();
    return {{size.height, size.width}, {}};
  }

  /// Reads, decodes and resizes the images one by one, directly into the batch.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                  const chunk_context& context) const {
    const auto taken = states_->take();
    // Excludes the first image from the hint, because it is needed now, and its read would have to
    // wait for all images in the hint.
    [[maybe_unused]] std::size_t hinted = 1;
    if constexpr (prefetches_chunks<Source>) {
      source().prefetch(indices.subspan((std::min)(indices.size(), hinted)));
    }
    for (std::size_t i = 0; i < indices.size(); ++i) {
      context.at(i);
      if constexpr (prefetches<Source> && !prefetches_chunks<Source>) {
        const std::size_t end = (std::min)(i + 1 + prefetch_distance, indices.size());
        while (hinted < end) source().prefetch(indices[hinted++]);
      }
      auto random = context.generator(i, 0);
      read(*taken, indices[i], out[i], random, context);
    }
  }

  void prefetch(std::uint64_t index) const noexcept
    requires prefetches<Source>
  {
    source().prefetch(index);
  }
  /// Forwards all hints to the source, regardless of how far ahead they are.
  void prefetch_hint(std::span<const std::uint64_t> indices) const
    requires prefetches<Source>
  {
    if constexpr (prefetches_chunks<Source>) {
      source().prefetch(indices);
    } else {
      for (const std::uint64_t index : indices) source().prefetch(index);
    }
  }
  /// Returns the encoded size of image `index` in bytes. If the source does not know the size,
  /// returns the mean of the images read so far.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const {
    const std::uint64_t known = storage_size_of(source(), index);
    return known != 0 ? known : read_->value();
  }
  [[nodiscard]] std::uint64_t prefetch_capacity() const
    requires has_prefetch_capacity<Source>
  {
    return source().prefetch_capacity();
  }
  /// Calls `f` with the source. The library forwards access plans and warnings through this
  /// function.
  template <class F>
  void each_base(std::span<const std::uint64_t> indices, const F& f) const {
    f(source(), indices);
  }

 private:
  // The decoding state of a thread. States are copied only before their first use.
  struct state {
    state(std::tuple<Decoders...> models, const resize_options& options)
        : decoders(std::move(models)), resize(options) {}
    state(const state& other) : state(other.decoders, other.resize.options()) {}

    std::tuple<Decoders...> decoders;
    resizer resize;
    blob_buffer blob;
    blob_buffer crop;
  };

  [[nodiscard]] const Source& source() const noexcept {
    if constexpr (std::is_pointer_v<Held>) {
      return *held_;
    } else {
      return held_;
    }
  }

  void read(state& with, std::uint64_t index, sample<record_type> out, sample_generator& random,
            const chunk_context& context) const {
    if (index >= size()) throw index_error(name, index, size());
    const std::span<const std::byte> bytes = source().bytes(index, with.blob);
    read_->add(bytes.size());
    const transform_scope timed = context.transform();
    const std::string key = source().key(index);
    const image_size size = geometry_.size();
    const std::size_t channels = extents().template at<0>()[2];
    auto* place = reinterpret_cast<Value*>(out.address(0));
    const Slot slot{place, size, channels, size.width * channels};
    const auto decode_by = [&](auto& decoder) {
      if (!decoder.matches(bytes)) return false;
      if constexpr (is_wide) {
        decode16(decoder, bytes, key, random, slot);
      } else {
        decode(decoder, with, bytes, key, random, slot);
      }
      return true;
    };
    const bool is_decoded = std::apply(
        [&](Decoders&... decoders) { return (decode_by(decoders) || ...); }, with.decoders);
    if (!is_decoded) {
      if (bytes.empty()) throw image_truncated(key, 0, "an image", found_image(bytes));
      throw image_unsupported(key, 0,
                              std::string{"an image of a format that "} + name + " supports",
                              found_image(bytes));
    }
    const std::int64_t label = source().label(index);
    std::memcpy(out.address(1), &label, sizeof label);
  }

  // Returns the plan for an image of `size` that will be written to `slot`. Exceptions contain the
  // image key.
  image_plan plan_of(const image_size& size, sample_generator& random, const std::string& key,
                     const Slot& slot) const {
    try {
      const image_plan plan = geometry_.plan(size, random);
      check_resize({nullptr, size, 3, 0}, plan, {nullptr, slot.size, 3, 0});
      if (is_wide && plan.crop.size != plan.scaled) {
        throw std::invalid_argument(
            "decode_images16: expected a geometry that does not resize, such as center_crop, "
            "found a crop of " +
            to_text(plan.crop.size) + " resized to " + to_text(plan.scaled));
      }
      return plan;
    } catch (const image_too_small& problem) {
      throw image_too_small(key, problem);
    } catch (const std::invalid_argument& problem) {
      throw std::invalid_argument(key + ": " + problem.what());
    }
  }

  template <class Decoder>
  void decode(Decoder& decoder, state& with, std::span<const std::byte> bytes,
              const std::string& key, sample_generator& random, const Slot& slot) const {
    const image_info info = decoder.info(bytes, key);
    image_plan plan = plan_of(info.size, random, key, slot);
    if constexpr (scaled_image_decoder<Decoder>) {
      const unsigned denominator = scaled_ ? denominator_for(plan) : 1;
      if (denominator > 1) {
        plan.crop = scaled_down(plan.crop, denominator);
        decode_crop(with, plan, slot, [&](const image_box& box, const pixels& out) {
          decoder.decode(bytes, key, box, out, denominator);
        });
        return;
      }
    }
    decode_crop(with, plan, slot, [&](const image_box& box, const pixels& out) {
      decoder.decode(bytes, key, box, out);
    });
  }

  // Decodes the kept part directly into the slot.
  template <class Decoder>
  void decode16(Decoder& decoder, std::span<const std::byte> bytes, const std::string& key,
                sample_generator& random, const Slot& slot) const {
    const image_info info = decoder.info(bytes, key);
    const image_plan plan = without_rest(plan_of(info.size, random, key, slot));
    if (slot.size != plan.kept.size) {
      std::fill_n(slot.data, slot.size.height * slot.pitch, Value{});
    }
    // The border is not mirrored yet, because mirror_rows also mirrors the border.
    decoder.decode16(bytes, key, plan.crop,
                     slot.part({plan.border.left, plan.border.top, plan.kept.size}));
    if (plan.mirrored) mirror_rows(slot);
  }

  // Decodes the required part of the crop with `decode(box, out)` and resizes it into the slot.
  template <class Decode>
  void decode_crop(state& with, image_plan plan, const pixels& slot, Decode decode) const {
    if (plan.crop.size == plan.scaled) {
      plan = without_rest(plan);
      if (!plan.mirrored && slot.size == plan.kept.size) {
        decode(plan.crop, slot);
        return;
      }
    }
    const image_box needed = needed_for(plan);
    const std::size_t pitch = plan.crop.size.width * 3;
    const auto room = with.crop.room_for(pitch * plan.crop.size.height);
    const pixels crop{reinterpret_cast<std::uint8_t*>(room.data()), plan.crop.size, 3, pitch};
    decode(moved(needed, plan.crop), crop.part(needed));
    plan.crop = {0, 0, plan.crop.size};
    with.resize(crop, plan, slot);
  }

  Held held_;
  Geometry geometry_;
  bool scaled_;
  std::unique_ptr<state_pool<state>> states_;
  std::unique_ptr<mean_bytes> read_ = std::make_unique<mean_bytes>();
};

}  // namespace detail

/// A decoded image (height x width x RGB) and its label from the blob source.
using image_record =
    record<field<"image", std::uint8_t, dyn, dyn, 3>, field<"label", std::int64_t>>;

/// A decoded image of 16 bits per channel (height x width x channels) and its label from the blob
/// source.
template <std::size_t Channels>
using image16_record =
    record<field<"image", std::uint16_t, dyn, dyn, Channels>, field<"label", std::int64_t>>;

/// Options of `decode_images`.
struct decode_options {
  /// Resize filter and pass order.
  resize_options resize = {};
  /// If true, decodes a crop at 1/2, 1/4 or 1/8 scale if the decoder supports it and the decoded
  /// crop is at least as large as the target. Scaled decoding is faster for large images but
  /// inexact, because the decoder first averages blocks of pixels and extends the crop to whole
  /// blocks.
  bool scaled = false;
};

namespace detail {

/// The adaptor returned by `decode_images`, as in `photos | decode_images<jpeg_decoder>(geometry)`.
template <record_type Record, image_geometry Geometry, image_decoder... Decoders>
class decode_adaptor {
 public:
  decode_adaptor(Geometry geometry, const decode_options& options, Decoders... decoders)
      : geometry_(std::move(geometry)), options_(options), decoders_(std::move(decoders)...) {}

  /// Returns a dataset of the decoded images of `source`. References an lvalue, which must outlive
  /// the dataset, and moves an rvalue in.
  template <class Source>
  friend auto operator|(Source&& source, decode_adaptor self) {
    using blobs = std::remove_cvref_t<Source>;
    static_assert(blob_source<blobs>,
                  "penstock::decode_images: it takes a blob source: size(), bytes(index, buffer), "
                  "label(index) and key(index), all const");
    // A static_assert reports the error in one sentence instead of a page of unsatisfied
    // constraints.
    if constexpr (blob_source<blobs>) {
      const auto over = [&self](auto held) {
        return decode_dataset<Record, decltype(held), Geometry, Decoders...>{
            std::move(held), std::move(self.geometry_), self.options_.resize, self.options_.scaled,
            std::move(self.decoders_)};
      };
      if constexpr (std::is_lvalue_reference_v<Source>) {
        return over(&std::as_const(source));
      } else {
        return over(std::forward<Source>(source));
      }
    }
  }

 private:
  Geometry geometry_;
  decode_options options_;
  std::tuple<Decoders...> decoders_;
};

}  // namespace detail

/// Returns an adaptor that decodes the images of a blob source into a dataset of `image_record`:
///
///     auto train = photos | decode_images<jpeg_decoder, png_decoder>(random_resized_crop{224});
///
/// For each sample, the geometry draws a plan from the image size and the sample's generator. The
/// first decoder whose `matches` returns true decodes only the crop, which is resized directly into
/// the batch. Decoders are chosen by content, not by file name.
///
/// Errors of the blob source, the decoder and the geometry reach the consumer with the batch or are
/// passed to `faults.on_error`. An image that no decoder matches causes `image_unsupported` with
/// the format name. Reading is thread-safe. For each concurrent reader, the dataset keeps a set of
/// decoders and memory for one encoded image and one crop.
template <image_decoder... Decoders, image_geometry Geometry>
  requires(sizeof...(Decoders) > 0)
[[nodiscard]] auto decode_images(Geometry geometry, const decode_options& options = {}) {
  return detail::decode_adaptor<image_record, Geometry, Decoders...>{std::move(geometry), options,
                                                                     Decoders{}...};
}

/// Returns an adaptor for decoders with options, for example
/// `decode_images(center_crop{224}, {}, jpeg_decoder{{.strict = false}}, png_decoder{})`. Each
/// thread has its own copies of the decoders.
template <image_geometry Geometry, image_decoder... Decoders>
  requires(sizeof...(Decoders) > 0)
[[nodiscard]] auto decode_images(Geometry geometry, const decode_options& options,
                                 Decoders... decoders) {
  return detail::decode_adaptor<image_record, Geometry, Decoders...>{std::move(geometry), options,
                                                                     std::move(decoders)...};
}

/// Returns an adaptor that decodes the images of a blob source into a dataset of
/// `image16_record<Channels>`, without loss:
///
///     auto depths = maps | decode_images16<1, png_decoder>(center_crop{{640, 480}});
///
/// Equals `decode_images` in all other respects, except that the geometry must not resize. A
/// geometry that resizes an image causes std::invalid_argument with the image key, so `whole`
/// requires images of exactly its size. An image that cannot be converted to `Channels` channels
/// of 16 bits without loss causes `image_unsupported`.
template <std::size_t Channels, image16_decoder... Decoders, image_geometry Geometry>
  requires(sizeof...(Decoders) > 0 && Channels > 0 && Channels <= 4)
[[nodiscard]] auto decode_images16(Geometry geometry) {
  return detail::decode_adaptor<image16_record<Channels>, Geometry, Decoders...>{
      std::move(geometry), {}, Decoders{}...};
}

/// Returns an adaptor for decoders with options, for example
/// `decode_images16<1>(random_crop{224}, png_decoder{{.widen = true}})`. Each thread has its own
/// copies of the decoders.
template <std::size_t Channels, image_geometry Geometry, image16_decoder... Decoders>
  requires(sizeof...(Decoders) > 0 && Channels > 0 && Channels <= 4)
[[nodiscard]] auto decode_images16(Geometry geometry, Decoders... decoders) {
  return detail::decode_adaptor<image16_record<Channels>, Geometry, Decoders...>{
      std::move(geometry), {}, std::move(decoders)...};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
