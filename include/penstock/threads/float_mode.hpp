// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// While it lives, denormal floats are read and written as zero on the thread that made it, as GPUs
/// do by default; its destruction restores the mode. Not to be moved to another thread.
///
/// Samples are read under it, on workers and inline alike, so that a batch does not depend on the
/// number of workers; the CPU device computes under it: Adam's moments decay into denormals, and a
/// step then slows down by more than half. Does nothing where the processor has no such mode.
///
/// Holds for what is computed in functions that are called meanwhile and not inlined, and for what
/// is written to memory. Compilers do not order other arithmetic against the mode: of
///
///     float scoped(float a, float b) { const flushed_denormals here; return a * b; }
///
/// most make a multiplication after the mode is restored. A constant may be computed, or converted,
/// by the compiler, which flushes nothing.
class flushed_denormals {
 public:
  flushed_denormals() noexcept : saved_(mode()) { set_mode(saved_ | flags); }
  flushed_denormals(const flushed_denormals&) = delete;
  flushed_denormals& operator=(const flushed_denormals&) = delete;
  ~flushed_denormals() { set_mode(saved_); }

  /// Flushes denormals for the rest of the calling thread: for a thread of your own.
  static void keep_on() noexcept { set_mode(mode() | flags); }

 private:
#if defined(__SSE2__)
  using mode_type = unsigned;
  static constexpr mode_type flags = 0x8000U | 0x0040U;  // flush to zero, denormals are zero
  static mode_type mode() noexcept { return _mm_getcsr(); }
  static void set_mode(mode_type value) noexcept {
    asm volatile("" ::: "memory");  // what is written to memory before is computed before
    _mm_setcsr(value);
    asm volatile("" ::: "memory");
  }
#elif defined(__aarch64__)
  using mode_type = std::uint64_t;
  static constexpr mode_type flags = mode_type{1} << 24;  // FZ: both
  static mode_type mode() noexcept {
    mode_type value = 0;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void set_mode(mode_type value) noexcept {
    asm volatile("msr fpcr, %0" ::"r"(value) : "memory");  // as above
  }
#else
  using mode_type = unsigned;
  static constexpr mode_type flags = 0;
  static mode_type mode() noexcept { return 0; }
  static void set_mode(mode_type) noexcept {}
#endif

  mode_type saved_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
