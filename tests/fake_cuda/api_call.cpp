// SPDX-License-Identifier: BSL-1.0
#include "api.hpp"

#include <algorithm>
#include <utility>

namespace fake_cuda::detail {

api_call::api_call(const char* name, needs what, bool counted)
    : name_(name), now_(the_world()), lock_(now_.mutex), thread_(this_thread(now_)) {
  if (thread_.in_work) {
    now_.find("call inside of work", std::string{name} + " inside of a host function or of work");
    early_ = cudaErrorNotPermitted;
    return;
  }
  if (counted) {
    now_.note({.number = thread_.number, .what = name});
    count();
  }
  if (early_ != cudaSuccess) return;
  if (now_.unloaded) {
    early_ = cudaErrorCudartUnloading;
  } else if (now_.how.no_driver) {
    early_ = cudaErrorInsufficientDriver;
  } else if (now_.how.devices == 0) {
    early_ = cudaErrorNoDevice;
  } else {
    early_ = lost(thread_.device());
    reported_ = early_ != cudaSuccess;
  }
  if (early_ == cudaSuccess && what == needs::context) {
    if (thread_.contexts.empty()) {
      world::set_current(thread_, now_.initialize(thread_.device()));
    } else if (!thread_.contexts.back()->exists()) {
      now_.find("context destroyed", std::string{name} + " in a context that is no longer held");
      early_ = cudaErrorContextIsDestroyed;
    }
  }
  if (early_ == cudaSuccess && now_.how.policy == policy::random) now_.act();
}

void api_call::count() {
  ++now_.all_calls;
  ++now_.calls[name_];
  ++thread_.calls[name_];
  for (planned_failure& plan : now_.failures) {
    if (!plan.function.empty() && plan.function != name_) continue;
    if (plan.left > 0) {
      --plan.left;
    } else if (!plan.from_then_on) {
      early_ = plan.code;
      reported_ = true;
      plan.function = "-";  // the failure has been used up
    } else {
      for (int device = 0; device < now_.how.devices; ++device) now_.lose(device, plan.code);
      reported_ = true;
      early_ = plan.code;
    }
  }
}

cudaError_t api_call::done(cudaError_t code) {
  if (code != cudaSuccess) {
    thread_.last_error = code;
    now_.note({.number = thread_.number, .what = name_, .code = code});
  }
  return code;
}

cudaError_t api_call::lost(int device) const {
  const auto found = now_.lost.find(device);
  return found == now_.lost.end() ? cudaSuccess : found->second;
}

stream_ptr api_call::stream(cudaStream_t handle) {
  const auto made = [&](stream_ptr& held) {
    if (held == nullptr) {
      held = now_.make_stream(thread_.device(), cudaStreamDefault);
      held->is_default = true;
    }
    return held;
  };
  if (handle == nullptr || handle == cudaStreamLegacy) {
    return made(now_.default_streams[thread_.device()]);
  }
  if (handle == cudaStreamPerThread) return made(thread_.default_streams[thread_.device()]);
  const auto found = std::find_if(now_.streams.begin(), now_.streams.end(),
                                  [&](const auto& one) { return one.get() == handle; });
  if (found == now_.streams.end()) {
    now_.find("unknown handle", std::string{name_} + " of a stream that never was");
    return nullptr;
  }
  if ((*found)->destroyed) {
    now_.find("use after destroy", std::string{name_} + " of a stream that was destroyed");
    return nullptr;
  }
  return *found;
}

CUevent_st* api_call::event(cudaEvent_t handle) {
  const auto found = std::find_if(now_.events.begin(), now_.events.end(),
                                  [&](const auto& one) { return one.get() == handle; });
  if (found == now_.events.end()) {
    now_.find("unknown handle", std::string{name_} + " of an event that never was");
    return nullptr;
  }
  if ((*found)->destroyed) {
    now_.find("use after destroy", std::string{name_} + " of an event that was destroyed");
    return nullptr;
  }
  return found->get();
}

cudaError_t api_call::unsupported_in_capture(const CUstream_st& stream) {
  if (stream.captured_by != nullptr) {
    return stream.captured_by->invalidated ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
  }
  return captures_before(stream, true) == 0 ? cudaSuccess : cudaErrorStreamCaptureImplicit;
}

std::size_t api_call::captures_before(const CUstream_st& stream, bool end_them) {
  if (now_.default_streams[stream.device].get() != &stream) return 0;
  std::size_t count = 0;
  for (const auto& one : now_.captures) {
    const auto waits_for_it = [&](const CUstream_st* member) {
      return member->device == stream.device && member->flags != cudaStreamNonBlocking;
    };
    if (std::none_of(one->members.begin(), one->members.end(), waits_for_it)) continue;
    if (end_them) one->invalidated = true;
    ++count;
  }
  return count;
}

cudaError_t api_call::enqueue_work(cudaStream_t stream, operation next) {
  const auto to = this->stream(stream);
  if (to == nullptr) return done(cudaErrorInvalidResourceHandle);
  if (to->device != thread_.device()) {
    now_.find("wrong device", "a kernel is launched on a stream of device " +
                                  std::to_string(to->device) + " while device " +
                                  std::to_string(thread_.device()) + " is current");
    return done(cudaErrorInvalidResourceHandle);
  }
  if (const auto why = unsupported_in_capture(*to); why != cudaSuccess) return done(why);
  now_.push(to, std::move(next));
  return cudaSuccess;
}

bool api_call::forbidden_by_capture() { return forbidden_by_capture(true); }
bool api_call::forbidden_by_capture_of_others() { return forbidden_by_capture(false); }

bool api_call::invalidates_captures() {
  for (const auto& one : now_.captures) one->invalidated = true;
  return !now_.captures.empty();
}

bool api_call::forbidden_by_capture(bool also_own) {
  bool forbidden = false;
  for (const auto& one : now_.captures) {
    const bool own = one->thread == std::this_thread::get_id();
    if (own && !also_own) continue;
    const bool hit = own ? one->mode != cudaStreamCaptureModeRelaxed &&
                               thread_.capture_mode != cudaStreamCaptureModeRelaxed
                         : one->mode == cudaStreamCaptureModeGlobal &&
                               thread_.capture_mode == cudaStreamCaptureModeGlobal;
    if (!hit) continue;
    one->invalidated = true;
    forbidden = true;
  }
  return forbidden;
}

}  // namespace fake_cuda::detail
