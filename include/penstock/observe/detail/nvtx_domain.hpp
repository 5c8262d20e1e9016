// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/version.hpp>

#if PENSTOCK_NVTX
#include <nvtx3/nvToolsExt.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

enum class marked_stage : std::uint8_t;

/// The NVTX domain `penstock` with the registered names of the stages. Made with the first mark and
/// never destroyed, since threads may still use it while static objects are destroyed. Without a
/// profiler a call only tests a pointer.
class nvtx_domain {
 public:
  static void push(marked_stage stage, std::optional<std::uint64_t> batch) noexcept {
    const nvtxEventAttributes_t attributes = attributes_of(stage, batch);
    ::nvtxDomainRangePushEx(the().domain_, &attributes);
  }
  static void pop() noexcept { ::nvtxDomainRangePop(the().domain_); }

  static std::uint64_t start(marked_stage stage, std::uint64_t batch) noexcept {
    const nvtxEventAttributes_t attributes = attributes_of(stage, batch);
    return ::nvtxDomainRangeStartEx(the().domain_, &attributes);
  }
  static void end(std::uint64_t range) noexcept { ::nvtxDomainRangeEnd(the().domain_, range); }

 private:
  static constexpr std::array<const char*, 7> names{
      "read", "wait for demand", "wait for slot", "wait for batch", "copy", "step", "consume"};

  nvtx_domain() noexcept : domain_(::nvtxDomainCreateA("penstock")) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      registered_[i] = ::nvtxDomainRegisterStringA(domain_, names[i]);
    }
  }

  static const nvtx_domain& the() noexcept {
    static const nvtx_domain one;
    return one;
  }

  static nvtxEventAttributes_t attributes_of(marked_stage stage,
                                             std::optional<std::uint64_t> batch) noexcept {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered = the().registered_[static_cast<std::size_t>(stage)];
    if (batch) {
      attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
      attributes.payload.ullValue = *batch;
    }
    return attributes;
  }

  nvtxDomainHandle_t domain_;
  std::array<nvtxStringHandle_t, names.size()> registered_{};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock

#endif
