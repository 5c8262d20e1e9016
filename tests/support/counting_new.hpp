// SPDX-License-Identifier: BSL-1.0
#pragma once

// Replaces the global operator new of a test program with a version that counts allocations and
// fails on request. Several source files of a program may include this header, so the definitions
// are weak. The definitions of AddressSanitizer are weak too and would take precedence, so with
// it the definitions here are not weak, and the linker accepts several of them. Files that only
// read the counters include allocations.hpp.

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "support/allocations.hpp"

namespace test {

inline void* counted(std::size_t size, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  for (std::size_t left = failing_allocation.load(std::memory_order_relaxed); left != 0;) {
    if (!failing_allocation.compare_exchange_weak(left, left - 1, std::memory_order_relaxed))
      continue;
    if (left == 1) throw std::bad_alloc();
    break;
  }
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  const std::size_t bytes = ::malloc_usable_size(memory);
  const std::size_t live = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::size_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (peak < live && !peak_bytes.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
  return memory;
}

inline void* or_null(std::size_t size, std::size_t alignment) noexcept {
  try {
    return counted(size, alignment);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

inline void freed(void* memory) noexcept {
  if (memory == nullptr) return;
  live_bytes.fetch_sub(::malloc_usable_size(memory), std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace test

// Defines every form of operator new, because the forms of a sanitizer would bypass the counters.
// The functions are not inlined: GCC 12 would warn about a mismatch of operator new and free().
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COUNTED_LINKAGE gnu::noinline
#endif
#endif
#if !defined(COUNTED_LINKAGE)
#define COUNTED_LINKAGE gnu::noinline, gnu::weak
#endif
#define COUNTED [[COUNTED_LINKAGE]] void*
#define FREED [[COUNTED_LINKAGE]] void
constexpr std::size_t usual = alignof(std::max_align_t);
using std::align_val_t, std::nothrow_t, std::size_t;

COUNTED operator new(size_t n) { return test::counted(n, usual); }
COUNTED operator new[](size_t n) { return test::counted(n, usual); }
COUNTED operator new(size_t n, align_val_t a) { return test::counted(n, size_t(a)); }
COUNTED operator new[](size_t n, align_val_t a) { return test::counted(n, size_t(a)); }
COUNTED operator new(size_t n, const nothrow_t&) noexcept { return test::or_null(n, usual); }
COUNTED operator new[](size_t n, const nothrow_t&) noexcept { return test::or_null(n, usual); }
COUNTED operator new(size_t n, align_val_t a, const nothrow_t&) noexcept {
  return test::or_null(n, size_t(a));
}
COUNTED operator new[](size_t n, align_val_t a, const nothrow_t&) noexcept {
  return test::or_null(n, size_t(a));
}
FREED operator delete(void* p) noexcept { test::freed(p); }
FREED operator delete[](void* p) noexcept { test::freed(p); }
FREED operator delete(void* p, size_t) noexcept { test::freed(p); }
FREED operator delete[](void* p, size_t) noexcept { test::freed(p); }
FREED operator delete(void* p, align_val_t) noexcept { test::freed(p); }
FREED operator delete[](void* p, align_val_t) noexcept { test::freed(p); }
FREED operator delete(void* p, size_t, align_val_t) noexcept { test::freed(p); }
FREED operator delete[](void* p, size_t, align_val_t) noexcept { test::freed(p); }
FREED operator delete(void* p, const nothrow_t&) noexcept { test::freed(p); }
FREED operator delete[](void* p, const nothrow_t&) noexcept { test::freed(p); }
FREED operator delete(void* p, align_val_t, const nothrow_t&) noexcept { test::freed(p); }
FREED operator delete[](void* p, align_val_t, const nothrow_t&) noexcept { test::freed(p); }

#undef COUNTED
#undef FREED
#undef COUNTED_LINKAGE
