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

/// Limits of an `nvimgcodec_decoder`.
struct nvimgcodec_options {
  /// Maximum number of pixels per image, checked before memory is allocated.
  std::uint64_t max_pixels = std::uint64_t{1} << 27;
};

/// An `image_decoder` for JPEG, PNG, WebP, TIFF, JPEG 2000, BMP and PPM. Decodes images or regions
/// to 8-bit RGB with the CPU back ends of nvImageCodec (0.9 or newer; CMake target
/// `penstock::nvimgcodec`). Does not require a GPU or driver.
///
/// Decodes on the calling thread, without applying the EXIF orientation. Throws `image_truncated`,
/// `image_corrupt`, `image_unsupported` or `image_too_large`, with offset 0 if the position is
/// unknown; std::invalid_argument for a box outside the image; std::bad_alloc; and
/// `nvimgcodec_error` if the library fails. Truncated JPEG, PNG, WebP and BMP images are detected
/// before decoding, by end markers and lengths. Damage within a JPEG image is filled as in libjpeg
/// without an error, whereas `jpeg_decoder` reports it. The libraries that nvImageCodec uses print
/// their own messages to standard error.
///
/// Decode formats other than JPEG and PNG only from trusted files. nvImageCodec's own decoders for
/// them are not hardened, and a malicious file may make them read and write out of bounds. TIFF
/// images with two channels, signed values or floats cause `image_unsupported`.
///
/// Not thread-safe. Copies share the loaded nvImageCodec library but have separate decoders.
class nvimgcodec_decoder {
 public:
  /// Loads nvImageCodec. Throws `nvimgcodec_error` if loading fails.
  explicit nvimgcodec_decoder(const nvimgcodec_options& options = {})
      : options_(options), instance_(detail::nvimgcodec_load()) {}
  /// Copies the options, and shares the loaded library.
  nvimgcodec_decoder(const nvimgcodec_decoder& other)
      : options_(other.options_), instance_(other.instance_) {}
  /// Copies the options, and shares the loaded library.
  nvimgcodec_decoder& operator=(const nvimgcodec_decoder& other) {
    if (this == &other) return *this;
    pass_.reset();
    options_ = other.options_;
    instance_ = other.instance_;
    return *this;
  }
  ~nvimgcodec_decoder() = default;

  /// Returns true if `bytes` start with the signature of a format that nvImageCodec supports.
  [[nodiscard]] bool matches(std::span<const std::byte> bytes) const noexcept {
    return detail::nvimgcodec_reads(bytes);
  }

  /// Parses the header. `channels` counts the alpha channel.
  [[nodiscard]] image_info info(std::span<const std::byte> bytes, std::string_view key) const {
    return open(bytes, key).info;
  }

  /// Decodes the part `box` of the image into `out`, which must have the box size and three
  /// channels.
  void decode(std::span<const std::byte> bytes, std::string_view key, const image_box& box,
              const pixels& out) {
    detail::nvimgcodec_opened image = open(bytes, key);
    detail::require_box("nvimgcodec_decoder", box, image.info.size, out);
    detail::nvimgcodec_choose(image, box);
    const detail::nvimgcodec_image_ptr target = detail::nvimgcodec_target(
        instance_.get(), out, NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_HOST, nullptr);
    const std::array<nvimgcodecCodeStream_t, 1> streams{image.chosen()};
    const std::array<nvimgcodecImage_t, 1> images{target.get()};
    const nvimgcodecProcessingStatus_t status = pass().decode(streams, images).front();
    if (status != NVIMGCODEC_PROCESSING_STATUS_SUCCESS) {
      detail::throw_undecoded(status, bytes, key, "cpu");
    }
  }

  /// Returns the options passed to the constructor.
  [[nodiscard]] const nvimgcodec_options& options() const noexcept { return options_; }

 private:
  [[nodiscard]] detail::nvimgcodec_opened open(std::span<const std::byte> bytes,
                                               std::string_view key) const {
    return detail::nvimgcodec_open(instance_.get(), bytes, key, options_.max_pixels,
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
  // Declared first, because the instance must outlive the pass.
  std::shared_ptr<nvimgcodecInstance> instance_;
  std::unique_ptr<detail::nvimgcodec_pass> pass_;
};

static_assert(image_decoder<nvimgcodec_decoder>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
