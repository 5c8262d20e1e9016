// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <deque>
#include <memory>

// Switching with swapcontext makes a system call for the signal mask, while _longjmp takes only
// nanoseconds. AddressSanitizer must be notified of the new stack and supports only swapcontext.
// ThreadSanitizer builds exclude the code that runs kernels.
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

/// The saved state of a suspended fiber or its caller.
struct stopped_at {
#if FAKE_CUDA_FIBERS_BY_CONTEXT
  ucontext_t context;
  void* fake_stack = nullptr;  // the fake stack of AddressSanitizer
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

  /// Makes fibers 0 to `count` - 1 run `run(argument, i)` from their next `resume`. All fibers must
  /// have finished their previous functions.
  void assign(std::size_t count, body run, void* argument);
  /// Continues a fiber until it yields or ends. Must not be called from a fiber.
  void resume(std::size_t number);
  /// Returns control to the caller of `resume`. Must be called from the running fiber.
  void yield();
  /// Returns the index of the running fiber.
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
