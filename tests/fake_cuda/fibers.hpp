// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <deque>
#include <memory>

// A switch with swapcontext makes a system call for the signal mask; a switch with _longjmp takes
// nanoseconds. AddressSanitizer must be notified of the new stack, and supports only swapcontext.
// ThreadSanitizer is not notified: its build leaves out the code that runs kernels.
#if defined(__SANITIZE_ADDRESS__)
#define FAKE_CUDA_FIBERS_BY_CONTEXT 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FAKE_CUDA_FIBERS_BY_CONTEXT 1
#endif
#endif
#if !defined(FAKE_CUDA_FIBERS_BY_CONTEXT)
#define FAKE_CUDA_FIBERS_BY_CONTEXT 0
#include <csetjmp>
#endif

namespace fake_cuda::detail {

/// The point at which a thread of control has stopped.
struct stopped_at {
#if FAKE_CUDA_FIBERS_BY_CONTEXT
  ucontext_t context;
  void* fake_stack = nullptr;  // AddressSanitizer's
  const void* stack = nullptr;
  std::size_t stack_bytes = 0;
#else
  std::jmp_buf context;
#endif
};

/// Functions that run alternately on one thread, each on its own stack.
class fiber_pool {
 public:
  using body = void (*)(void* argument, std::size_t number);

  fiber_pool() = default;
  fiber_pool(fiber_pool&&) = delete;
  ~fiber_pool();

  /// Makes fibers 0 to `count` - 1 run `run(argument, i)`, starting at their next `resume`. All
  /// fibers must have ended their previous function.
  void assign(std::size_t count, body run, void* argument);
  /// Continues a fiber until it yields or ends. Must be called from outside all fibers.
  void resume(std::size_t number);
  /// Returns to the caller of `resume`. Must be called from inside the running fiber.
  void yield();
  /// Returns the number of the running fiber.
  [[nodiscard]] std::size_t current() const { return current_; }
  [[nodiscard]] bool has_ended(std::size_t number) const { return fibers_[number].ended; }

 private:
  struct fiber {
    fiber_pool* pool = nullptr;
    std::size_t number = 0;
    void* stack = nullptr;
    ucontext_t start{};
    stopped_at place{};
    bool started = false;
    bool ended = true;
  };

  static void enter();
  void add();
  void switch_to(fiber& next);

  std::deque<fiber> fibers_;  // elements never move
  stopped_at home_{};
  std::size_t current_ = 0;
  body run_ = nullptr;
  void* argument_ = nullptr;
};

}  // namespace fake_cuda::detail
