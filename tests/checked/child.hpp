// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <string>

namespace checked_tests {

/// The exit status and the stderr output of a process.
struct child_end {
  int status = -1;
  std::string said;
};

/// Runs `what` in a child process, which then exits with 0. Returns the exit status and the stderr
/// output of the child.
template <class F>
child_end end_of_child(F what) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const ::pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    what();
    std::_Exit(0);
  }
  ::close(ends[1]);
  child_end end;
  char part[4096];
  for (::ssize_t got = 0; (got = ::read(ends[0], part, sizeof part)) > 0;) {
    end.said.append(part, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  ::waitpid(child, &end.status, 0);
  return end;
}

}  // namespace checked_tests
