// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <nvimgcodec.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/device/device.hpp>
#include <penstock_ext/image/image_decoder.hpp>
#include <penstock_ext/image/nvimgcodec/detail/nvimgcodec_session.hpp>
#include <penstock_ext/image/nvimgcodec/nvimgcodec_error.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Back ends of nvImageCodec, in the order in which `nvimgcodec_batch` tries them.
enum class nvimgcodec_backend : std::uint8_t {
  any,     ///< the first of the following back ends that succeeds
  gpu,     ///< only the GPU, with its JPEG engine if present, otherwise with kernels
  hybrid,  ///< partly the CPU, for example for Huffman decoding, otherwise the GPU
  cpu,     ///< the CPU; nvImageCodec copies the pixels if their destination is a GPU
};

/// Options and limits of an `nvimgcodec_batch`.
struct nvimgcodec_batch_options {
  /// Ordinal of the CUDA device to which pixels are written. If empty, the CPU decodes to host
  /// memory without a GPU or driver.
  std::optional<int> device = std::nullopt;
  /// Back end that decodes. An image that it cannot decode fails. `any` tries all back ends.
  nvimgcodec_backend backend = nvimgcodec_backend::any;
  /// Number of nvImageCodec threads that decode in addition to the calling thread. 0 selects the
  /// number of cores minus one.
  int threads = 0;
  /// Maximum number of pixels per image, checked before memory is allocated.
  std::uint64_t max_pixels = std::uint64_t{1} << 27;
  /// Maximum size in bytes of nvImageCodec's allocations, separately for device memory and
  /// page-locked memory. Has an effect only if the decoder was constructed with a device. An image
  /// that needs more memory fails.
  std::uint64_t max_memory = (std::numeric_limits<std::uint64_t>::max)();
};

namespace detail {

/// Returns the back end name for messages.
[[nodiscard]] inline std::string name_of(nvimgcodec_backend backend) {
  constexpr std::array<const char*, 4> names{"any", "gpu", "hybrid", "cpu"};
  return names[static_cast<std::size_t>(backend)];
}

}  // namespace detail

/// An image in a batch, and the destination of its pixels. References memory owned by the caller.
struct nvimgcodec_image {
  std::span<const std::byte> bytes;  ///< the encoded image, in host memory, page-locked or not
  std::string_view key;              ///< image name in errors
  image_box box;                     ///< the part to decode
  pixels out;  ///< destination with the box size and three channels, on the batch's device
};

/// The result of an image in a batch.
struct nvimgcodec_result {
  /// The back end that decoded the image, or `any` if all failed.
  nvimgcodec_backend backend = nvimgcodec_backend::any;
  /// The reason why the image was not decoded, as an exception that an `image_decoder` throws. Null
  /// if the image was decoded.
  std::exception_ptr failure;
};

/// Decodes a batch of images to 8-bit RGB in GPU or host memory. Decode after the transfer to the
/// device, so that only encoded bytes are transferred. Requires nvImageCodec (0.9 or newer; CMake
/// target `penstock::nvimgcodec`). Supports the formats of `nvimgcodec_decoder`. Decode formats
/// other than JPEG and PNG only from trusted files.
///
///     nvimgcodec_batch decoder{{.device = 0}};
///     decoder.decode(images, stream);       // a cudaStream_t
///     decoder.backend();                      // the back end that decoded them
///
/// If the decoder is constructed with a device, as in `nvimgcodec_batch decoder{cuda_device{}}`,
/// nvImageCodec allocates from that device and reuses the memory for later batches.
///
/// Each back end is a separate nvImageCodec decoder for images that the previous back ends could
/// not decode. Therefore `results` contains the back end of each image. The constructor creates the
/// first back end. Each further back end, with its own threads, is created when an image first
/// needs it, which slows down that batch. Back ends differ in the last bits of pixels. The CPU back
/// end returns the same pixels as `nvimgcodec_decoder`.
///
/// Not thread-safe. A decoder does not own its output memory.
class nvimgcodec_batch {
 public:
  /// Loads nvImageCodec and creates the first available back end. Throws `nvimgcodec_unavailable`
  /// if the GPU or back end does not exist, `nvimgcodec_error` if the library fails to start, and
  /// `option_error` if an option is negative.
  explicit nvimgcodec_batch(const nvimgcodec_batch_options& options = {})
      : nvimgcodec_batch(options, std::unique_ptr<detail::nvimgcodec_memory>{}) {}

  /// Makes nvImageCodec allocate up to `options.max_memory` bytes from `device`. If `device` has an
  /// ordinal and the options specify no device, images are written to `device`. Throws
  /// `option_error` if the options specify another device, and otherwise the same errors as the
  /// other constructor.
  template <device Device>
  explicit nvimgcodec_batch(const Device& device, const nvimgcodec_batch_options& options = {})
      : nvimgcodec_batch(on(device, options),
                         std::make_unique<detail::nvimgcodec_memory>(device, options.max_memory)) {}

  nvimgcodec_batch(nvimgcodec_batch&&) noexcept = default;
  nvimgcodec_batch& operator=(nvimgcodec_batch&&) = delete;

  /// Decodes to host memory, and waits until all images are decoded. Throws std::logic_error if the
  /// decoder writes to a GPU, because that requires a stream. Otherwise throws the same errors as
  /// the other overload.
  std::span<const nvimgcodec_result> decode(std::span<const nvimgcodec_image> images) {
    if (options_.device) {
      throw std::logic_error(
          "nvimgcodec_batch: a decoder for a GPU needs a stream: "
          "decode(images, stream)");
    }
    return decode(images, nullptr);
  }

  /// Decodes each image into its `out`. `stream` must belong to the decoder's device. Later work on
  /// `stream` sees the pixels. Returns when the CPU part is done. The encoded bytes and `out` must
  /// stay valid and unchanged until the stream has finished this work. The decoder must stay alive
  /// until then too. Returns the results in image order, valid until the next call.
  ///
  /// If images fail, decodes all others and then throws the failure of the first failed image.
  /// `results` contains all failures. A box outside its image is also a failure
  /// (std::invalid_argument). If the library fails for the whole batch, throws an
  /// `nvimgcodec_error` and clears the results.
  std::span<const nvimgcodec_result> decode(std::span<const nvimgcodec_image> images,
                                            cudaStream_t stream) {
    results_.assign(images.size(), {});
    const auto before = std::exchange(under_way_, {});  // destroyed after this batch is decoded
    under_way_.reserve(images.size());
    for (std::size_t i = 0; i < images.size(); ++i) {
      try {
        under_way_.push_back(opened(images[i], i, stream));
      } catch (...) {
        results_[i].failure = std::current_exception();
      }
    }
    std::vector<task*> waiting;
    waiting.reserve(under_way_.size());
    for (task& one : under_way_) waiting.push_back(&one);
    try {
      for (stage& pass : passes_) {
        if (waiting.empty()) break;
        if (!pass.pass) pass.pass = made(pass.backend);
        if (pass.pass->status() == NVIMGCODEC_STATUS_SUCCESS) run(pass, waiting);
      }
    } catch (...) {
      results_.clear();
      throw;
    }
    for (const task* const left : waiting) {
      const nvimgcodec_image& image = images[left->index];
      try {
        detail::throw_undecoded(left->status, image.bytes, image.key,
                                detail::name_of(options_.backend));
      } catch (...) {
        results_[left->index].failure = std::current_exception();
      }
    }
    for (const nvimgcodec_result& result : results_) {
      if (result.failure) std::rethrow_exception(result.failure);
    }
    return results_;
  }

  /// Returns the results of the last call, in image order.
  [[nodiscard]] std::span<const nvimgcodec_result> results() const noexcept { return results_; }

  /// Returns the back end that decoded all images of the last call. Returns `any` if several back
  /// ends decoded images, or if no image was decoded.
  [[nodiscard]] nvimgcodec_backend backend() const noexcept {
    nvimgcodec_backend found = nvimgcodec_backend::any;
    for (const nvimgcodec_result& result : results_) {
      if (result.failure || result.backend == found) continue;
      if (found != nvimgcodec_backend::any) return nvimgcodec_backend::any;
      found = result.backend;
    }
    return found;
  }

  /// Returns the options passed to the constructor.
  [[nodiscard]] const nvimgcodec_batch_options& options() const noexcept { return options_; }

  /// Returns the size in bytes of the device memory that nvImageCodec has allocated through this
  /// object, or 0 if it uses its own allocator.
  [[nodiscard]] std::size_t device_bytes() const noexcept {
    return memory_ ? memory_->on_device.bytes() : 0;
  }
  /// Returns the size in bytes of the page-locked memory that nvImageCodec has allocated through
  /// this object, or 0 if it uses its own allocator.
  [[nodiscard]] std::size_t pinned_bytes() const noexcept {
    return memory_ ? memory_->pinned.bytes() : 0;
  }

 private:
  nvimgcodec_batch(const nvimgcodec_batch_options& options,
                   std::unique_ptr<detail::nvimgcodec_memory> memory)
      : options_(checked(options)),
        memory_(std::move(memory)),
        instance_(detail::nvimgcodec_load()) {
    using enum nvimgcodec_backend;
    if (!options.device && options.backend != any && options.backend != cpu) {
      throw nvimgcodec_unavailable(
          "nvimgcodec_batch: the back end " + detail::name_of(options.backend) +
          " writes to a GPU: name one by nvimgcodec_batch_options::device");
    }
    std::string rejected;
    for (const nvimgcodec_backend backend : {gpu, hybrid, cpu}) {
      if (options.backend != any && options.backend != backend) continue;
      if (!options.device && backend != cpu) continue;
      stage next{backend, nullptr};
      if (passes_.empty()) next.pass = made(backend);
      if (passes_.empty() && next.pass->status() != NVIMGCODEC_STATUS_SUCCESS) {
        rejected += " " + detail::name_of(backend) + " (status " +
                    std::to_string(static_cast<int>(next.pass->status())) + ")";
      } else {
        passes_.push_back(std::move(next));
      }
    }
    if (!passes_.empty()) return;
    throw nvimgcodec_unavailable(
        "nvimgcodec_batch: nvImageCodec has none of these back ends" +
        (options.device ? " for GPU " + std::to_string(*options.device) : std::string{}) + ":" +
        rejected +
        ": look at the NVIDIA driver (nvidia-smi) and for the library nvJPEG, or leave out "
        "nvimgcodec_batch_options::device to decode on the CPU");
  }

  struct stage {
    nvimgcodec_backend backend;
    std::unique_ptr<detail::nvimgcodec_pass> pass;  // null until an image needs this back end
  };
  struct task {
    std::size_t index;
    detail::nvimgcodec_opened image;
    detail::nvimgcodec_image_ptr target;
    nvimgcodecProcessingStatus_t status = NVIMGCODEC_PROCESSING_STATUS_UNKNOWN;
  };

  template <class Device>
  [[nodiscard]] static nvimgcodec_batch_options on(const Device& device,
                                                   nvimgcodec_batch_options options) {
    if constexpr (requires { device.ordinal(); }) {
      if (options.device.value_or(device.ordinal()) != device.ordinal()) {
        detail::throw_option_error("device", {"expected GPU ", device.ordinal(),
                                              ", whose memory is given, found ", *options.device});
      }
      options.device = device.ordinal();
    }
    return options;
  }

  // nvImageCodec reserves negative values for special meanings, such as the current device or no
  // device.
  [[nodiscard]] static const nvimgcodec_batch_options& checked(
      const nvimgcodec_batch_options& options) {
    if (options.device && *options.device < 0) {
      detail::throw_option_error(
          "device", {"expected a GPU's ordinal of 0 or more, found ", *options.device});
    }
    if (options.threads < 0) {
      detail::throw_option_error("threads", {"expected 0 or more, found ", options.threads});
    }
    return options;
  }

  [[nodiscard]] static std::span<const nvimgcodecBackendKind_t> kinds(nvimgcodec_backend backend) {
    static constexpr std::array<nvimgcodecBackendKind_t, 4> all{
        NVIMGCODEC_BACKEND_KIND_HW_GPU_ONLY, NVIMGCODEC_BACKEND_KIND_GPU_ONLY,
        NVIMGCODEC_BACKEND_KIND_HYBRID_CPU_GPU, NVIMGCODEC_BACKEND_KIND_CPU_ONLY};
    const std::span<const nvimgcodecBackendKind_t> list{all};
    if (backend == nvimgcodec_backend::gpu) return list.first(2);
    return list.subspan(backend == nvimgcodec_backend::hybrid ? 2 : 3, 1);
  }

  [[nodiscard]] std::unique_ptr<detail::nvimgcodec_pass> made(nvimgcodec_backend backend) const {
    return std::make_unique<detail::nvimgcodec_pass>(
        instance_.get(), options_.device.value_or(NVIMGCODEC_DEVICE_CPU_ONLY), kinds(backend),
        options_.threads, memory_.get());
  }

  [[nodiscard]] task opened(const nvimgcodec_image& image, std::size_t index,
                            cudaStream_t stream) const {
    detail::nvimgcodec_opened whole = detail::nvimgcodec_open(
        instance_.get(), image.bytes, image.key, options_.max_pixels, "nvimgcodec_batch_options");
    detail::require_box(image.key, image.box, whole.info.size, image.out);
    detail::nvimgcodec_choose(whole, image.box);
    const auto kind = options_.device ? NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_DEVICE
                                      : NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_HOST;
    detail::nvimgcodec_image_ptr target =
        detail::nvimgcodec_target(instance_.get(), image.out, kind, stream);
    return {index, std::move(whole), std::move(target)};
  }

  // Decodes images with this back end. Images that fail remain in `waiting`.
  void run(const stage& with, std::vector<task*>& waiting) {
    std::vector<nvimgcodecCodeStream_t> streams;
    std::vector<nvimgcodecImage_t> images;
    for (const task* const one : waiting) {
      streams.push_back(one->image.chosen());
      images.push_back(one->target.get());
    }
    const auto statuses = with.pass->decode(streams, images);
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      waiting[i]->status = statuses[i];
      if (statuses[i] == NVIMGCODEC_PROCESSING_STATUS_SUCCESS) {
        results_[waiting[i]->index].backend = with.backend;
      }
    }
    std::erase_if(waiting, [](const task* one) {
      return one->status == NVIMGCODEC_PROCESSING_STATUS_SUCCESS;
    });
  }

  nvimgcodec_batch_options options_;
  // The next two members must outlive the passes, which use them.
  std::unique_ptr<detail::nvimgcodec_memory> memory_;
  std::shared_ptr<nvimgcodecInstance> instance_;
  std::vector<task> under_way_;  // images that the device may still be writing
  std::vector<stage> passes_;
  std::vector<nvimgcodec_result> results_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
