// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nvimgcodec.h>

#include <penstock/core/version.hpp>
#include <penstock/device/device.hpp>
#include <penstock_ext/image/nvimgcodec/nvimgcodec_error.hpp>

static_assert(NVIMGCODEC_VER >= 900, "penstock::nvimgcodec needs nvImageCodec 0.9 or newer");

#include <penstock_ext/image/image_decoder.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A deleter for nvImageCodec objects that calls `Destroy`.
template <auto Destroy>
struct nvimgcodec_destroy {
  template <class Handle>
  void operator()(Handle* handle) const noexcept {
    static_cast<void>(Destroy(handle));
  }
};

template <class Handle, auto Destroy>
using nvimgcodec_handle = std::unique_ptr<Handle, nvimgcodec_destroy<Destroy>>;

using nvimgcodec_instance = nvimgcodec_handle<nvimgcodecInstance, nvimgcodecInstanceDestroy>;
using nvimgcodec_stream = nvimgcodec_handle<nvimgcodecCodeStream, nvimgcodecCodeStreamDestroy>;
using nvimgcodec_image_ptr = nvimgcodec_handle<nvimgcodecImage, nvimgcodecImageDestroy>;
using nvimgcodec_work = nvimgcodec_handle<nvimgcodecDecoder, nvimgcodecDecoderDestroy>;
using nvimgcodec_future = nvimgcodec_handle<nvimgcodecFuture, nvimgcodecFutureDestroy>;

/// Returns an nvImageCodec structure with its type and size set, and all other members zero.
template <class Struct>
[[nodiscard]] Struct nvimgcodec_struct(nvimgcodecStructureType_t type) noexcept {
  Struct made{};
  made.struct_type = type;
  made.struct_size = sizeof(Struct);
  return made;
}

/// Throws if `status` is a library failure and not an image failure. Throws std::bad_alloc, or an
/// `nvimgcodec_error` that contains the function name `call`.
inline void nvimgcodec_check(nvimgcodecStatus_t status, std::string_view call) {
  if (status == NVIMGCODEC_STATUS_SUCCESS) return;
  if (status == NVIMGCODEC_STATUS_ALLOCATOR_FAILURE ||
      status == NVIMGCODEC_STATUS_EXTENSION_ALLOCATOR_FAILURE) {
    throw std::bad_alloc();
  }
  throw nvimgcodec_error("nvImageCodec failed: " + std::string{call} + " gave status " +
                         std::to_string(static_cast<int>(status)) +
                         " (nvimgcodecStatus_t in nvimgcodec.h)");
}

/// Loads nvImageCodec and its extensions, which all decoders need. Thread-safe. The instance must
/// outlive all objects created from it. Throws `nvimgcodec_error` if loading fails.
[[nodiscard]] inline std::shared_ptr<nvimgcodecInstance> nvimgcodec_load() {
  auto info = nvimgcodec_struct<nvimgcodecInstanceCreateInfo_t>(
      NVIMGCODEC_STRUCTURE_TYPE_INSTANCE_CREATE_INFO);
  info.load_builtin_modules = 1;
  info.load_extension_modules = 1;
  nvimgcodecInstance_t made = nullptr;
  nvimgcodec_check(nvimgcodecInstanceCreate(&made, &info), "nvimgcodecInstanceCreate");
  return nvimgcodec_instance{made};
}

/// A memory pool for nvImageCodec. Freed memory is reused only on the stream that freed it, because
/// work on that stream may still access it. A loop over images of similar sizes therefore stops
/// allocating after the first batches. Sizes are rounded up to powers of two, so that different
/// images can share memory. Thread-safe.
class nvimgcodec_pool {
 public:
  /// Allocates up to `max` bytes in total with `take(bytes)`, which may throw. Frees memory with
  /// `release(data, bytes)`.
  nvimgcodec_pool(std::uint64_t max, std::function<void*(std::size_t)> take,
                  std::function<void(void*, std::size_t)> release)
      : max_(max), take_(std::move(take)), release_(std::move(release)) {}
  nvimgcodec_pool(nvimgcodec_pool&&) = delete;
  /// Frees all memory. No decoder may use it any more.
  ~nvimgcodec_pool() {
    for (const piece& one : pieces_) release_(one.data, one.bytes);
  }

  /// Returns the number of allocated bytes.
  [[nodiscard]] std::size_t bytes() const noexcept {
    const std::lock_guard lock{mutex_};
    return taken_;
  }

  /// Allocation callback for nvImageCodec. `pool` is the pool.
  static int allocate(void* pool, void** data, std::size_t bytes, cudaStream_t stream) noexcept {
    return static_cast<nvimgcodec_pool*>(pool)->find(data, bytes, stream) ? 0 : 1;
  }
  static int deallocate(void* pool, void* data, std::size_t, cudaStream_t stream) noexcept {
    static_cast<nvimgcodec_pool*>(pool)->keep(data, stream);
    return 0;
  }

 private:
  struct piece {
    void* data = nullptr;
    std::size_t bytes = 0;
    cudaStream_t stream = nullptr;  // stream on which the memory was freed or last used
    bool is_free = false;
  };

  [[nodiscard]] bool find(void** data, std::size_t requested, cudaStream_t stream) noexcept {
    *data = nullptr;
    if (requested == 0) return true;
    if (requested > (std::min)(max_, std::uint64_t{1} << 62)) return false;
    const std::size_t bytes = std::bit_ceil((std::max)(requested, min));
    const std::lock_guard lock{mutex_};
    auto found = std::find_if(pieces_.begin(), pieces_.end(), [&](const piece& one) {
      return one.is_free && one.stream == stream && one.bytes == bytes;
    });
    if (found == pieces_.end()) {
      if (bytes > max_ - taken_) return false;
      try {
        // Reserves capacity, so that adding the allocated memory to `pieces_` cannot fail.
        pieces_.reserve(pieces_.size() + 1);
        pieces_.push_back({take_(bytes), bytes, stream});
      } catch (...) {  // nvImageCodec returns the error as a status
        return false;
      }
      taken_ += bytes;
      found = pieces_.end() - 1;
    }
    found->is_free = false;
    *data = found->data;
    return true;
  }
  void keep(const void* data, cudaStream_t stream) noexcept {
    const std::lock_guard lock{mutex_};
    for (piece& one : pieces_) {
      if (one.data != data) continue;
      one.stream = stream;
      one.is_free = true;
    }
  }

  static constexpr std::size_t min = 4096;

  const std::uint64_t max_;
  const std::function<void*(std::size_t)> take_;
  const std::function<void(void*, std::size_t)> release_;
  mutable std::mutex mutex_;  // guards the members below
  std::vector<piece> pieces_;
  std::size_t taken_ = 0;
};

/// Device memory and page-locked memory that nvImageCodec's decoders use instead of their own
/// allocations.
class nvimgcodec_memory {
 public:
  /// Allocates at most `max` bytes each of device memory and page-locked memory.
  template <device Device>
  nvimgcodec_memory(const Device& from, std::uint64_t max)
      : on_device(
            max, [from](std::size_t bytes) { return from.allocate(bytes); },
            [from](void* data, std::size_t bytes) { from.deallocate(data, bytes); }),
        pinned(
            max, [from](std::size_t bytes) { return from.allocate_pinned(bytes).data; },
            [from](void* data, std::size_t bytes) { from.deallocate_pinned(data, bytes); }) {
    device_.device_malloc = &nvimgcodec_pool::allocate;
    device_.device_free = &nvimgcodec_pool::deallocate;
    device_.device_ctx = &on_device;
    pinned_.pinned_malloc = &nvimgcodec_pool::allocate;
    pinned_.pinned_free = &nvimgcodec_pool::deallocate;
    pinned_.pinned_ctx = &pinned;
  }

  nvimgcodec_pool on_device;
  nvimgcodec_pool pinned;

  /// Sets the allocators of decoders created with `params`. The decoders must not outlive this
  /// object.
  void give_to(nvimgcodecExecutionParams_t& params) noexcept {
    params.device_allocator = &device_;
    params.pinned_allocator = &pinned_;
  }

 private:
  nvimgcodecDeviceAllocator_t device_ =
      nvimgcodec_struct<nvimgcodecDeviceAllocator_t>(NVIMGCODEC_STRUCTURE_TYPE_DEVICE_ALLOCATOR);
  nvimgcodecPinnedAllocator_t pinned_ =
      nvimgcodec_struct<nvimgcodecPinnedAllocator_t>(NVIMGCODEC_STRUCTURE_TYPE_PINNED_ALLOCATOR);
};

/// An nvImageCodec decoder that is restricted to certain back ends, so that the back end of each
/// decoded image is known. Not thread-safe.
class nvimgcodec_pass {
 public:
  /// `device` is a GPU ordinal or NVIMGCODEC_DEVICE_CPU_ONLY. `threads` is the number of CPU
  /// decoding threads: 1 is the calling thread, and 0 selects one thread for each core. `instance`
  /// and `memory` must outlive this object. If `memory` is null, nvImageCodec uses its own memory.
  /// If no back end is available, `status()` returns the reason, and no other function may be
  /// called.
  nvimgcodec_pass(nvimgcodecInstance_t instance, int device,
                  std::span<const nvimgcodecBackendKind_t> kinds, int threads,
                  nvimgcodec_memory* memory = nullptr) {
    std::vector<nvimgcodecBackend_t> backends;
    for (const nvimgcodecBackendKind_t kind : kinds) {
      auto& backend = backends.emplace_back(
          nvimgcodec_struct<nvimgcodecBackend_t>(NVIMGCODEC_STRUCTURE_TYPE_BACKEND));
      backend.kind = kind;
      backend.params =
          nvimgcodec_struct<nvimgcodecBackendParams_t>(NVIMGCODEC_STRUCTURE_TYPE_BACKEND_PARAMS);
      backend.params.load_hint = 1;
      backend.params.load_hint_policy = NVIMGCODEC_LOAD_HINT_POLICY_IGNORE;
    }
    auto params =
        nvimgcodec_struct<nvimgcodecExecutionParams_t>(NVIMGCODEC_STRUCTURE_TYPE_EXECUTION_PARAMS);
    params.device_id = device;
    params.max_num_cpu_threads = threads;
    params.num_backends = static_cast<int>(backends.size());
    params.backends = backends.data();
    if (memory != nullptr) memory->give_to(params);
    nvimgcodecDecoder_t made = nullptr;
    status_ = nvimgcodecDecoderCreate(instance, &made, &params, nullptr);
    decoder_.reset(made);
  }

  /// Returns the status of the construction.
  [[nodiscard]] nvimgcodecStatus_t status() const noexcept { return status_; }

  /// Decodes each stream into the image at the same index, and returns the statuses in the same
  /// order. On a GPU, the images' CUDA stream may still run the work when the function returns.
  /// `streams` and `images` must stay valid until the work has finished.
  [[nodiscard]] std::vector<nvimgcodecProcessingStatus_t> decode(
      std::span<const nvimgcodecCodeStream_t> streams, std::span<const nvimgcodecImage_t> images) {
    auto params =
        nvimgcodec_struct<nvimgcodecDecodeParams_t>(NVIMGCODEC_STRUCTURE_TYPE_DECODE_PARAMS);
    std::vector<nvimgcodecProcessingStatus_t> statuses(streams.size());
    nvimgcodecFuture_t made = nullptr;
    const nvimgcodecStatus_t begun =
        nvimgcodecDecoderDecode(decoder_.get(), streams.data(), images.data(),
                                static_cast<int>(streams.size()), &params, &made);
    future_.reset(made);  // destroys the previous future
    nvimgcodec_check(begun, "nvimgcodecDecoderDecode");
    nvimgcodec_check(nvimgcodecFutureWaitForAll(made), "nvimgcodecFutureWaitForAll");
    std::size_t count = statuses.size();
    nvimgcodec_check(nvimgcodecFutureGetProcessingStatus(made, statuses.data(), &count),
                     "nvimgcodecFutureGetProcessingStatus");
    return statuses;
  }

 private:
  nvimgcodecStatus_t status_ = NVIMGCODEC_STATUS_NOT_INITIALIZED;
  nvimgcodec_work decoder_;
  nvimgcodec_future future_;  // result of the last `decode`
};

/// Returns true if nvImageCodec supports the image format of `bytes`.
[[nodiscard]] inline bool nvimgcodec_reads(std::span<const std::byte> bytes) noexcept {
  const std::string_view format = image_format_of(bytes);
  return format == "JPEG" || format == "PNG" || format == "WebP" || format == "TIFF" ||
         format == "JPEG 2000" || format == "BMP" || format == "PPM";
}

/// Throws the error for invalid content in `bytes`.
[[noreturn]] inline void throw_unsound(std::span<const std::byte> bytes, std::string_view key,
                                       const std::string& found) {
  const std::string format{image_format_of(bytes)};
  if (image_ends_early(bytes)) {
    throw image_truncated(std::string{key}, bytes.size(), "the rest of the " + format + " image",
                          "the end of its bytes");
  }
  throw image_corrupt(std::string{key}, 0, "a valid " + format + " image", found);
}

/// Throws the error for an image that was not decoded. `where` is the back end.
[[noreturn]] inline void throw_undecoded(nvimgcodecProcessingStatus_t status,
                                         std::span<const std::byte> bytes, std::string_view key,
                                         std::string_view where) {
  const std::string found = "nvImageCodec's processing status " + std::to_string(status);
  // The status is from the last decoder, which may have failed for another reason.
  if (status == NVIMGCODEC_PROCESSING_STATUS_FAIL ||
      status == NVIMGCODEC_PROCESSING_STATUS_IMAGE_CORRUPTED || image_ends_early(bytes)) {
    throw_unsound(bytes, key, found);
  }
  if (status == NVIMGCODEC_PROCESSING_STATUS_UNKNOWN ||
      status == NVIMGCODEC_PROCESSING_STATUS_SATURATED) {
    throw nvimgcodec_error(std::string{key} + ": not decoded: " + found);
  }
  throw image_unsupported(std::string{key}, 0,
                          "a " + std::string{image_format_of(bytes)} +
                              " image that nvImageCodec's back end " + std::string{where} +
                              " decodes to 8-bit RGB",
                          found);
}

/// An encoded image whose header has been parsed. References the encoded bytes.
struct nvimgcodec_opened {
  nvimgcodec_stream whole;
  nvimgcodec_stream part;  // part of `whole`, destroyed first; null selects all of it
  image_info info;

  /// Returns the code stream to decode.
  [[nodiscard]] nvimgcodecCodeStream_t chosen() const noexcept {
    return part ? part.get() : whole.get();
  }
};

/// Opens an image of at most `max_pixels` pixels. Messages name `options` as the type of that
/// option. Allocates memory only for the header. Throws the same errors as an `image_decoder`.
[[nodiscard]] inline nvimgcodec_opened nvimgcodec_open(nvimgcodecInstance_t instance,
                                                       std::span<const std::byte> bytes,
                                                       std::string_view key,
                                                       std::uint64_t max_pixels,
                                                       std::string_view options) {
  if (!nvimgcodec_reads(bytes)) {
    const std::string expected = "an image of a format that nvImageCodec reads";
    if (bytes.size() < 3) throw image_truncated(std::string{key}, 0, expected, found_image(bytes));
    throw image_unsupported(std::string{key}, 0, expected, found_image(bytes));
  }
  // Some back ends silently invent the missing end of a truncated image.
  if (image_ends_early(bytes)) throw_unsound(bytes, key, {});

  nvimgcodecCodeStream_t made = nullptr;
  const nvimgcodecStatus_t created = nvimgcodecCodeStreamCreateFromHostMem(
      instance, &made, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), nullptr);
  nvimgcodec_stream stream{made};
  nvimgcodec_check(created, "nvimgcodecCodeStreamCreateFromHostMem");
  auto header = nvimgcodec_struct<nvimgcodecImageInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO);
  const nvimgcodecStatus_t status = nvimgcodecCodeStreamGetImageInfo(stream.get(), &header);
  if (status == NVIMGCODEC_STATUS_ALLOCATOR_FAILURE) throw std::bad_alloc();
  const std::string format{image_format_of(bytes)};
  if (status != NVIMGCODEC_STATUS_SUCCESS) {
    const std::string found =
        "a header that nvImageCodec gives status " + std::to_string(static_cast<int>(status));
    if (status != NVIMGCODEC_STATUS_CODESTREAM_UNSUPPORTED) throw_unsound(bytes, key, found);
    throw image_unsupported(std::string{key}, 0,
                            "a " + format + " image of a kind that nvImageCodec reads", found);
  }

  const image_size size{header.plane_info[0].width, header.plane_info[0].height};
  const std::string text = to_text(size);
  if (size.width == 0 || size.height == 0) {
    throw image_corrupt(std::string{key}, 0, "a width and a height", text);
  }
  if (std::uint64_t{size.width} * size.height > max_pixels) {
    throw image_too_large(std::string{key}, 0,
                          "at most " + std::to_string(max_pixels) + " pixels (" +
                              std::string{options} + "::max_pixels)",
                          text);
  }
  std::size_t channels = 0;
  for (std::uint32_t plane = 0; plane < header.num_planes; ++plane) {
    channels += header.plane_info[plane].num_channels;
  }
  // The TIFF decoder reads a nonexistent third channel from two-channel images, and decodes signed
  // values and floats incorrectly.
  const auto samples = header.plane_info[0].sample_type;
  const bool is_unsigned = samples == NVIMGCODEC_SAMPLE_DATA_TYPE_UINT8 ||
                           samples == NVIMGCODEC_SAMPLE_DATA_TYPE_UINT16 ||
                           samples == NVIMGCODEC_SAMPLE_DATA_TYPE_UINT32;
  if (format == "TIFF" && (channels == 2 || !is_unsigned)) {
    throw image_unsupported(std::string{key}, 0,
                            "a TIFF image of 1, 3 or 4 channels of unsigned numbers",
                            std::to_string(channels) + " channels of nvImageCodec's sample type " +
                                std::to_string(static_cast<int>(samples)));
  }
  return {std::move(stream), {}, {size, channels, 1}};
}

/// Selects the part `box` of an opened image.
inline void nvimgcodec_choose(nvimgcodec_opened& image, const image_box& box) {
  // Does not select the whole image as a region, because some back ends do not support regions.
  if (box == image_box{0, 0, image.info.size}) return;
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
      nvimgcodecCodeStreamGetSubCodeStream(image.whole.get(), &made, &view);
  image.part.reset(made);
  nvimgcodec_check(status, "nvimgcodecCodeStreamGetSubCodeStream");
}

/// Returns an nvImageCodec image that references `out`. Later work on `stream` sees the pixels.
[[nodiscard]] inline nvimgcodec_image_ptr nvimgcodec_target(nvimgcodecInstance_t instance,
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
  nvimgcodec_image_ptr image{made};
  nvimgcodec_check(status, "nvimgcodecImageCreate");
  return image;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
