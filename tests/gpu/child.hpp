// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "support/catch.hpp"

namespace gpu {

/// To be said first in a hidden test that takes the process's context with it, or needs a process
/// without one: a selection of tests may bring hidden ones in by accident (Catch2 2 does where it
/// has exclusions alone), and then it fails before it does any harm.
inline void require_a_child() {
  if (::getenv("PENSTOCK_GPU_TEST_CHILD") == nullptr) FAIL("only for a process of its own");
}

/// Runs one of this program's hidden tests in a process of its own, and requires that it passes.
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
