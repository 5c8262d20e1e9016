// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <deque>
#include <memory>

// A switch by swapcontext asks the kernel for the signal mask; one by _longjmp takes nanoseconds,
// but AddressSanitizer has to be told of the new stack, and knows only of the former.
// ThreadSanitizer is told nothing: what runs kernels is left out of its build.
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

/// Where a thread of control has stopped.
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

/// Functions that take turns on one thread, each on a stack of its own.
class fiber_pool {
 public:
  using body = void (*)(void* argument, std::size_t number);

  fiber_pool() = default;
  fiber_pool(fiber_pool&&) = delete;
  ~fiber_pool();

  /// Fibers 0 to `count` - 1 are to run `run(argument, i)`, each from its next `resume` on. All
  /// have ended what they ran before.
  void assign(std::size_t count, body run, void* argument);
  /// Goes on with a fiber until it yields or ends. From outside of all fibers.
  void resume(std::size_t number);
  /// Back to the caller of `resume`. From inside of the fiber that runs.
  void yield();
  /// The fiber that runs.
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

  std::deque<fiber> fibers_;  // none ever moves
  stopped_at home_{};
  std::size_t current_ = 0;
  body run_ = nullptr;
  void* argument_ = nullptr;
};

}  // namespace fake_cuda::detail
