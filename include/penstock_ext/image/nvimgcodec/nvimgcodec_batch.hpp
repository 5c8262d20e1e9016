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

/// Where nvImageCodec decodes a picture. In the order in which an `nvimgcodec_batch` tries them.
enum class nvimgcodec_backend : std::uint8_t {
  any,     ///< the first of the others that can
  gpu,     ///< all of it on the GPU: the engine for JPEG of those that have one, or kernels
  hybrid,  ///< partly on the CPU, such as Huffman decoding, the rest on the GPU
  cpu,     ///< on the CPU; for pixels on a GPU nvImageCodec copies them there
};

/// What an `nvimgcodec_batch` decodes with, and what it refuses.
struct nvimgcodec_batch_options {
  /// The GPU that the pixels are written to, by CUDA's ordinal. None: they are written to host
  /// memory, by the CPU alone, and neither GPU nor driver is needed.
  std::optional<int> device = std::nullopt;
  /// Which back end has to decode; a picture that it can't decode fails. `any`: as many tries as it
  /// takes.
  nvimgcodec_backend backend = nvimgcodec_backend::any;
  /// How many threads of nvImageCodec's own decode beside the calling one; 0 for one less than
  /// there are cores, the most.
  int threads = 0;
  /// A picture of more pixels is refused before memory is taken.
  std::uint64_t most_pixels = std::uint64_t{1} << 27;
  /// How many bytes of the device's memory, and how many of page-locked memory, nvImageCodec gets
  /// to work with where the decoder is given the program's device; a picture that needs more fails.
  std::uint64_t most_memory = (std::numeric_limits<std::uint64_t>::max)();
};

namespace detail {

/// The back end's name, for messages.
[[nodiscard]] inline std::string name_of(nvimgcodec_backend backend) {
  constexpr std::array<const char*, 4> names{"any", "gpu", "hybrid", "cpu"};
  return names[static_cast<std::size_t>(backend)];
}

}  // namespace detail

/// A picture of a batch, and where its pixels go. Refers to memory of the caller's.
struct nvimgcodec_picture {
  std::span<const std::byte> bytes;  ///< the encoded picture, in host memory, page-locked or not
  std::string_view key;              ///< names it in errors
  image_box box;                     ///< which part of it
  pixels out;  ///< of the box's size and three channels, on the batch's device
};

/// What became of a picture of a batch.
struct nvimgcodec_result {
  /// What decoded it; `any` where nothing did.
  nvimgcodec_backend backend = nvimgcodec_backend::any;
  /// Why it was not decoded, as an exception of the types that an `image_decoder` throws; else
  /// null.
  std::exception_ptr failure;
};

/// Decodes the pictures of a batch, many in one call, to 8-bit RGB in a GPU's memory or the host's:
/// for the copy side of a pipeline, so that encoded bytes travel. By nvImageCodec (0.9 or newer;
/// the CMake target `penstock::nvimgcodec`), which reads what `nvimgcodec_decoder` does. As there,
/// formats other than JPEG and PNG are for files that are trusted.
///
///     nvimgcodec_batch decoder{{.device = 0}};
///     decoder.decode(pictures, stream);       // a cudaStream_t
///     decoder.backend();                      // which back end it was
///
/// Given a device of the program's, nvImageCodec works with memory of that one, which is kept for
/// the next batches: `nvimgcodec_batch decoder{cuda_device{}}`.
///
/// Each back end is a decoder of nvImageCodec's that is held to it, and gets what those before it
/// could not decode: so `results` knows, and does not guess, what a picture was decoded by. The
/// first one is made at construction, another one, with threads of its own, when the first picture
/// is left for it: that batch takes longer. Back ends differ in the last bits of a pixel; the CPU's
/// are those of `nvimgcodec_decoder`.
///
/// One object is for one thread at a time. What it writes to it does not own.
class nvimgcodec_batch {
 public:
  /// Loads nvImageCodec and makes the first back end that there is. Throws `nvimgcodec_unavailable`
  /// where there is no such GPU or back end, `nvimgcodec_error` where the library does not start,
  /// `option_error` for a number below 0.
  explicit nvimgcodec_batch(const nvimgcodec_batch_options& options = {})
      : nvimgcodec_batch(options, std::unique_ptr<detail::nvimgcodec_memory>{}) {}

  /// As above; nvImageCodec works with memory of `device`, at most `options.most_memory`, and keeps
  /// it. Pictures go to `device` too where it has an ordinal and the options name none; an
  /// `option_error` where they name another one.
  template <device Device>
  explicit nvimgcodec_batch(const Device& device, const nvimgcodec_batch_options& options = {})
      : nvimgcodec_batch(on(device, options),
                         std::make_unique<detail::nvimgcodec_memory>(device, options.most_memory)) {
  }

  nvimgcodec_batch(nvimgcodec_batch&&) noexcept = default;
  nvimgcodec_batch& operator=(nvimgcodec_batch&&) = delete;

  /// Decodes into host memory, and returns when that is done. As below; throws std::logic_error of
  /// a decoder for a GPU, which needs a stream.
  std::span<const nvimgcodec_result> decode(std::span<const nvimgcodec_picture> pictures) {
    if (options_.device) {
      throw std::logic_error(
          "nvimgcodec_batch: a decoder for a GPU needs a stream: "
          "decode(pictures, stream)");
    }
    return decode(pictures, nullptr);
  }

  /// Decodes each picture into its `out`, in order before later work on `stream`, a stream of the
  /// decoder's device; the call returns when the CPU's part is done. Bytes and `out` must stay as
  /// they are until the stream is past it, and so must the decoder, which keeps nvImageCodec's
  /// objects for a batch until the next one is decoded. The results are in the order of the
  /// pictures, and good until the next call.
  ///
  /// All pictures are tried; then the failure of the first one that has any is thrown. `results`
  /// has the others, and what is not a failure there is decoded. std::invalid_argument for a box
  /// outside its picture is such a failure too. Where the library fails on the whole batch, an
  /// `nvimgcodec_error`, nothing is known of it and there are no results.
  std::span<const nvimgcodec_result> decode(std::span<const nvimgcodec_picture> pictures,
                                            cudaStream_t stream) {
    results_.assign(pictures.size(), {});
    const auto before = std::exchange(under_way_, {});  // goes when this batch is decoded
    under_way_.reserve(pictures.size());
    for (std::size_t i = 0; i < pictures.size(); ++i) {
      try {
        under_way_.push_back(opened(pictures[i], i, stream));
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
      const nvimgcodec_picture& picture = pictures[left->index];
      try {
        detail::throw_undecoded(left->status, picture.bytes, picture.key,
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

  /// What became of the pictures of the last call, in their order.
  [[nodiscard]] std::span<const nvimgcodec_result> results() const noexcept { return results_; }

  /// The back end that decoded the pictures of the last call; `any` where it was not one and the
  /// same for all that were decoded, or none was.
  [[nodiscard]] nvimgcodec_backend backend() const noexcept {
    nvimgcodec_backend found = nvimgcodec_backend::any;
    for (const nvimgcodec_result& result : results_) {
      if (result.failure || result.backend == found) continue;
      if (found != nvimgcodec_backend::any) return nvimgcodec_backend::any;
      found = result.backend;
    }
    return found;
  }

  /// What the object was made with.
  [[nodiscard]] const nvimgcodec_batch_options& options() const noexcept { return options_; }

  /// How many bytes of its device's memory nvImageCodec has got so far, and how many of page-locked
  /// memory; 0 where it takes memory of its own.
  [[nodiscard]] std::size_t device_bytes() const noexcept {
    return memory_ ? memory_->on_device.bytes() : 0;
  }
  /// See `device_bytes`.
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
    std::string refused;
    for (const nvimgcodec_backend backend : {gpu, hybrid, cpu}) {
      if (options.backend != any && options.backend != backend) continue;
      if (!options.device && backend != cpu) continue;
      stage next{backend, nullptr};
      if (passes_.empty()) next.pass = made(backend);
      if (passes_.empty() && next.pass->status() != NVIMGCODEC_STATUS_SUCCESS) {
        refused += " " + detail::name_of(backend) + " (status " +
                   std::to_string(static_cast<int>(next.pass->status())) + ")";
      } else {
        passes_.push_back(std::move(next));
      }
    }
    if (!passes_.empty()) return;
    throw nvimgcodec_unavailable(
        "nvimgcodec_batch: nvImageCodec has none of these back ends" +
        (options.device ? " for GPU " + std::to_string(*options.device) : std::string{}) + ":" +
        refused +
        ": look at the NVIDIA driver (nvidia-smi) and for the library nvJPEG, or leave out "
        "nvimgcodec_batch_options::device to decode on the CPU");
  }

  struct stage {
    nvimgcodec_backend backend;
    std::unique_ptr<detail::nvimgcodec_pass> pass;  // null: no picture was left for it so far
  };
  struct task {
    std::size_t index;
    detail::nvimgcodec_opened picture;
    detail::nvimgcodec_image target;
    nvimgcodecProcessingStatus_t status = NVIMGCODEC_PROCESSING_STATUS_UNKNOWN;
  };

  template <class Device>
  [[nodiscard]] static nvimgcodec_batch_options on(const Device& device,
                                                   nvimgcodec_batch_options options) {
    if constexpr (requires { device.ordinal(); }) {
      if (options.device.value_or(device.ordinal()) != device.ordinal()) {
        detail::refuse_option("device", {"expected GPU ", device.ordinal(),
                                         ", whose memory is given, found ", *options.device});
      }
      options.device = device.ordinal();
    }
    return options;
  }

  // Numbers below 0 have meanings of nvImageCodec's own: the current device, none.
  [[nodiscard]] static const nvimgcodec_batch_options& checked(
      const nvimgcodec_batch_options& options) {
    if (options.device && *options.device < 0) {
      detail::refuse_option("device",
                            {"expected a GPU's ordinal of 0 or more, found ", *options.device});
    }
    if (options.threads < 0) {
      detail::refuse_option("threads", {"expected 0 or more, found ", options.threads});
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

  [[nodiscard]] task opened(const nvimgcodec_picture& picture, std::size_t index,
                            cudaStream_t stream) const {
    detail::nvimgcodec_opened whole =
        detail::nvimgcodec_open(instance_.get(), picture.bytes, picture.key, options_.most_pixels,
                                "nvimgcodec_batch_options");
    detail::require_box(picture.key, picture.box, whole.info.size, picture.out);
    detail::nvimgcodec_choose(whole, picture.box);
    const auto kind = options_.device ? NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_DEVICE
                                      : NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_HOST;
    detail::nvimgcodec_image target =
        detail::nvimgcodec_target(instance_.get(), picture.out, kind, stream);
    return {index, std::move(whole), std::move(target)};
  }

  // Leaves in `waiting` what this back end has not decoded.
  void run(const stage& with, std::vector<task*>& waiting) {
    std::vector<nvimgcodecCodeStream_t> streams;
    std::vector<nvimgcodecImage_t> images;
    for (const task* const one : waiting) {
      streams.push_back(one->picture.chosen());
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
  // These two outlive the passes, which are made of them.
  std::unique_ptr<detail::nvimgcodec_memory> memory_;
  std::shared_ptr<nvimgcodecInstance> instance_;
  std::vector<task> under_way_;  // what the device may still write of
  std::vector<stage> passes_;
  std::vector<nvimgcodec_result> results_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
