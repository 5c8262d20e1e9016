// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <string>

#include "support/catch.hpp"

/// Runs `what` in a child process and returns the child's output on stderr. Returns an empty string
/// if the child does not abort.
template <class F>
std::string last_words(F what) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const ::pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);
    ::dup2(ends[1], STDERR_FILENO);
    what();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said;
  char part[1024];
  for (::ssize_t got = 0; (got = ::read(ends[0], part, sizeof part)) > 0;) {
    said.append(part, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  // Drops the message that qemu appends.
  said.resize((std::min)(said.size(), said.find("qemu: uncaught target signal")));
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? said : "";
}
