// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string>

#include "world.hpp"

namespace fake_cuda::detail {

/// The context that a call requires on the calling thread. If a call needs a context and no context
/// is current, the call makes the primary context of the chosen device current. The default device
/// is 0. NVIDIA does not document which calls need a context, so all calls do, except queries for
/// devices and contexts.
enum class needs { context, nothing };

/// A runtime call from start to end. Locks the mutex, counts the call, and makes it fail on
/// request.
class api_call {
 public:
  /// Begins a call. A call that is not `counted` cannot be made to fail.
  explicit api_call(const char* name, needs what = needs::context, bool counted = true);

  /// Returns true if the call has failed before taking effect.
  [[nodiscard]] bool failed() const { return early_ != cudaSuccess; }
  /// Returns true if the call failed on request. The call still counts as an attempt.
  [[nodiscard]] bool was_set_to_fail() const { return reported_; }
  /// Returns the result of a call that has failed before taking effect.
  cudaError_t result() { return done(early_); }
  /// Stores the result in the thread's last-error slot and returns the result.
  cudaError_t done(cudaError_t code);
  /// Returns the early failure of a driver function, which has no last-error slot.
  [[nodiscard]] cudaError_t early() const { return early_; }

  [[nodiscard]] world& now() const { return now_; }
  [[nodiscard]] thread_state& thread() const { return thread_; }
  [[nodiscard]] lock_type& lock() { return lock_; }
  [[nodiscard]] const char* name() const { return name_; }

  /// Returns the stream of a handle. Reports a finding and returns null if the stream does not
  /// exist.
  stream_ptr stream(cudaStream_t handle);
  /// Returns the event of a handle. Reports a finding and returns null if the event does not exist.
  CUevent_st* event(cudaEvent_t handle);
  /// Returns the error with which the stream rejects work during captures, if any. Either the
  /// stream's own capture was invalidated, or the stream is the legacy default stream and a stream
  /// that it waits for is being captured. In the second case, the call also invalidates that
  /// capture.
  [[nodiscard]] cudaError_t unsupported_in_capture(const CUstream_st& stream);
  /// Returns the number of captures that contain a stream which the legacy default stream waits
  /// for. Returns 0 if `stream` is another stream. Invalidates the captures if `end_them` is true.
  std::size_t captures_before(const CUstream_st& stream, bool end_them = false);
  /// Queues work that represents a kernel on a stream of the current device.
  cudaError_t enqueue_work(cudaStream_t stream, operation next);
  /// Returns true if a capture forbids a call that may wait or allocate, and then invalidates the
  /// capture.
  bool forbidden_by_capture();
  /// Returns true if a global capture on another thread forbids the call, and then invalidates that
  /// capture. Used for calls whose behavior during a capture is undocumented; programs make such
  /// calls successfully while they capture on the same thread.
  bool forbidden_by_capture_of_others();
  /// Invalidates every capture, regardless of its mode and the thread's mode, as a wait for the
  /// whole device does.
  bool invalidates_captures();
  /// Returns the error of a device with a lost context.
  [[nodiscard]] cudaError_t lost(int device) const;

 private:
  void count();
  bool forbidden_by_capture(bool also_own);

  const char* name_;
  world& now_;
  lock_type lock_;
  thread_state& thread_;
  cudaError_t early_ = cudaSuccess;
  bool reported_ = false;
};

}  // namespace fake_cuda::detail
