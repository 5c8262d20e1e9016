// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/catch.hpp"

namespace test {

/// A child made by fork() that ends with what `work` returns; what hangs there is ended by a
/// signal.
template <class F>
::pid_t fork_to(const F& work) {
  const ::pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child != 0) return child;
  ::alarm(100);
  int status = 99;
  try {
    status = work();
  } catch (...) {
    // The test goes on in the parent alone.
  }
  ::_exit(status);
}

/// The exit status of that child once it has ended, or minus the signal that has ended it.
inline int end_of(::pid_t child) {
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// What `work` returns in a child made by fork().
template <class F>
int in_child(const F& work) {
  return end_of(fork_to(work));
}

}  // namespace test
