// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <nvimgcodec.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <penstock_ext/image/detail/decode/decode_end.hpp>
#include <penstock_ext/image/detail/decode/decode_formats.hpp>
#include <penstock_ext/image/image_decoder.hpp>
#include <penstock_ext/image/image_error.hpp>
#include <penstock_ext/image/nvimgcodec/detail/nvimgcodec_handles.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Whether nvImageCodec has a decoder for pictures that start like `bytes`.
[[nodiscard]] inline bool nvimgcodec_reads(std::span<const std::byte> bytes) noexcept {
  const std::string_view format = image_format_of(bytes);
  return format == "JPEG" || format == "PNG" || format == "WebP" || format == "TIFF" ||
         format == "JPEG 2000" || format == "BMP" || format == "PPM";
}

/// Throws what is wrong with `bytes`, of which nvImageCodec says that something is.
[[noreturn]] inline void throw_unsound(std::span<const std::byte> bytes, std::string_view key,
                                       const std::string& found) {
  const std::string format{image_format_of(bytes)};
  if (picture_ends_early(bytes)) {
    throw image_truncated(std::string{key}, bytes.size(), "the rest of the " + format + " picture",
                          "the end of its bytes");
  }
  throw image_corrupt(std::string{key}, 0, "a sound " + format + " picture", found);
}

/// Throws what the status of a picture that was not decoded means; `where` is the back end.
[[noreturn]] inline void throw_undecoded(nvimgcodecProcessingStatus_t status,
                                         std::span<const std::byte> bytes, std::string_view key,
                                         std::string_view where) {
  const std::string found = "nvImageCodec's processing status " + std::to_string(status);
  // The status is that of the decoder that tried last, which may have given up on something else.
  if (status == NVIMGCODEC_PROCESSING_STATUS_FAIL ||
      status == NVIMGCODEC_PROCESSING_STATUS_IMAGE_CORRUPTED || picture_ends_early(bytes)) {
    throw_unsound(bytes, key, found);
  }
  if (status == NVIMGCODEC_PROCESSING_STATUS_UNKNOWN ||
      status == NVIMGCODEC_PROCESSING_STATUS_SATURATED) {
    throw nvimgcodec_error(std::string{key} + ": not decoded: " + found);
  }
  throw image_unsupported(std::string{key}, 0,
                          "a " + std::string{image_format_of(bytes)} +
                              " picture that nvImageCodec's back end " + std::string{where} +
                              " decodes to 8-bit RGB",
                          found);
}

/// An encoded picture that nvImageCodec has read the header of. Refers to its bytes.
struct nvimgcodec_opened {
  nvimgcodec_stream whole;
  nvimgcodec_stream part;  // of `whole`, and destroyed before it; none where all of it is decoded
  image_info info;

  /// What is to be decoded.
  [[nodiscard]] nvimgcodecCodeStream_t chosen() const noexcept {
    return part ? part.get() : whole.get();
  }
};

/// Opens a picture of at most `most_pixels`, an option of the type `options`. Takes memory for the
/// header only. Throws what `image_decoder` says.
[[nodiscard]] inline nvimgcodec_opened nvimgcodec_open(nvimgcodecInstance_t instance,
                                                       std::span<const std::byte> bytes,
                                                       std::string_view key,
                                                       std::uint64_t most_pixels,
                                                       std::string_view options) {
  if (!nvimgcodec_reads(bytes)) {
    const std::string expected = "a picture of a format that nvImageCodec reads";
    if (bytes.size() < 3) throw image_truncated(std::string{key}, 0, expected, found_image(bytes));
    throw image_unsupported(std::string{key}, 0, expected, found_image(bytes));
  }
  // Some back ends make up what is missing at a picture's end, without a word.
  if (picture_ends_early(bytes)) throw_unsound(bytes, key, {});

  nvimgcodecCodeStream_t made = nullptr;
  const nvimgcodecStatus_t created = nvimgcodecCodeStreamCreateFromHostMem(
      instance, &made, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), nullptr);
  nvimgcodec_stream stream{made};
  nvimgcodec_check(created, "nvimgcodecCodeStreamCreateFromHostMem");
  auto header = nvimgcodec_struct<nvimgcodecImageInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO);
  const nvimgcodecStatus_t status = nvimgcodecCodeStreamGetImageInfo(stream.get(), &header);
  if (status == NVIMGCODEC_STATUS_ALLOCATOR_FAILURE) throw std::bad_alloc();
  if (status != NVIMGCODEC_STATUS_SUCCESS) {
    throw_unsound(
        bytes, key,
        "a header that nvImageCodec gives status " + std::to_string(static_cast<int>(status)));
  }

  const image_size size{header.plane_info[0].width, header.plane_info[0].height};
  const std::string text = std::to_string(size.width) + " x " + std::to_string(size.height);
  if (size.width == 0 || size.height == 0) {
    throw image_corrupt(std::string{key}, 0, "a width and a height", text);
  }
  if (std::uint64_t{size.width} * size.height > most_pixels) {
    throw image_too_large(std::string{key}, 0,
                          "at most " + std::to_string(most_pixels) + " pixels (" +
                              std::string{options} + "::most_pixels)",
                          text);
  }
  std::size_t channels = 0;
  for (std::uint32_t plane = 0; plane < header.num_planes; ++plane) {
    channels += header.plane_info[plane].num_channels;
  }
  return {std::move(stream), {}, {size, channels, 1}};
}

/// Chooses the part `box` of an opened picture.
inline void nvimgcodec_choose(nvimgcodec_opened& picture, const image_box& box) {
  if (box == image_box{0, 0, picture.info.size}) return;  // not all back ends know regions
  auto view =
      nvimgcodec_struct<nvimgcodecCodeStreamView_t>(NVIMGCODEC_STRUCTURE_TYPE_CODE_STREAM_VIEW);
  view.region = nvimgcodec_struct<nvimgcodecRegion_t>(NVIMGCODEC_STRUCTURE_TYPE_REGION);
  view.region.ndim = 2;
  view.region.start[0] = static_cast<int>(box.top);
  view.region.start[1] = static_cast<int>(box.left);
  view.region.end[0] = static_cast<int>(box.top + box.size.height);
  view.region.end[1] = static_cast<int>(box.left + box.size.width);
  nvimgcodecCodeStream_t made = nullptr;
  const nvimgcodecStatus_t status =
      nvimgcodecCodeStreamGetSubCodeStream(picture.whole.get(), &made, &view);
  picture.part.reset(made);
  nvimgcodec_check(status, "nvimgcodecCodeStreamGetSubCodeStream");
}

/// The memory `out` as nvImageCodec knows it; what is written there is in order before later work
/// on `stream`.
[[nodiscard]] inline nvimgcodec_image nvimgcodec_target(nvimgcodecInstance_t instance,
                                                        const pixels& out,
                                                        nvimgcodecImageBufferKind_t kind,
                                                        cudaStream_t stream) {
  auto info = nvimgcodec_struct<nvimgcodecImageInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO);
  info.sample_format = NVIMGCODEC_SAMPLEFORMAT_I_RGB;
  info.color_spec = NVIMGCODEC_COLORSPEC_SRGB;
  info.chroma_subsampling = NVIMGCODEC_SAMPLING_NONE;
  info.num_planes = 1;
  auto plane =
      nvimgcodec_struct<nvimgcodecImagePlaneInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_PLANE_INFO);
  plane.width = static_cast<std::uint32_t>(out.size.width);
  plane.height = static_cast<std::uint32_t>(out.size.height);
  plane.row_stride = out.pitch;
  plane.num_channels = 3;
  plane.sample_type = NVIMGCODEC_SAMPLE_DATA_TYPE_UINT8;
  info.plane_info[0] = plane;
  info.buffer = out.data;
  info.buffer_kind = kind;
  info.cuda_stream = stream;
  nvimgcodecImage_t made = nullptr;
  const nvimgcodecStatus_t status = nvimgcodecImageCreate(instance, &made, &info);
  nvimgcodec_image image{made};
  nvimgcodec_check(status, "nvimgcodecImageCreate");
  return image;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
