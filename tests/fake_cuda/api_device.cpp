// SPDX-License-Identifier: BSL-1.0
// Runtime functions for devices, and driver functions for contexts that a program gets from the
// runtime by name.
#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "api.hpp"

using fake_cuda::detail::api_call;
using fake_cuda::detail::needs;
using fake_cuda::detail::thread_state;
using fake_cuda::detail::world;

namespace fake_cuda {

namespace detail {

CUctx_st& world::primary(int device) {
  auto& context = contexts[device];
  context.device = device;
  return context;
}

CUctx_st& world::initialize(int device) {
  auto& context = primary(device);
  context.is_held_by_runtime = true;
  return context;
}

void world::set_current(thread_state& thread, CUctx_st& context) {
  if (!thread.contexts.empty()) thread.contexts.pop_back();
  thread.contexts.push_back(&context);
}

bool world::is_in_use(int device) const {
  const auto is_there = [&](const auto& one) { return one->device == device && !one->destroyed; };
  const auto is_taken = [&](const auto& one) { return one.second.device == device; };
  return std::any_of(streams.begin(), streams.end(), is_there) ||
         std::any_of(events.begin(), events.end(), is_there) ||
         std::any_of(blocks.begin(), blocks.end(), is_taken);
}

}  // namespace detail

std::size_t contexts(int device) {
  auto& now = detail::the_world();
  const std::lock_guard lock{now.mutex};
  return now.primary(device).exists() ? 1 : 0;
}

}  // namespace fake_cuda

namespace {

// ---- Driver functions return error codes with the same values as the runtime's codes.

constexpr int invalid_context = cudaErrorDeviceUninitialized;  // CUDA_ERROR_INVALID_CONTEXT

bool is_device(const api_call& call, int device) {
  return device >= 0 && device < call.now().how.devices;
}

/// Records the result of a call in the trace.
int given(const api_call& call, int result) {
  if (result != 0) {
    call.now().note({.number = call.thread().number,
                     .what = call.name(),
                     .code = static_cast<cudaError_t>(result)});
  }
  return result;
}

int driver_device_get(int* device, int ordinal) {
  const api_call call{"cuDeviceGet", needs::nothing};
  if (call.failed()) return given(call, call.early());
  if (!is_device(call, ordinal)) return given(call, cudaErrorInvalidDevice);
  *device = ordinal;
  return 0;
}

int driver_primary_retain(CUctx_st** context, int device) {
  const api_call call{"cuDevicePrimaryCtxRetain", needs::nothing};
  if (call.failed()) return given(call, call.early());
  if (!is_device(call, device)) return given(call, cudaErrorInvalidDevice);
  *context = &call.now().primary(device);
  ++(*context)->retained;
  return 0;
}

int driver_primary_release(int device) {
  const api_call call{"cuDevicePrimaryCtxRelease", needs::nothing};
  if (call.failed() && !call.was_set_to_fail()) return given(call, call.early());
  if (!is_device(call, device)) return given(call, cudaErrorInvalidDevice);
  auto& context = call.now().primary(device);
  if (context.retained == 0) return given(call, invalid_context);
  --context.retained;
  if (!context.exists() && call.now().is_in_use(device)) {
    call.now().find("context destroyed", "the last one to hold the context of device " +
                                             std::to_string(device) +
                                             " lets it go, and with it what is on the device");
  }
  return given(call, call.early());
}

int driver_primary_state(int device, unsigned* flags, int* active) {
  const api_call call{"cuDevicePrimaryCtxGetState", needs::nothing};
  if (call.failed()) return given(call, call.early());
  if (!is_device(call, device)) return given(call, cudaErrorInvalidDevice);
  *flags = 0;
  *active = call.now().primary(device).exists() ? 1 : 0;
  return 0;
}

int driver_get_device(int* device) {
  const api_call call{"cuCtxGetDevice", needs::nothing};
  if (call.failed()) return given(call, call.early());
  if (call.thread().contexts.empty()) return invalid_context;
  *device = call.thread().device();
  return 0;
}

int driver_push(CUctx_st* context) {
  const api_call call{"cuCtxPushCurrent", needs::nothing};
  if (call.failed()) return given(call, call.early());
  if (context == nullptr || !context->exists()) return given(call, invalid_context);
  call.thread().contexts.push_back(context);
  return 0;
}

int driver_pop(CUctx_st** context) {
  const api_call call{"cuCtxPopCurrent", needs::nothing};
  if (call.failed() && !call.was_set_to_fail()) return given(call, call.early());
  auto& stack = call.thread().contexts;
  if (stack.empty()) return given(call, invalid_context);
  *context = stack.back();
  stack.pop_back();
  return given(call, call.early());
}

int driver_context_of(cudaStream_t stream, CUctx_st** context) {
  api_call call{"cuStreamGetCtx", needs::nothing};
  if (call.failed()) return given(call, call.early());
  const auto of = call.stream(stream);
  if (of == nullptr) return given(call, cudaErrorInvalidResourceHandle);
  *context = &call.now().primary(of->device);
  return 0;
}

struct entry_point {
  std::string_view name;
  void* function;
  unsigned since;  // the driver version that introduced the function
};

cudaError_t entry_point_of(const char* name, const char* symbol, void** function, unsigned version,
                           cudaDriverEntryPointQueryResult* status) {
  api_call call{name, needs::nothing};
  if (call.failed()) return call.result();
  if (version > static_cast<unsigned>(call.now().how.driver_version)) {
    return call.done(cudaErrorInvalidValue);
  }
  const std::array<entry_point, 8> known{{
      {"cuDeviceGet", reinterpret_cast<void*>(&driver_device_get), 2000},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(&driver_primary_retain), 7000},
      {"cuDevicePrimaryCtxRelease", reinterpret_cast<void*>(&driver_primary_release), 11000},
      {"cuDevicePrimaryCtxGetState", reinterpret_cast<void*>(&driver_primary_state), 7000},
      {"cuCtxGetDevice", reinterpret_cast<void*>(&driver_get_device), 2000},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(&driver_push), 4000},
      {"cuStreamGetCtx", reinterpret_cast<void*>(&driver_context_of), 9020},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(&driver_pop), 4000},
  }};
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const auto& one) { return one.name == symbol; });
  const bool is_there = found != known.end() && found->since <= version;
  *function = is_there ? found->function : nullptr;
  if (status != nullptr) {
    *status = found == known.end() ? cudaDriverEntryPointSymbolNotFound
              : is_there           ? cudaDriverEntryPointSuccess
                                   : cudaDriverEntryPointVersionNotSufficent;
  }
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* status) {
  return entry_point_of("cudaGetDriverEntryPoint", symbol, function, 12000, status);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  return entry_point_of("cudaGetDriverEntryPointByVersion", symbol, function, version, status);
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  api_call call{"cudaGetDeviceCount", needs::nothing};
  if (call.failed()) return call.result();
  *count = call.now().how.devices;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  api_call call{"cudaGetDevice", needs::nothing};
  if (call.failed()) return call.result();
  *device = call.thread().device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  api_call call{"cudaSetDevice", needs::nothing};
  if (call.failed()) return call.result();
  if (!is_device(call, device)) return call.done(cudaErrorInvalidDevice);
  call.thread().chosen = device;
  world::set_current(call.thread(), call.now().initialize(device));
  return call.done(call.lost(device));
}

cudaError_t cudaInitDevice(int device, unsigned int, unsigned int) {
  api_call call{"cudaInitDevice", needs::nothing};
  if (call.failed()) return call.result();
  if (!is_device(call, device)) return call.done(cudaErrorInvalidDevice);
  call.now().initialize(device);
  return call.done(call.lost(device));
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  api_call call{"cudaDeviceGetAttribute", needs::nothing};
  if (call.failed()) return call.result();
  if (!is_device(call, device)) return call.done(cudaErrorInvalidDevice);
  const fake_cuda::config& how = call.now().how;
  switch (attribute) {
    case cudaDevAttrHostNumaId:
      *value = how.host_numa_id;
      break;
    case cudaDevAttrHostRegisterReadOnlySupported:
      *value = how.read_only_registration ? 1 : 0;
      break;
    case cudaDevAttrUnifiedAddressing:
      *value = 1;
      break;
    case cudaDevAttrCanMapHostMemory:
      *value = how.maps_host_memory ? 1 : 0;
      break;
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
      *value = how.registered_at_host_address ? 1 : 0;
      break;
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
      *value = how.host_page_tables ? 1 : 0;
      break;
    case cudaDevAttrIntegrated:
      *value = how.integrated ? 1 : 0;
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  api_call call{"cudaDeviceGetPCIBusId", needs::nothing};
  if (call.failed()) return call.result();
  if (!is_device(call, device)) return call.done(cudaErrorInvalidDevice);
  const std::string& name = call.now().how.pci_bus_id;
  if (id == nullptr || length <= 0) return call.done(cudaErrorInvalidValue);
  if (name.size() >= static_cast<std::size_t>(length)) return call.done(cudaErrorInvalidValue);
  std::copy_n(name.c_str(), name.size() + 1, id);
  return cudaSuccess;
}

}  // extern "C"
