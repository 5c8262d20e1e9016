// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <nvimgcodec.h>

#include <memory>
#include <new>
#include <string>
#include <string_view>

#include <penstock/core/version.hpp>
#include <penstock_ext/image/nvimgcodec/nvimgcodec_error.hpp>

static_assert(NVIMGCODEC_VER >= 900, "penstock::nvimgcodec needs nvImageCodec 0.9 or newer");

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Destroys an object of nvImageCodec's by the function that is there for it.
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
using nvimgcodec_image = nvimgcodec_handle<nvimgcodecImage, nvimgcodecImageDestroy>;
using nvimgcodec_work = nvimgcodec_handle<nvimgcodecDecoder, nvimgcodecDecoderDestroy>;
using nvimgcodec_future = nvimgcodec_handle<nvimgcodecFuture, nvimgcodecFutureDestroy>;

/// A structure of nvImageCodec's, all zeros but for its type and size.
template <class Struct>
[[nodiscard]] Struct nvimgcodec_struct(nvimgcodecStructureType_t type) noexcept {
  Struct made{};
  made.struct_type = type;
  made.struct_size = sizeof(Struct);
  return made;
}

/// Throws what a status other than success means where no picture is to blame: std::bad_alloc, or
/// an `nvimgcodec_error` that names the function `call`.
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

/// Loads nvImageCodec's extensions: what all decoders are made of. Any thread may use it at the
/// same time as others; it must outlive what is made of it. Throws `nvimgcodec_error`.
[[nodiscard]] inline std::shared_ptr<nvimgcodecInstance> nvimgcodec_load() {
  auto info = nvimgcodec_struct<nvimgcodecInstanceCreateInfo_t>(
      NVIMGCODEC_STRUCTURE_TYPE_INSTANCE_CREATE_INFO);
  info.load_builtin_modules = 1;
  info.load_extension_modules = 1;
  nvimgcodecInstance_t made = nullptr;
  nvimgcodec_check(nvimgcodecInstanceCreate(&made, &info), "nvimgcodecInstanceCreate");
  return nvimgcodec_instance{made};
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
