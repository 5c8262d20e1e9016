// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Flushes denormal floats to zero on the calling thread, as GPUs do by default, and also treats
/// denormal operands as zero. The destructor restores the previous mode, and must run on the same
/// thread. Has no effect on a CPU without such a mode.
///
/// Workers and the consumer read samples in this mode, so that batches do not depend on the number
/// of workers. The CPU device also computes in this mode, because Adam's moments decay into
/// denormals, which would more than double the step time.
///
/// The mode applies to non-inlined functions called during the object's lifetime, and to results
/// that are stored in memory. Compilers may move other arithmetic across the constructor or
/// destructor. In this example, most compilers multiply after restoring the mode:
///
///     float scoped(float a, float b) { const scoped_flush_to_zero mode; return a * b; }
///
/// Constant folding by the compiler never flushes denormals.
class scoped_flush_to_zero {
 public:
  scoped_flush_to_zero() noexcept : saved_(mode()) { set_mode(saved_ | flags); }
  scoped_flush_to_zero(const scoped_flush_to_zero&) = delete;
  scoped_flush_to_zero& operator=(const scoped_flush_to_zero&) = delete;
  ~scoped_flush_to_zero() { set_mode(saved_); }

  /// Flushes denormals on the calling thread permanently.
  static void enable_permanently() noexcept { set_mode(mode() | flags); }

 private:
#if defined(__SSE2__)
  using mode_type = unsigned;
  static constexpr mode_type flags = 0x8000U | 0x0040U;  // FTZ | DAZ of MXCSR
  // Does not use intrinsics, because their header would add to the compile time of each source
  // file.
  static mode_type mode() noexcept {
    mode_type value = 0;
    asm volatile("stmxcsr %0" : "=m"(value));
    return value;
  }
  static void set_mode(mode_type value) noexcept {
    // The memory clobber keeps arithmetic with results in memory on its side of the change.
    asm volatile("ldmxcsr %0" ::"m"(value) : "memory");
  }
#elif defined(__aarch64__)
  using mode_type = std::uint64_t;
  static constexpr mode_type flags = mode_type{1} << 24;  // FZ, for results and operands
  static mode_type mode() noexcept {
    mode_type value = 0;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void set_mode(mode_type value) noexcept {
    asm volatile("msr fpcr, %0" ::"r"(value) : "memory");  // with a memory clobber, as on x86
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
