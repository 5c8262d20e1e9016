// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string>

#include "world.hpp"

namespace fake_cuda::detail {

/// What a call needs of the calling thread. Of one that has no context current, a call that needs
/// one makes that of its device, 0 where it chose none. The documentation does not list these
/// calls: so all count as one but what asks for devices and contexts.
enum class needs { context, nothing };

/// One call of the runtime, from start to end: holds the mutex, counts, fails when told to.
class api_call {
 public:
  /// What is not `counted` can't be told to fail.
  explicit api_call(const char* name, needs what = needs::context, bool counted = true);

  /// Whether the call has failed before it did anything.
  [[nodiscard]] bool failed() const { return early_ != cudaSuccess; }
  /// Whether it failed because it was told to: an attempt all the same.
  [[nodiscard]] bool was_told_to_fail() const { return told_; }
  /// The result of a call that failed at once.
  cudaError_t result() { return done(early_); }
  /// Notes the result in the thread's last-error slot and gives it back.
  cudaError_t done(cudaError_t code);
  /// What failed at once gives, of a function of the driver: it has no last-error slot.
  [[nodiscard]] cudaError_t early() const { return early_; }

  [[nodiscard]] world& now() const { return now_; }
  [[nodiscard]] thread_state& thread() const { return thread_; }
  [[nodiscard]] lock_type& lock() { return lock_; }
  [[nodiscard]] const char* name() const { return name_; }

  /// The stream behind a handle; null, and a finding, for none that exists.
  stream_ptr stream(cudaStream_t handle);
  /// The event behind a handle; null, and a finding, for none that exists.
  CUevent_st* event(cudaEvent_t handle);
  /// Why the stream takes no work now: it is of a capture that something has ended, or it is the
  /// legacy default stream while a stream that waits for that one is captured, which this ends.
  [[nodiscard]] cudaError_t refused_by_capture(const CUstream_st& stream);
  /// How many captures have a stream that the legacy default stream, if this is it, waits for; they
  /// are ended where that is asked for.
  std::size_t captures_before(const CUstream_st& stream, bool end_them = false);
  /// Gives a stream of the current device work that stands for a kernel.
  cudaError_t enqueue_work(cudaStream_t stream, operation next);
  /// Whether a capture forbids a call that may wait or allocate; ends the capture if so.
  bool forbidden_by_capture();
  /// For a call of which the documentation does not say whether it may: programs make it
  /// while they capture, and it goes well; another thread's global capture it ends, here.
  bool forbidden_by_capture_of_others();
  /// For a wait for the whole device: ends every capture, whatever its mode and the thread's.
  bool invalidates_captures();
  /// The error of a device whose context is lost.
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
