// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <nvimgcodec.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <penstock_ext/image/image_decoder.hpp>
#include <penstock_ext/image/nvimgcodec/detail/nvimgcodec_session.hpp>
#include <penstock_ext/image/nvimgcodec/nvimgcodec_error.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What an `nvimgcodec_decoder` refuses.
struct nvimgcodec_options {
  /// A picture of more pixels is refused before memory is taken.
  std::uint64_t most_pixels = std::uint64_t{1} << 27;
};

/// Decodes pictures, or parts of them, to 8-bit RGB by the CPU back ends of nvImageCodec (0.9 or
/// newer; the CMake target `penstock::nvimgcodec`): JPEG, PNG, WebP, TIFF, JPEG 2000, BMP and PPM.
/// Needs no GPU and no driver. An `image_decoder`.
///
/// Pictures are decoded on the calling thread, as they are stored: EXIF orientation is ignored.
/// Throws `image_truncated`, `image_corrupt`, `image_unsupported`, `image_too_large`, without the
/// byte where it is not known; std::invalid_argument for a box outside the picture; std::bad_alloc;
/// `nvimgcodec_error` where the library fails. What ends early is found before it is decoded, by
/// end marks and lengths, in JPEG, PNG, WebP and BMP; damage within a JPEG picture is filled up as
/// libjpeg does, and does not report it; `jpeg_decoder` does. The libraries below write
/// remarks of their own to the standard error output.
///
/// Formats other than JPEG and PNG are for files that are trusted: nvImageCodec's own decoders of
/// them are not hardened, and a hostile file may make them read and write out of bounds. TIFF of
/// two channels, of signed values or of floats is an `image_unsupported`.
///
/// One object is for one thread at a time. Copies share what nvImageCodec has loaded and decode by
/// objects of their own; those of a picture are made anew for every picture.
class nvimgcodec_decoder {
 public:
  /// Loads nvImageCodec. Throws `nvimgcodec_error` where that fails.
  explicit nvimgcodec_decoder(const nvimgcodec_options& options = {})
      : options_(options), instance_(detail::nvimgcodec_load()) {}
  /// Copies the options, and shares what is loaded.
  nvimgcodec_decoder(const nvimgcodec_decoder& other)
      : options_(other.options_), instance_(other.instance_) {}
  /// Copies the options, and shares what is loaded.
  nvimgcodec_decoder& operator=(const nvimgcodec_decoder& other) {
    if (this == &other) return *this;
    pass_.reset();
    options_ = other.options_;
    instance_ = other.instance_;
    return *this;
  }
  ~nvimgcodec_decoder() = default;

  /// Whether the bytes start as those of a format that nvImageCodec reads do.
  [[nodiscard]] bool matches(std::span<const std::byte> bytes) const noexcept {
    return detail::nvimgcodec_reads(bytes);
  }

  /// Parses the header; `channels` counts alpha.
  [[nodiscard]] image_info info(std::span<const std::byte> bytes, std::string_view key) const {
    return open(bytes, key).info;
  }

  /// Decodes the part `box` of the picture into `out`, which has the box's size and three channels.
  void decode(std::span<const std::byte> bytes, std::string_view key, const image_box& box,
              const pixels& out) {
    detail::nvimgcodec_opened picture = open(bytes, key);
    detail::require_box("nvimgcodec_decoder", box, picture.info.size, out);
    detail::nvimgcodec_choose(picture, box);
    const detail::nvimgcodec_image target = detail::nvimgcodec_target(
        instance_.get(), out, NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_HOST, nullptr);
    const std::array<nvimgcodecCodeStream_t, 1> streams{picture.chosen()};
    const std::array<nvimgcodecImage_t, 1> images{target.get()};
    const nvimgcodecProcessingStatus_t status = pass().decode(streams, images).front();
    if (status != NVIMGCODEC_PROCESSING_STATUS_SUCCESS) {
      detail::throw_undecoded(status, bytes, key, "cpu");
    }
  }

  /// What the object was made with.
  [[nodiscard]] const nvimgcodec_options& options() const noexcept { return options_; }

 private:
  [[nodiscard]] detail::nvimgcodec_opened open(std::span<const std::byte> bytes,
                                               std::string_view key) const {
    return detail::nvimgcodec_open(instance_.get(), bytes, key, options_.most_pixels,
                                   "nvimgcodec_options");
  }

  [[nodiscard]] detail::nvimgcodec_pass& pass() {
    if (!pass_) {
      constexpr std::array<nvimgcodecBackendKind_t, 1> cpu{NVIMGCODEC_BACKEND_KIND_CPU_ONLY};
      auto made = std::make_unique<detail::nvimgcodec_pass>(instance_.get(),
                                                            NVIMGCODEC_DEVICE_CPU_ONLY, cpu, 1);
      detail::nvimgcodec_check(made->status(), "nvimgcodecDecoderCreate");
      pass_ = std::move(made);
    }
    return *pass_;
  }

  nvimgcodec_options options_;
  // Outlives the pass, which is made of it.
  std::shared_ptr<nvimgcodecInstance> instance_;
  std::unique_ptr<detail::nvimgcodec_pass> pass_;
};

static_assert(image_decoder<nvimgcodec_decoder>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
