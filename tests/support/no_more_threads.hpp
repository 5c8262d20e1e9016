// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace test {

/// Limits the address space so that no further thread can allocate a stack. Call this function in a
/// short-lived child process. Returns false if the limit has no effect, as under qemu, or would
/// break a sanitizer, which needs address space itself.
inline bool allow_no_more_threads() {
  // Requests larger stacks than those of ended threads, which the C library caches for reuse.
  ::pthread_attr_t large{};
  std::ifstream pages{"/proc/self/statm"};
  ::rlim_t used = 0;
  pages >> used;
  used = (used + 4096) * static_cast<::rlim_t>(::getpagesize());
  const ::rlimit no_more{used, used};
  return pages && ::pthread_attr_init(&large) == 0 &&
         ::pthread_attr_setstacksize(&large, std::size_t{1} << 30U) == 0 &&
         ::pthread_setattr_default_np(&large) == 0 && ::setrlimit(RLIMIT_AS, &no_more) == 0;
}

}  // namespace test
