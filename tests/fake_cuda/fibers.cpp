// SPDX-License-Identifier: BSL-1.0
// The fortified version of _longjmp reports a jump to another stack as an error.
#undef _FORTIFY_SOURCE
#include "fibers.hpp"

#include <sys/mman.h>

#include <new>

#if FAKE_CUDA_FIBERS_BY_CONTEXT
#include <sanitizer/common_interface_defs.h>
#endif

namespace fake_cuda::detail {

namespace {

constexpr std::size_t page = 4096;  // a minimum, because the page below the stack must not be used
constexpr std::size_t stack_bytes = std::size_t{256} << 10;

// The fiber that is being entered for the first time. A global, because makecontext can pass only
// ints.
thread_local void* entered = nullptr;

void* take_stack() {
  void* memory = ::mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc{};
  ::mprotect(memory, page, PROT_NONE);
  return memory;
}

}  // namespace

fiber_pool::~fiber_pool() {
  for (const fiber& one : fibers_) ::munmap(one.stack, stack_bytes);
}

void fiber_pool::add() {
  fiber& made = fibers_.emplace_back();
  made.pool = this;
  made.number = fibers_.size() - 1;
  made.stack = take_stack();
  // Offsets the stacks, because the frames of all fibers would otherwise share a few cache lines.
  const std::size_t apart = made.number % 32 * 576;
  ::getcontext(&made.start);
  made.start.uc_stack.ss_sp = made.stack;
  made.start.uc_stack.ss_size = stack_bytes - apart;
  made.start.uc_link = nullptr;
  ::makecontext(&made.start, &fiber_pool::enter, 0);
}

void fiber_pool::assign(std::size_t count, body run, void* argument) {
  while (fibers_.size() < count) add();
  for (std::size_t i = 0; i < count; ++i) fibers_[i].ended = false;
  run_ = run;
  argument_ = argument;
}

void fiber_pool::resume(std::size_t number) {
  current_ = number;
  switch_to(fibers_[number]);
}

#if FAKE_CUDA_FIBERS_BY_CONTEXT

void fiber_pool::enter() {
  fiber& self = *static_cast<fiber*>(entered);
  fiber_pool& pool = *self.pool;
  __sanitizer_finish_switch_fiber(nullptr, &pool.home_.stack, &pool.home_.stack_bytes);
  for (;;) {
    pool.run_(pool.argument_, self.number);
    self.ended = true;
    pool.yield();
  }
}

void fiber_pool::switch_to(fiber& next) {
  __sanitizer_start_switch_fiber(&home_.fake_stack, next.stack, stack_bytes);
  if (next.started) {
    ::swapcontext(&home_.context, &next.place.context);
  } else {
    next.started = true;
    entered = &next;
    ::swapcontext(&home_.context, &next.start);
  }
  __sanitizer_finish_switch_fiber(home_.fake_stack, nullptr, nullptr);
}

void fiber_pool::yield() {
  stopped_at& place = fibers_[current_].place;
  __sanitizer_start_switch_fiber(&place.fake_stack, home_.stack, home_.stack_bytes);
  ::swapcontext(&place.context, &home_.context);
  __sanitizer_finish_switch_fiber(place.fake_stack, &home_.stack, &home_.stack_bytes);
}

#else

void fiber_pool::enter() {
  fiber& self = *static_cast<fiber*>(entered);
  for (;;) {
    self.pool->run_(self.pool->argument_, self.number);
    self.ended = true;
    self.pool->yield();
  }
}

void fiber_pool::switch_to(fiber& next) {
  if (_setjmp(home_.context) != 0) return;
  if (next.started) _longjmp(next.place.context, 1);
  next.started = true;
  entered = &next;
  ::setcontext(&next.start);
}

void fiber_pool::yield() {
  if (_setjmp(fibers_[current_].place.context) == 0) _longjmp(home_.context, 1);
}

#endif

}  // namespace fake_cuda::detail
