// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <time.h>

namespace bench {

/// Returns the processor time of the calling thread (CLOCK_THREAD_CPUTIME_ID) or of the process
/// (CLOCK_PROCESS_CPUTIME_ID). Other programs on the machine do not add to it.
inline double cpu_seconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace bench
