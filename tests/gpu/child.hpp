// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "support/catch.hpp"

namespace gpu {

/// Fails the test unless it runs in a child process. A hidden test calls this function first if it
/// destroys the context of the process, or needs a process without a context. Hidden tests may run
/// by accident, because Catch2 2 includes them in a selection that has only exclusions. The test
/// then fails before it does harm.
inline void require_a_child() {
  if (::getenv("PENSTOCK_GPU_TEST_CHILD") == nullptr) FAIL("only for a process of its own");
}

/// Runs a hidden test of this program in a child process, and requires that it passes.
inline void require_child_passes(std::string test) {
  REQUIRE(::setenv("PENSTOCK_GPU_TEST_CHILD", "1", 1) == 0);
  std::string program = "/proc/self/exe";
  char* const arguments[] = {program.data(), test.data(), nullptr};
  pid_t child = 0;
  REQUIRE(::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ) == 0);
  REQUIRE(::unsetenv("PENSTOCK_GPU_TEST_CHILD") == 0);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace gpu
