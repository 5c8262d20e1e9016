// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/catch.hpp"

namespace test {

/// Forks a child process that exits with the result of `work`. A signal kills the child if it
/// hangs.
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
    // Only the parent process continues the test.
  }
  ::_exit(status);
}

/// Waits for the child process. Returns its exit status, or the negated signal number if a signal
/// killed it.
inline int end_of(::pid_t child) {
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// Runs `work` in a child process and returns its result.
template <class F>
int in_child(const F& work) {
  return end_of(fork_to(work));
}

}  // namespace test
