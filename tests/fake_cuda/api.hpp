// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string>

#include "world.hpp"

namespace fake_cuda::detail {

/// The requirements of a call on the calling thread. If a call needs a context and the thread has
/// no current context, the call makes the primary context of the chosen device current; the default
/// device is 0. The documentation does not list these calls, so all calls count except queries for
/// devices and contexts.
enum class needs { context, nothing };

/// A call of the runtime from start to end: locks the mutex, counts the call, and fails on request.
class api_call {
 public:
  /// A call that is not `counted` cannot be made to fail.
  explicit api_call(const char* name, needs what = needs::context, bool counted = true);

  /// Returns true if the call has failed before it did anything.
  [[nodiscard]] bool failed() const { return early_ != cudaSuccess; }
  /// Returns true if the call failed on request. The call still counts as an attempt.
  [[nodiscard]] bool was_told_to_fail() const { return told_; }
  /// Returns the result of a call that failed at once.
  cudaError_t result() { return done(early_); }
  /// Stores the result in the thread's last-error slot and returns it.
  cudaError_t done(cudaError_t code);
  /// Returns the early failure of a driver function, which has no last-error slot.
  [[nodiscard]] cudaError_t early() const { return early_; }

  [[nodiscard]] world& now() const { return now_; }
  [[nodiscard]] thread_state& thread() const { return thread_; }
  [[nodiscard]] lock_type& lock() { return lock_; }
  [[nodiscard]] const char* name() const { return name_; }

  /// Returns the stream of a handle. Returns null and reports a finding if it does not exist.
  stream_ptr stream(cudaStream_t handle);
  /// Returns the event of a handle. Returns null and reports a finding if it does not exist.
  CUevent_st* event(cudaEvent_t handle);
  /// Returns the reason why the stream accepts no work. Either its capture was invalidated, or it
  /// is the legacy default stream while a stream that waits for it is being captured; the call
  /// invalidates that capture.
  [[nodiscard]] cudaError_t refused_by_capture(const CUstream_st& stream);
  /// Returns the number of captures that contain a stream which the legacy default stream waits
  /// for, if `stream` is that stream. Invalidates them if `end_them`.
  std::size_t captures_before(const CUstream_st& stream, bool end_them = false);
  /// Enqueues work that represents a kernel on a stream of the current device.
  cudaError_t enqueue_work(cudaStream_t stream, operation next);
  /// Returns true if a capture forbids a call that may wait or allocate. Invalidates the capture in
  /// that case.
  bool forbidden_by_capture();
  /// For a call whose documentation does not state whether a capture permits it. Programs make such
  /// calls while they capture, successfully. Here the call invalidates the global capture of
  /// another thread.
  bool forbidden_by_capture_of_others();
  /// For a wait for the whole device: invalidates every capture, regardless of its mode and the
  /// thread's mode.
  bool invalidates_captures();
  /// Returns the error of a device whose context is lost.
  [[nodiscard]] cudaError_t lost(int device) const;

 private:
  void count();
  bool forbidden_by_capture(bool also_own);

  const char* name_;
  world& now_;
  lock_type lock_;
  thread_state& thread_;
  cudaError_t early_ = cudaSuccess;
  bool told_ = false;
};

}  // namespace fake_cuda::detail
