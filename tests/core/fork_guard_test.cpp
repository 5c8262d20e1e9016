// SPDX-License-Identifier: BSL-1.0
#include <penstock/core/support/fork_guard.hpp>

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <string_view>

#include "support/catch.hpp"
#include "support/in_child.hpp"

using penstock::detail::fork_guard;
using penstock::detail::process_mark;

namespace {

/// Runs `process` in a forked child. Returns a sum of flags: 1 if the guard detects the child, and
/// 2 if the error names the object and the parent process.
int said_in_child(const fork_guard& process) {
  const ::pid_t parent = ::getpid();
  const ::pid_t child = ::fork();
  if (child == 0) {
    int said = process.is_in_child() ? 1 : 0;
    try {
      process.require("thing", "make one here");
    } catch (const std::logic_error& rejected) {
      const std::string named =
          "thing: its threads are in process " + std::to_string(parent) + ", the parent";
      if (std::string_view{rejected.what()}.find(named) != std::string_view::npos) said |= 2;
    }
    ::_exit(said);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("a process mark has the process ID, even in a child of a child", "[core]") {
  const process_mark mark{GENERATE(true, false)};
  CHECK(mark.current() == ::getpid());
  CHECK(mark.current() == ::getpid());
  const auto is_own = [&] { return mark.current() == ::getpid(); };
  CHECK(test::in_child([&] {
          if (!is_own() || !is_own()) return 1;
          const ::pid_t child = ::fork();
          if (child == 0) ::_exit(is_own() && is_own() ? 7 : 1);
          return test::end_of(child);
        }) == 7);
  CHECK(is_own());
}

TEST_CASE("a fork guard detects a child process if threads exist", "[core]") {
  const fork_guard with_threads{true};
  CHECK_FALSE(with_threads.is_in_child());
  CHECK_NOTHROW(with_threads.require("thing", "make one here"));
  CHECK(said_in_child(with_threads) == 3);
  CHECK(said_in_child(fork_guard{false}) == 0);
}
