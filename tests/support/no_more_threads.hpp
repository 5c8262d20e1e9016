// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace test {

/// Leaves no address space for the stack of another thread: for a child process that ends soon.
/// False where that can't be done, as under qemu. A sanitizer needs address space of its own.
inline bool allow_no_more_threads() {
  // Stacks larger than those of threads that are gone, which the C library keeps for the next.
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
