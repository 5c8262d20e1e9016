// SPDX-License-Identifier: BSL-1.0
// Runtime functions for errors, streams and events, implemented as documented by NVIDIA.
#include <algorithm>
#include <string>
#include <utility>

#include "api.hpp"

using fake_cuda::detail::api_call;
using fake_cuda::detail::mark;
using fake_cuda::detail::needs;
using fake_cuda::detail::operation;

namespace {

constexpr std::uint64_t patience = 3;  // number of queries until unfinished work must progress

bool is_done(const mark& place) {
  return place.stream == nullptr || place.stream->completed >= place.position;
}

// The range of stream priorities on GPUs. Smaller numbers mean higher priorities.
constexpr int min_priority = 0;
constexpr int greatest_priority = -5;

cudaError_t make_stream(const char* name, cudaStream_t* stream, unsigned int flags,
                        int priority = 0) {
  api_call call{name};
  if (call.failed()) return call.result();
  if (call.forbidden_by_capture_of_others()) return call.done(cudaErrorStreamCaptureUnsupported);
  if (stream == nullptr || flags > cudaStreamNonBlocking) return call.done(cudaErrorInvalidValue);
  const auto made = call.now().make_stream(call.thread().device(), flags);
  made->priority = std::clamp(priority, greatest_priority, min_priority);
  *stream = made.get();
  return cudaSuccess;
}

cudaError_t make_event(const char* name, cudaEvent_t* event, unsigned int flags) {
  api_call call{name};
  if (call.failed()) return call.result();
  if (call.forbidden_by_capture_of_others()) return call.done(cudaErrorStreamCaptureUnsupported);
  if (event == nullptr) return call.done(cudaErrorInvalidValue);
  auto made = std::make_unique<CUevent_st>();
  made->device = call.thread().device();
  made->flags = flags;
  *event = made.get();
  call.now().events.push_back(std::move(made));
  return cudaSuccess;
}

}  // namespace

namespace fake_cuda {

void launch(cudaStream_t stream, std::function<void()> work, std::vector<const void*> touches) {
  api_call call{"fake_cuda::launch", needs::context, false};
  if (call.failed()) {
    call.result();
    return;
  }
  operation next;
  next.work = std::make_shared<std::function<void()>>(std::move(work));
  next.touches = std::move(touches);
  call.enqueue_work(stream, std::move(next));
}

void kernel_fault(cudaStream_t stream, cudaError_t code) {
  api_call call{"fake_cuda::kernel_fault", needs::context, false};
  if (call.failed()) return;
  const auto to = call.stream(stream);
  if (to == nullptr) return;
  operation next;
  next.fault = code;
  call.now().push(to, std::move(next));
}

}  // namespace fake_cuda

extern "C" {

// ---- errors and the current device

cudaError_t cudaDeviceSynchronize() {
  api_call call{"cudaDeviceSynchronize"};
  if (call.failed()) return call.result();
  if (call.invalidates_captures()) return call.done(cudaErrorStreamCaptureUnsupported);
  const int device = call.thread().device();
  call.now().run_all(call.lock(), device);
  return call.done(call.lost(device));
}

cudaError_t cudaDriverGetVersion(int* version) {
  api_call call{"cudaDriverGetVersion", needs::nothing};
  if (call.failed()) return call.result();
  *version = call.now().how.driver_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  api_call call{"cudaRuntimeGetVersion", needs::nothing};
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// Calls of these functions cannot fail and are not counted.
static cudaError_t standing_error() {
  auto& now = fake_cuda::detail::the_world();
  auto& thread = fake_cuda::detail::this_thread(now);
  if (now.unloaded) return cudaErrorCudartUnloading;
  if (now.how.no_driver) return cudaErrorInsufficientDriver;
  if (now.how.devices == 0) return cudaErrorNoDevice;
  const auto lost = now.lost.find(thread.device());
  return lost != now.lost.end() && thread.last_error != cudaSuccess ? lost->second
                                                                    : thread.last_error;
}

cudaError_t cudaPeekAtLastError() {
  auto& now = fake_cuda::detail::the_world();
  const std::lock_guard lock{now.mutex};
  ++fake_cuda::detail::this_thread(now).calls["cudaPeekAtLastError"];
  return standing_error();
}

cudaError_t cudaGetLastError() {
  auto& now = fake_cuda::detail::the_world();
  const std::lock_guard lock{now.mutex};
  const cudaError_t code = standing_error();
  auto& thread = fake_cuda::detail::this_thread(now);
  if (now.lost.count(thread.device()) == 0) thread.last_error = cudaSuccess;
  return code;
}

const char* cudaGetErrorName(cudaError_t code) {
  switch (code) {
#define PENSTOCK_NAME(name) \
  case name:                \
    return #name
    PENSTOCK_NAME(cudaSuccess);
    PENSTOCK_NAME(cudaErrorInvalidValue);
    PENSTOCK_NAME(cudaErrorMemoryAllocation);
    PENSTOCK_NAME(cudaErrorInitializationError);
    PENSTOCK_NAME(cudaErrorCudartUnloading);
    PENSTOCK_NAME(cudaErrorInvalidConfiguration);
    PENSTOCK_NAME(cudaErrorInvalidDeviceFunction);
    PENSTOCK_NAME(cudaErrorInsufficientDriver);
    PENSTOCK_NAME(cudaErrorCallRequiresNewerDriver);
    PENSTOCK_NAME(cudaErrorNoDevice);
    PENSTOCK_NAME(cudaErrorInvalidDevice);
    PENSTOCK_NAME(cudaErrorDeviceUninitialized);
    PENSTOCK_NAME(cudaErrorInvalidResourceHandle);
    PENSTOCK_NAME(cudaErrorIllegalState);
    PENSTOCK_NAME(cudaErrorNotReady);
    PENSTOCK_NAME(cudaErrorIllegalAddress);
    PENSTOCK_NAME(cudaErrorLaunchFailure);
    PENSTOCK_NAME(cudaErrorHostMemoryAlreadyRegistered);
    PENSTOCK_NAME(cudaErrorHostMemoryNotRegistered);
    PENSTOCK_NAME(cudaErrorNotPermitted);
    PENSTOCK_NAME(cudaErrorNotSupported);
    PENSTOCK_NAME(cudaErrorStreamCaptureUnsupported);
    PENSTOCK_NAME(cudaErrorStreamCaptureInvalidated);
    PENSTOCK_NAME(cudaErrorStreamCaptureMerge);
    PENSTOCK_NAME(cudaErrorStreamCaptureUnmatched);
    PENSTOCK_NAME(cudaErrorStreamCaptureUnjoined);
    PENSTOCK_NAME(cudaErrorStreamCaptureIsolation);
    PENSTOCK_NAME(cudaErrorStreamCaptureImplicit);
    PENSTOCK_NAME(cudaErrorCapturedEvent);
    PENSTOCK_NAME(cudaErrorStreamCaptureWrongThread);
    PENSTOCK_NAME(cudaErrorUnknown);
#undef PENSTOCK_NAME
    default:
      return "cudaError of the fake without a name";
  }
}

const char* cudaGetErrorString(cudaError_t) { return "as the fake of the runtime says"; }

// ---- streams

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return make_stream("cudaStreamCreate", stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return make_stream("cudaStreamCreateWithFlags", stream, flags);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return make_stream("cudaStreamCreateWithPriority", stream, flags, priority);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* min, int* greatest) {
  api_call call{"cudaDeviceGetStreamPriorityRange"};
  if (call.failed()) return call.result();
  if (min != nullptr) *min = min_priority;
  if (greatest != nullptr) *greatest = greatest_priority;
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  api_call call{"cudaStreamGetPriority"};
  if (call.failed()) return call.result();
  const auto of = call.stream(stream);
  if (of == nullptr) return call.done(cudaErrorInvalidResourceHandle);
  *priority = of->priority;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  api_call call{"cudaStreamDestroy"};
  if (call.failed() && !call.was_set_to_fail()) return call.result();
  const auto gone = call.stream(stream);
  if (gone == nullptr || gone->is_default) return call.done(cudaErrorInvalidResourceHandle);
  if (call.forbidden_by_capture_of_others()) return call.done(cudaErrorStreamCaptureUnsupported);
  gone->destroyed = true;  // the stream's work still runs
  return call.failed() ? call.result() : cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  api_call call{"cudaStreamSynchronize"};
  if (call.failed()) return call.result();
  const auto of = call.stream(stream);
  if (of == nullptr) return call.done(cudaErrorInvalidResourceHandle);
  if (of->captured_by != nullptr) {
    of->captured_by->invalidated = true;
    return call.done(cudaErrorStreamCaptureUnsupported);
  }
  if (call.forbidden_by_capture()) return call.done(cudaErrorStreamCaptureUnsupported);
  call.now().run_until(call.lock(), of, of->pushed);
  return call.done(call.lost(of->device));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  api_call call{"cudaStreamQuery"};
  if (call.failed()) return call.result();
  const auto of = call.stream(stream);
  if (of == nullptr) return call.done(cudaErrorInvalidResourceHandle);
  if (of->captured_by != nullptr) {
    of->captured_by->invalidated = true;
    return call.done(cudaErrorStreamCaptureUnsupported);
  }
  if (call.forbidden_by_capture()) return call.done(cudaErrorStreamCaptureUnsupported);
  if (of->completed < of->pushed && ++of->not_ready > patience) {
    call.now().run_towards(of, of->pushed);
  }
  if (of->completed < of->pushed) return call.done(cudaErrorNotReady);
  return call.done(call.lost(of->device));
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  api_call call{"cudaStreamGetDevice"};
  if (call.failed()) return call.result();
  if (call.now().how.driver_version < 12080) return call.done(cudaErrorCallRequiresNewerDriver);
  const auto of = call.stream(stream);
  if (of == nullptr) return call.done(cudaErrorInvalidResourceHandle);
  if (of->captured_by != nullptr) {
    of->captured_by->invalidated = true;
    return call.done(cudaErrorStreamCaptureUnsupported);
  }
  if (call.forbidden_by_capture()) return call.done(cudaErrorStreamCaptureUnsupported);
  *device = of->device;
  return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  api_call call{"cudaStreamGetFlags"};
  if (call.failed()) return call.result();
  const auto of = call.stream(stream);
  if (of == nullptr) return call.done(cudaErrorInvalidResourceHandle);
  *flags = of->flags;
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  api_call call{"cudaStreamWaitEvent"};
  if (call.failed()) return call.result();
  const auto of = call.stream(stream);
  CUevent_st* what = of == nullptr ? nullptr : call.event(event);
  if (what == nullptr) return call.done(cudaErrorInvalidResourceHandle);
  if (const auto why = call.unsupported_in_capture(*of); why != cudaSuccess) return call.done(why);
  const bool is_captured = what->captured_by != nullptr;
  if (is_captured && call.now().captures.count(what->captured_by) == 0) {
    if (of->captured_by != nullptr) of->captured_by->invalidated = true;
    return call.done(cudaErrorCapturedEvent);
  }
  if (of->captured_by != nullptr && what->captured_by != of->captured_by) {
    if (!is_captured && what->record.stream == nullptr) return cudaSuccess;
    of->captured_by->invalidated = true;
    if (is_captured) what->captured_by->invalidated = true;
    return call.done(is_captured ? cudaErrorStreamCaptureMerge : cudaErrorStreamCaptureIsolation);
  }
  if (what->captured_by != nullptr) {
    if (of->captured_by == nullptr) {  // the stream joins the capture
      of->captured_by = what->captured_by;
      of->captured_by->members.insert(of.get());
      of->captured_by->unjoined.insert(of.get());
    }
    if (of.get() != what->captured_on) of->captured_by->unjoined.erase(what->captured_on);
    return cudaSuccess;
  }
  ++what->stream_waits;
  if (is_done(what->record)) return cudaSuccess;
  operation next;
  next.what = operation::kind::wait;
  next.target = what->record;
  call.now().push(of, std::move(next));
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  api_call call{"cudaLaunchHostFunc"};
  if (call.failed()) return call.result();
  const auto of = call.stream(stream);
  if (of == nullptr) return call.done(cudaErrorInvalidResourceHandle);
  if (const auto why = call.unsupported_in_capture(*of); why != cudaSuccess) return call.done(why);
  operation next;
  next.work = std::make_shared<std::function<void()>>([function, data] { function(data); });
  next.is_host_function = true;
  call.now().push(of, std::move(next));
  return cudaSuccess;
}

// ---- events

cudaError_t cudaEventCreate(cudaEvent_t* event) { return make_event("cudaEventCreate", event, 0); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return make_event("cudaEventCreateWithFlags", event, flags);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  api_call call{"cudaEventDestroy"};
  if (call.failed() && !call.was_set_to_fail()) return call.result();
  CUevent_st* gone = call.event(event);
  if (gone == nullptr) return call.done(cudaErrorInvalidResourceHandle);
  if (call.forbidden_by_capture_of_others()) return call.done(cudaErrorStreamCaptureUnsupported);
  gone->destroyed = true;
  return call.failed() ? call.result() : cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  api_call call{"cudaEventRecord"};
  if (call.failed()) return call.result();
  const auto on = call.stream(stream);
  CUevent_st* what = on == nullptr ? nullptr : call.event(event);
  if (what == nullptr || what->device != on->device) {
    return call.done(cudaErrorInvalidResourceHandle);
  }
  if (const auto why = call.unsupported_in_capture(*on); why != cudaSuccess) return call.done(why);
  if (on->captured_by == nullptr) call.now().order_with_legacy(on);
  what->captured_by = on->captured_by;
  what->captured_on = on->captured_by == nullptr ? nullptr : on.get();
  what->record = on->captured_by == nullptr ? mark{on, on->pushed} : mark{};
  what->not_ready = 0;
  ++what->records;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  api_call call{"cudaEventQuery"};
  if (call.failed()) return call.result();
  CUevent_st* what = call.event(event);
  if (what == nullptr) return call.done(cudaErrorInvalidResourceHandle);
  if (what->captured_by != nullptr) return call.done(cudaErrorCapturedEvent);
  if (call.forbidden_by_capture()) return call.done(cudaErrorStreamCaptureUnsupported);
  const mark place = what->record;
  if (!is_done(place) && ++what->not_ready > patience) {
    call.now().run_towards(place.stream, place.position);
  }
  if (!is_done(place)) return call.done(cudaErrorNotReady);
  return call.done(call.lost(what->device));
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  api_call call{"cudaEventElapsedTime"};
  if (call.failed()) return call.result();
  const CUevent_st* first = call.event(start);
  const CUevent_st* last = first == nullptr ? nullptr : call.event(end);
  if (last == nullptr) return call.done(cudaErrorInvalidResourceHandle);
  if (((first->flags | last->flags) & cudaEventDisableTiming) != 0 || first->records == 0 ||
      last->records == 0) {
    return call.done(cudaErrorInvalidResourceHandle);
  }
  if (!is_done(first->record) || !is_done(last->record)) return call.done(cudaErrorNotReady);
  // One millisecond per operation between two positions in a stream.
  *milliseconds = first->record.stream != last->record.stream
                      ? 0.5F
                      : static_cast<float>(last->record.position - first->record.position);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  api_call call{"cudaEventSynchronize"};
  if (call.failed()) return call.result();
  CUevent_st* what = call.event(event);
  if (what == nullptr) return call.done(cudaErrorInvalidResourceHandle);
  if (what->captured_by != nullptr) return call.done(cudaErrorCapturedEvent);
  if (call.forbidden_by_capture()) return call.done(cudaErrorStreamCaptureUnsupported);
  const mark place = what->record;
  const int device = what->device;
  ++what->host_waits;
  if (place.stream != nullptr) call.now().run_until(call.lock(), place.stream, place.position);
  return call.done(call.lost(device));
}

}  // extern "C"
