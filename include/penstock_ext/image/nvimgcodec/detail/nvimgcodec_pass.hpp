// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <nvimgcodec.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <penstock_ext/image/nvimgcodec/detail/nvimgcodec_handles.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A decoder of nvImageCodec's that is held to some of its back ends, so that it is known which of
/// them a picture was decoded by. One thread at a time.
class nvimgcodec_pass {
 public:
  /// `device` is a GPU's ordinal or NVIMGCODEC_DEVICE_CPU_ONLY, `threads` how many threads decode
  /// on the CPU: 1 for the calling one, 0 for as many as there are cores. `instance` must outlive
  /// it. If no back end is available, `status()` says so, and nothing else may be called.
  nvimgcodec_pass(nvimgcodecInstance_t instance, int device,
                  std::span<const nvimgcodecBackendKind_t> kinds, int threads) {
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
    nvimgcodecDecoder_t made = nullptr;
    status_ = nvimgcodecDecoderCreate(instance, &made, &params, nullptr);
    decoder_.reset(made);
  }

  /// What nvImageCodec said to its making.
  [[nodiscard]] nvimgcodecStatus_t status() const noexcept { return status_; }

  /// Decodes each of `streams` into the image at the same place, and returns when that is done, or
  /// on the way where the images' stream has it. The statuses of the pictures, in their order.
  [[nodiscard]] std::vector<nvimgcodecProcessingStatus_t> decode(
      std::span<const nvimgcodecCodeStream_t> streams, std::span<const nvimgcodecImage_t> images) {
    auto params =
        nvimgcodec_struct<nvimgcodecDecodeParams_t>(NVIMGCODEC_STRUCTURE_TYPE_DECODE_PARAMS);
    std::vector<nvimgcodecProcessingStatus_t> statuses(streams.size());
    nvimgcodecFuture_t made = nullptr;
    const nvimgcodecStatus_t begun =
        nvimgcodecDecoderDecode(decoder_.get(), streams.data(), images.data(),
                                static_cast<int>(streams.size()), &params, &made);
    const nvimgcodec_future future{made};
    nvimgcodec_check(begun, "nvimgcodecDecoderDecode");
    nvimgcodec_check(nvimgcodecFutureWaitForAll(future.get()), "nvimgcodecFutureWaitForAll");
    std::size_t count = statuses.size();
    nvimgcodec_check(nvimgcodecFutureGetProcessingStatus(future.get(), statuses.data(), &count),
                     "nvimgcodecFutureGetProcessingStatus");
    return statuses;
  }

 private:
  nvimgcodecStatus_t status_ = NVIMGCODEC_STATUS_NOT_INITIALIZED;
  nvimgcodec_work decoder_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
