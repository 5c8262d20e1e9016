// SPDX-License-Identifier: BSL-1.0
// Runtime functions for stream capture and graphs.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "api.hpp"

using fake_cuda::detail::api_call;
using fake_cuda::detail::capture;

namespace {

/// Returns the live object of a handle. Reports a finding and returns null if the object does not
/// exist.
template <class Objects, class Handle>
auto* find_object(api_call& call, Objects& objects, Handle handle, const char* what) {
  const auto found = std::find_if(objects.begin(), objects.end(),
                                  [&](const auto& one) { return one.get() == handle; });
  decltype(found->get()) none = nullptr;
  if (found == objects.end()) {
    call.now().find("unknown handle", std::string{call.name()} + " of no " + what);
    return none;
  }
  if ((*found)->destroyed) {
    call.now().find("use after destroy", std::string{call.name()} + " of a destroyed " + what);
    return none;
  }
  return found->get();
}

cudaError_t instantiate(const char* name, cudaGraphExec_t* exec, cudaGraph_t graph) {
  api_call call{name};
  if (call.failed()) return call.result();
  const auto* from = find_object(call, call.now().graphs, graph, "graph");
  if (from == nullptr) return call.done(cudaErrorInvalidValue);
  if (call.forbidden_by_capture_of_others()) return call.done(cudaErrorStreamCaptureUnsupported);
  auto made = std::make_unique<CUgraphExec_st>();
  made->operations = from->operations;
  *exec = made.get();
  call.now().execs.push_back(std::move(made));
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  api_call call{"cudaThreadExchangeStreamCaptureMode"};
  if (call.failed()) return call.result();
  std::swap(*mode, call.thread().capture_mode);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  api_call call{"cudaStreamIsCapturing"};
  if (call.failed()) return call.result();
  const auto of = call.stream(stream);
  if (of == nullptr) return call.done(cudaErrorInvalidResourceHandle);
  // The legacy stream cannot be queried while a stream that it waits for is being captured. The
  // query does not invalidate the capture.
  if (call.captures_before(*of) > 0) return call.done(cudaErrorStreamCaptureImplicit);
  *status = of->captured_by == nullptr     ? cudaStreamCaptureStatusNone
            : of->captured_by->invalidated ? cudaStreamCaptureStatusInvalidated
                                           : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  api_call call{"cudaStreamBeginCapture"};
  if (call.failed()) return call.result();
  const auto of = call.stream(stream);
  if (of == nullptr) return call.done(cudaErrorInvalidResourceHandle);
  if (of->captured_by != nullptr) return call.done(cudaErrorIllegalState);
  if (of->is_default) return call.done(cudaErrorStreamCaptureUnsupported);
  auto begun = std::make_shared<capture>();
  begun->mode = mode;
  begun->thread = std::this_thread::get_id();
  begun->origin = of.get();
  begun->members.insert(of.get());
  of->captured_by = begun;
  call.now().captures.insert(begun);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (graph != nullptr) *graph = nullptr;
  api_call call{"cudaStreamEndCapture"};
  if (call.failed() && !call.was_set_to_fail()) return call.result();
  const auto of = call.stream(stream);
  if (of == nullptr) return call.done(cudaErrorInvalidResourceHandle);
  const auto ended = of->captured_by;
  if (ended == nullptr) return call.done(cudaErrorIllegalState);
  if (ended->origin != of.get()) return call.done(cudaErrorStreamCaptureUnmatched);
  if (ended->mode != cudaStreamCaptureModeRelaxed && ended->thread != std::this_thread::get_id()) {
    return call.done(cudaErrorStreamCaptureWrongThread);
  }
  for (const auto& one : call.now().streams) {
    if (one->captured_by == ended) one->captured_by = nullptr;
  }
  call.now().captures.erase(ended);
  if (call.failed()) return call.result();
  if (ended->invalidated) return call.done(cudaErrorStreamCaptureInvalidated);
  if (!ended->unjoined.empty()) return call.done(cudaErrorStreamCaptureUnjoined);
  auto made = std::make_unique<CUgraph_st>();
  made->operations = std::move(ended->operations);
  *graph = made.get();
  call.now().graphs.push_back(std::move(made));
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return instantiate("cudaGraphInstantiate", exec, graph);
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long) {
  return instantiate("cudaGraphInstantiateWithFlags", exec, graph);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  api_call call{"cudaGraphGetNodes"};
  if (call.failed()) return call.result();
  const auto* of = find_object(call, call.now().graphs, graph, "graph");
  if (of == nullptr) return call.done(cudaErrorInvalidValue);
  *count = of->operations.size();
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  api_call call{"cudaGraphUpload"};
  if (call.failed()) return call.result();
  if (find_object(call, call.now().execs, exec, "executable graph") == nullptr ||
      call.stream(stream) == nullptr) {
    return call.done(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  api_call call{"cudaGraphLaunch"};
  if (call.failed()) return call.result();
  const auto* what = find_object(call, call.now().execs, exec, "executable graph");
  const auto on = what == nullptr ? nullptr : call.stream(stream);
  if (on == nullptr) return call.done(cudaErrorInvalidValue);
  if (on->captured_by != nullptr) {
    on->captured_by->invalidated = true;
    return call.done(cudaErrorStreamCaptureUnsupported);
  }
  if (const auto why = call.unsupported_in_capture(*on); why != cudaSuccess) return call.done(why);
  for (const auto& next : what->operations) call.now().push(on, next);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  api_call call{"cudaGraphDestroy"};
  if (call.failed() && !call.was_set_to_fail()) return call.result();
  auto* gone = find_object(call, call.now().graphs, graph, "graph");
  if (gone == nullptr) return call.done(cudaErrorInvalidValue);
  if (call.forbidden_by_capture_of_others()) return call.done(cudaErrorStreamCaptureUnsupported);
  gone->destroyed = true;
  return call.failed() ? call.result() : cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  api_call call{"cudaGraphExecDestroy"};
  if (call.failed() && !call.was_set_to_fail()) return call.result();
  auto* gone = find_object(call, call.now().execs, exec, "executable graph");
  if (gone == nullptr) return call.done(cudaErrorInvalidValue);
  if (call.forbidden_by_capture_of_others()) return call.done(cudaErrorStreamCaptureUnsupported);
  gone->destroyed = true;
  return call.failed() ? call.result() : cudaSuccess;
}

}  // extern "C"
