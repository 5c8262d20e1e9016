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
#include <penstock/data/dataset.hpp>
#include <penstock/data/run_context.hpp>
#include <penstock/data/support/mean_bytes.hpp>
#include <penstock_ext/blob/blob_buffer.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/detail/decode/blob_ref.hpp>
#include <penstock_ext/image/detail/decode/decode_formats.hpp>
#include <penstock_ext/image/detail/decode/decode_plan.hpp>
#include <penstock_ext/image/detail/decode/decode_states.hpp>
#include <penstock_ext/image/geometry.hpp>
#include <penstock_ext/image/image_decoder.hpp>
#include <penstock_ext/image/image_error.hpp>
#include <penstock_ext/image/pixels.hpp>
#include <penstock_ext/image/resize.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A dataset of decoded pictures over encoded ones, see `decode_images`.
template <penstock::record_type Record, blob_source Source, image_geometry Geometry,
          image_decoder... Decoders>
class decode_dataset {
 public:
  using record_type = Record;
  static constexpr std::uint32_t stages = 1;
  static constexpr bool borrows = detail::borrows<Source>;

  /// Decodes what `source` has; `decoders` are the models of those of each thread.
  decode_dataset(Source source, Geometry geometry, const resize_options& resize, bool scaled,
                 std::tuple<Decoders...> decoders)
      : source_(std::move(source)),
        geometry_(std::move(geometry)),
        scaled_(scaled),
        states_(std::make_unique<decode_states<state>>(state{std::move(decoders), resize})) {}

  [[nodiscard]] std::uint64_t size() const { return source_.size(); }

  [[nodiscard]] record_extents<record_type> extents() const {
    const image_size size = geometry_.size();
    return {{size.height, size.width}, {}};
  }

  /// Reads, decodes and resizes the pictures one by one, each straight into its place.
  void read_run(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                const run_context& context) const {
    const typename decode_states<state>::lease taken{*states_};
    if constexpr (prefetches_runs<Source>) {
      // Not the first, which is needed now: a thread that waits for one waits for all.
      source_.prefetch(indices.subspan((std::min)(indices.size(), std::size_t{1})));
    } else if constexpr (prefetches<Source>) {
      for (std::size_t i = 1; i < (std::min)(prefetch_distance, indices.size()); ++i) {
        source_.prefetch(indices[i]);
      }
    }
    for (std::size_t i = 0; i < indices.size(); ++i) {
      context.at(i);
      if constexpr (prefetches<Source> && !prefetches_runs<Source>) {
        if (i + prefetch_distance < indices.size()) {
          source_.prefetch(indices[i + prefetch_distance]);
        }
      }
      auto random = context.generator(i, 0);
      read(*taken, indices[i], out[i], random, context);
    }
  }

  void prefetch(std::uint64_t index) const noexcept requires prefetches<Source> {
    source_.prefetch(index);
  }
  /// Hints for all that come, also far ahead.
  void will_read(std::span<const std::uint64_t> indices) const requires prefetches<Source> {
    if constexpr (prefetches_runs<Source>) {
      source_.prefetch(indices);
    } else {
      for (const std::uint64_t index : indices) source_.prefetch(index);
    }
  }
  [[nodiscard]] std::vector<std::string> warnings() const { return warnings_of(source_); }
  /// Of a picture whose bytes the source does not know: the mean of those that were read so far.
  [[nodiscard]] std::uint64_t stored_bytes(std::uint64_t index) const {
    const std::uint64_t known = stored_bytes_of(source_, index);
    return known != 0 ? known : read_->value();
  }
  [[nodiscard]] std::uint64_t most_ahead() const requires bounds_plans<Source> {
    return source_.most_ahead();
  }
  void foresee(std::span<const std::uint64_t> indices) const requires foresees<Source> {
    source_.foresee(indices);
  }
  [[nodiscard]] std::uint64_t most_foreseen() const requires foresees<Source> {
    return most_foreseen_of(source_);
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

  void read(state& with, std::uint64_t index, sample<record_type> out, sample_generator& random,
            const run_context& context) const {
    if (index >= size()) throw index_error("decode_images", index, size());
    const std::span<const std::byte> bytes = source_.bytes(index, with.blob);
    read_->add(bytes.size());
    const transform_scope timed = context.transform();
    const std::string key = source_.key(index);
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
    const std::int64_t label = source_.label(index);
    std::memcpy(out.address(1), &label, sizeof label);
  }

  // What the geometry says of a picture of `size`; what it throws names the picture.
  image_plan plan_of(const image_size& size, sample_generator& random,
                     const std::string& key) const {
    try {
      return geometry_.plan(size, random);
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
    image_plan plan = plan_of(info.size, random, key);
    if (!is_part_of(plan.crop, info.size)) {
      throw std::invalid_argument(
          "decode_images: " + key + " is " + std::to_string(info.size.width) + " x " +
          std::to_string(info.size.height) + ", and the crop of the geometry does not lie inside");
    }
    if constexpr (scaled_image_decoder<Decoder>) {
      const unsigned denominator = scaled_ ? denominator_for(plan) : 1;
      if (denominator > 1) {
        plan.crop = scaled_down(plan.crop, denominator, info.size);
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
    const bool same_size = plan.crop.size == plan.scaled && is_part_of(plan.kept, plan.scaled);
    if (same_size) plan = without_rest(plan);
    if (same_size && !plan.mirrored && plan.size() == plan.kept.size &&
        slot.size == plan.kept.size) {
      decode(plan.crop, slot);
      return;
    }
    const image_box needed = needed_for(plan);
    const std::size_t pitch = plan.crop.size.width * 3;
    const auto room = with.crop.room_for(pitch * plan.crop.size.height);
    const pixels crop{reinterpret_cast<std::uint8_t*>(room.data()), plan.crop.size, 3, pitch};
    decode(moved(needed, plan.crop), crop.part(needed));
    plan.crop = {0, 0, plan.crop.size};
    with.resize(crop, plan, slot);
  }

  Source source_;
  Geometry geometry_;
  bool scaled_;
  std::unique_ptr<decode_states<state>> states_;
  std::unique_ptr<mean_bytes> read_ = std::make_unique<mean_bytes>();
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
