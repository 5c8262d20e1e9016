// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "support/catch.hpp"

namespace gpu {

/// Runs one of this program's hidden tests in a process of its own, and requires that it passes.
inline void require_child_passes(std::string test) {
  std::string program = "/proc/self/exe";
  char* const arguments[] = {program.data(), test.data(), nullptr};
  pid_t child = 0;
  REQUIRE(::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ) == 0);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace gpu
