// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
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
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/geometry.hpp>
#include <penstock_ext/image/image_decoder.hpp>
#include <penstock_ext/image/pixels.hpp>
#include <penstock_ext/image/resize.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A blob source that takes hints for all that a worker reads next at once: `prefetch(indices)`.
template <class Source>
concept prefetches_chunks = requires(const Source& source, std::span<const std::uint64_t> indices) {
  { source.prefetch(indices) } noexcept;
};

/// `box`, given in pixels of `outer`, in those of the picture that `outer` lies in.
[[nodiscard]] constexpr image_box moved(const image_box& box, const image_box& outer) noexcept {
  return {outer.left + box.left, outer.top + box.top, box.size};
}

/// A plan whose crop keeps its size, with what is not kept cut off the crop.
[[nodiscard]] constexpr image_plan without_rest(image_plan plan) noexcept {
  plan.crop = moved(plan.kept, plan.crop);
  plan.scaled = plan.kept.size;
  plan.kept = {0, 0, plan.kept.size};
  return plan;
}

/// The part of the crop, in its pixels, that no filter of the resizer looks beyond for what is
/// kept; of a plan that `check_resize` lets pass.
[[nodiscard]] constexpr image_box needed_for(const image_plan& plan) noexcept {
  struct range {
    std::size_t first;
    std::size_t count;
  };
  // The widest filter reaches over three pixels on each side, of the scaled side where it shrinks;
  // one more for rounding.
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

/// The largest of 8, 4, 2 by which the crop may be decoded smaller and still be at least as large
/// as what it is resized to; 1 where there is none.
[[nodiscard]] constexpr unsigned denominator_for(const image_plan& plan) noexcept {
  for (const unsigned denominator : {8u, 4u, 2u}) {
    if (plan.crop.size.width / denominator >= plan.scaled.width &&
        plan.crop.size.height / denominator >= plan.scaled.height) {
      return denominator;
    }
  }
  return 1;
}

/// What `crop` of a picture becomes in the picture decoded to 1 / `denominator`: every pixel that it
/// touches.
[[nodiscard]] constexpr image_box scaled_down(const image_box& crop,
                                              unsigned denominator) noexcept {
  const std::size_t left = crop.left / denominator;
  const std::size_t top = crop.top / denominator;
  const image_size end = scaled_down(
      image_size{crop.left + crop.size.width, crop.top + crop.size.height}, denominator);
  return {left, top, {end.width - left, end.height - top}};
}

/// Objects that one thread uses at a time and that are worth keeping: taken for a run of samples,
/// and given back. There are as many as readers have ever been at work at once. From any thread; a
/// lease must end before the pool does.
template <class State>
class decode_states {
 public:
  /// Makes no state yet; each will be a copy of `first`.
  explicit decode_states(State first) : first_(std::move(first)) {}
  decode_states(const decode_states&) = delete;
  decode_states& operator=(const decode_states&) = delete;

  /// Gives a state back.
  struct give_back {
    void operator()(State* state) const noexcept {
      const std::lock_guard lock{states->mutex_};
      states->free_.emplace_back(state);
    }
    decode_states* states;
  };
  /// A state for one thread, given back at the end of the scope.
  using lease = std::unique_ptr<State, give_back>;

  /// Takes one, or makes one.
  [[nodiscard]] lease take() {
    {
      const std::lock_guard lock{mutex_};
      if (!free_.empty()) {
        lease state{free_.back().release(), {this}};
        free_.pop_back();
        return state;
      }
    }
    auto state = std::make_unique<State>(first_);
    const std::lock_guard lock{mutex_};
    // Room for all that exist, so that giving back never allocates.
    free_.reserve(made_ + 1);
    ++made_;
    return {state.release(), {this}};
  }

 private:
  const State first_;
  std::mutex mutex_;  // guards the next two
  std::vector<std::unique_ptr<State>> free_;
  std::size_t made_ = 0;
};

/// A dataset of decoded pictures over encoded ones, see `decode_images`. `Held` is a blob source,
/// or a pointer to one that is not owned and outlives the dataset.
template <penstock::record_type Record, class Held, image_geometry Geometry,
          image_decoder... Decoders>
class decode_dataset {
  using Source = std::remove_const_t<std::remove_pointer_t<Held>>;

 public:
  using record_type = Record;
  static constexpr std::uint32_t stages = 1;
  static constexpr bool borrows = std::is_pointer_v<Held> || detail::borrows<Source>;

  /// Decodes what `held` has; `decoders` are the models of those of each thread.
  decode_dataset(Held held, Geometry geometry, const resize_options& resize, bool scaled,
                 std::tuple<Decoders...> decoders)
      : held_(std::move(held)),
        geometry_(std::move(geometry)),
        scaled_(scaled),
        states_(std::make_unique<decode_states<state>>(state{std::move(decoders), resize})) {}

  [[nodiscard]] std::uint64_t size() const { return source().size(); }

  [[nodiscard]] record_extents<record_type> extents() const {
    const image_size size = geometry_.size();
    return {{size.height, size.width}, {}};
  }

  /// Reads, decodes and resizes the pictures one by one, each straight into its place.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                  const chunk_context& context) const {
    const auto taken = states_->take();
    // Not the first, which is needed now: a thread that waits for one waits for all.
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
  /// Hints for all that come, also far ahead.
  void prefetch_hint(std::span<const std::uint64_t> indices) const
    requires prefetches<Source>
  {
    if constexpr (prefetches_chunks<Source>) {
      source().prefetch(indices);
    } else {
      for (const std::uint64_t index : indices) source().prefetch(index);
    }
  }
  [[nodiscard]] std::vector<std::string> warnings() const { return warnings_of(source()); }
  /// Of a picture whose bytes the source does not know: the mean of those that were read so far.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const {
    const std::uint64_t known = storage_size_of(source(), index);
    return known != 0 ? known : read_->value();
  }
  [[nodiscard]] std::uint64_t prefetch_capacity() const
    requires bounds_prefetch<Source>
  {
    return source().prefetch_capacity();
  }
  void access_plan(std::span<const std::uint64_t> indices) const
    requires accepts_access_plans<Source>
  {
    source().access_plan(indices);
  }
  [[nodiscard]] std::uint64_t plan_capacity() const
    requires accepts_access_plans<Source>
  {
    return plan_capacity_of(source());
  }

 private:
  // What a thread decodes with. Copied before it was used only.
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
    if (index >= size()) throw index_error("decode_images", index, size());
    const std::span<const std::byte> bytes = source().bytes(index, with.blob);
    read_->add(bytes.size());
    const transform_scope timed = context.transform();
    const std::string key = source().key(index);
    const image_size size = geometry_.size();
    auto* place = reinterpret_cast<std::uint8_t*>(out.address(0));
    const pixels slot{place, size, 3, size.width * 3};
    const auto decode_by = [&](auto& decoder) {
      if (!decoder.matches(bytes)) return false;
      decode(decoder, with, bytes, key, random, slot);
      return true;
    };
    const bool is_decoded = std::apply(
        [&](Decoders&... decoders) { return (decode_by(decoders) || ...); }, with.decoders);
    if (!is_decoded) {
      if (bytes.empty()) throw image_truncated(key, 0, "a picture", found_image(bytes));
      throw image_unsupported(key, 0, "a picture of a format that decode_images was given",
                              found_image(bytes));
    }
    const std::int64_t label = source().label(index);
    std::memcpy(out.address(1), &label, sizeof label);
  }

  // The geometry's plan for a picture of `size` that goes to `slot`; exceptions name the picture.
  image_plan plan_of(const image_size& size, sample_generator& random, const std::string& key,
                     const pixels& slot) const {
    try {
      const image_plan plan = geometry_.plan(size, random);
      check_resize({nullptr, size, 3, 0}, plan, slot);
      return plan;
    } catch (const picture_too_small& problem) {
      throw picture_too_small(key, problem);
    } catch (const std::invalid_argument& problem) {
      throw std::invalid_argument(key + ": " + problem.what());
    }
  }

  template <class Decoder>
  void decode(Decoder& decoder, state& with, std::span<const std::byte> bytes,
              const std::string& key, sample_generator& random, const pixels& slot) const {
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

  // Decodes what is needed of the crop by `decode(box, out)`, and resizes it into the slot.
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
  std::unique_ptr<decode_states<state>> states_;
  std::unique_ptr<mean_bytes> read_ = std::make_unique<mean_bytes>();
};

}  // namespace detail

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
      const auto over = [&self](auto held) {
        return decode_dataset<image_record, decltype(held), Geometry, Decoders...>{
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

/// Decodes the pictures of a blob source into a dataset of `image_record`:
///
///     auto train = photos | decode_images<jpeg_decoder, png_decoder>(random_resized_crop{224});
///
/// For each sample the geometry draws its plan by the sample's own random bits, knowing the
/// picture's size; then only the crop is decoded, by the first of the decoders whose `matches` says
/// so, and resized straight into its place in the batch. By the content: names don't count.
///
/// Errors of the blob source, of the decoder and of the geometry reach the consumer at that batch's
/// turn, or go to `faults.on_error`; a picture that no decoder knows is an `image_unsupported` with
/// its format's name. Reading is thread-safe; the dataset keeps one set of decoders, of memory for
/// an encoded picture and for a crop for each thread that has read at the same time as others.
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
