// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Flushes denormal floats to zero on the calling thread, as GPUs do by default. Denormal operands
/// count as zero too. The destructor restores the previous mode, so it must run on the same thread.
/// Has no effect on a processor without such a mode.
///
/// Workers and loops without workers both read samples in this mode, so a batch does not depend on
/// the number of workers. The CPU device computes in this mode, because the moments of Adam decay
/// into denormals, which more than doubles the time of a step.
///
/// The mode applies to functions that are called during the lifetime and not inlined, and to
/// results that are stored in memory. Compilers may move other arithmetic out of the lifetime: most
/// multiply after the mode is restored in
///
///     float scoped(float a, float b) { const scoped_flush_to_zero mode; return a * b; }
///
/// Arithmetic on constants that the compiler performs is never flushed.
class scoped_flush_to_zero {
 public:
  scoped_flush_to_zero() noexcept : saved_(mode()) { set_mode(saved_ | flags); }
  scoped_flush_to_zero(const scoped_flush_to_zero&) = delete;
  scoped_flush_to_zero& operator=(const scoped_flush_to_zero&) = delete;
  ~scoped_flush_to_zero() { set_mode(saved_); }

  /// Flushes denormals on the calling thread permanently, for threads that the program owns.
  static void enable_permanently() noexcept { set_mode(mode() | flags); }

 private:
#if defined(__SSE2__)
  using mode_type = unsigned;
  static constexpr mode_type flags = 0x8000U | 0x0040U;  // FTZ | DAZ of MXCSR
  // No intrinsics: with their header, a source that includes penstock compiles longer.
  static mode_type mode() noexcept {
    mode_type value = 0;
    asm volatile("stmxcsr %0" : "=m"(value));
    return value;
  }
  static void set_mode(mode_type value) noexcept {
    // The barrier keeps the arithmetic behind earlier and later stores on its side of the change.
    asm volatile("ldmxcsr %0" ::"m"(value) : "memory");
  }
#elif defined(__aarch64__)
  using mode_type = std::uint64_t;
  static constexpr mode_type flags = mode_type{1} << 24;  // FZ: results and operands
  static mode_type mode() noexcept {
    mode_type value = 0;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void set_mode(mode_type value) noexcept {
    asm volatile("msr fpcr, %0" ::"r"(value) : "memory");  // a barrier, as on x86
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
