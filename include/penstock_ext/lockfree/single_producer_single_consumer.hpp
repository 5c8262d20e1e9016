// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <boost/lockfree/spsc_queue.hpp>

#include <atomic>
#include <cstddef>

#include <penstock/threads/batch_queue.hpp>
#include <penstock/threads/support/eventcount.hpp>
#include <penstock/threads/support/ticket_ring.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Boost's ring buffer with the interface of `ticket_ring`.
template <queue_ticket T>
class spsc_ring {
 public:
  explicit spsc_ring(std::size_t capacity) : queue_(capacity) {}
  bool try_push(const T& ticket) noexcept { return queue_.push(ticket); }
  bool try_pop(T& ticket) noexcept { return queue_.pop(ticket); }
  [[nodiscard]] bool was_empty() const noexcept { return queue_.read_available() == 0; }

 private:
  boost::lockfree::spsc_queue<T> queue_;
};

/// Asymmetric fences, whose cost is paid only by the sleeping side. That side executes a full fence
/// on each core that runs a thread of this process (membarrier(2)). If the kernel does not support
/// membarrier, as in some sandboxes, both sides use ordinary fences.
template <class Atomics>
class asymmetric_fences {
 public:
  /// Registers the process. The first call in a multi-threaded process takes several milliseconds.
  asymmetric_fences() noexcept
      : has_kernels_(in_kernel(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0) {}

  void light() const noexcept {
    if (has_kernels_) {
      std::atomic_signal_fence(std::memory_order_seq_cst);  // prevents reordering by the compiler
    } else {
      Atomics::fence();
    }
  }
  void heavy() const noexcept {
    Atomics::fence();
    // The call cannot fail after registration.
    if (has_kernels_) in_kernel(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  }

 private:
  static long in_kernel(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0); }

  bool has_kernels_;
};

}  // namespace detail

/// The policy of a `batch_queue` with one producer and one consumer at a time. Any thread may call
/// `close`, `was_closed` and `wake_poppers`. Only the producer and the consumer may call
/// `was_empty`.
///
///     ps::batch_queue<ticket, ps::single_producer_single_consumer> queue{16};
///
/// Implemented by `boost::lockfree::spsc_queue`. A push or pop that wakes no thread does not need a
/// fence. Instead, a thread that is about to sleep executes the fences of both sides, which takes
/// several microseconds.
struct single_producer_single_consumer {
  template <detail::queue_ticket T, class Atomics>
  using ring = detail::spsc_ring<T>;
  template <class Atomics>
  using eventcount = detail::basic_eventcount<Atomics, detail::asymmetric_fences<Atomics>>;
  static constexpr bool is_ordered = false;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
