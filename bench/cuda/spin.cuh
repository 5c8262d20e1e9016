// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace bench {

/// Keeps the calling thread of a kernel busy for about `nanoseconds`. Returns immediately on the
/// fake CUDA runtime.
__device__ inline void spin_for([[maybe_unused]] std::uint64_t nanoseconds) {
#if !defined(PENSTOCK_BENCH_ON_FAKE)
  std::uint64_t begin = 0;
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
#endif
}

}  // namespace bench
