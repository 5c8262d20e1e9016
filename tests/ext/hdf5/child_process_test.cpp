// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/indexed/hdf5/detail/child_process.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/in_child.hpp"
#include "support/limits.hpp"

namespace ps = penstock;
using ps::detail::child_ended;
using ps::detail::child_output;
using ps::detail::child_process;
using test::error_of;

namespace {

/// Returns the error of receiving a number from a child that calls `work`.
template <class Work>
std::string end_of_child(const Work& work) {
  return error_of<child_ended>([&] {
           child_process child{work};
           int number = 0;
           child(number);
         })
      .what();
}

/// Uses processor time until a signal ends the process.
[[noreturn]] void compute_forever() {
  volatile unsigned steps = 0;
  while (true) steps = steps + 1;
}

/// Returns true if this process has no children, not even ended children.
bool has_no_children() { return ::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD; }

/// Returns the number of descriptors that a program started by exec() would inherit.
int inheritable_descriptors() {
  int count = 0;
  for (int file = 0; file < 256; ++file) {
    const int flags = ::fcntl(file, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) ++count;
  }
  return count;
}

/// Replaces the handler of a signal for the current scope.
class handler_of {
 public:
  handler_of(int signal, void (*handler)(int)) : signal_(signal) {
    struct ::sigaction action {};
    action.sa_handler = handler;
    REQUIRE(::sigaction(signal, &action, &former_) == 0);
  }
  handler_of(handler_of&&) = delete;
  ~handler_of() { ::sigaction(signal_, &former_, nullptr); }

 private:
  int signal_;
  struct ::sigaction former_ {};
};

}  // namespace

TEST_CASE("a child process sends numbers, texts and vectors of any size", "[child_process]") {
  std::vector<std::uint64_t> many(1 << 20);  // more than a pipe holds
  std::iota(many.begin(), many.end(), 0U);
  int number = 0;
  std::string text = "to be replaced";
  std::vector<std::uint64_t> none{1};
  std::vector<std::uint64_t> received;
  {
    child_process child{[&](const child_output& output) {
      output(42);
      output(std::string{"text"});
      output(std::vector<std::uint64_t>{});
      output(many);
    }};
    child(number);
    child(text);
    child(none);
    child(received);
  }
  CHECK(number == 42);
  CHECK(text == "text");
  CHECK(none.empty());
  CHECK(received == many);
  CHECK(has_no_children());
}

TEST_CASE("a signal that ends a child process is named, and no handler runs", "[child_process]") {
  const auto exit_0 = [](int) { ::_exit(0); };
  for (const auto& [signal, end] : {std::pair{SIGSEGV, "ended by signal 11 (Segmentation fault)"},
                                    {SIGBUS, "ended by signal 7 (Bus error)"},
                                    {SIGFPE, "ended by signal 8 (Floating point exception)"},
                                    {SIGILL, "ended by signal 4 (Illegal instruction)"},
                                    {SIGTRAP, "ended by signal 5 (Trace/breakpoint trap)"},
                                    {SIGABRT, "ended by signal 6 (Aborted)"},
                                    {SIGSYS, "ended by signal 31 (Bad system call)"},
                                    {SIGXCPU, "ended by signal 24 (CPU time limit exceeded)"},
                                    {SIGALRM, "ended by signal 14 (Alarm clock)"}}) {
    const handler_of own{signal, exit_0};
    ::sigset_t mask;
    ::sigset_t former;
    ::sigemptyset(&mask);
    ::sigaddset(&mask, signal);
    ::pthread_sigmask(SIG_BLOCK, &mask, &former);
    const int number = signal;
    CHECK(end_of_child([number](const child_output&) { ::raise(number); }) == end);
    ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
  }
  CHECK(end_of_child([](const child_output&) { ::raise(SIGKILL); }) ==
        "ended by signal 9 (Killed)");
  // A signal that the program handles stays pending in the child.
  const handler_of own{SIGTERM, exit_0};
  int number = 0;
  child_process child{[](const child_output& output) {
    ::raise(SIGTERM);
    output(1 + ::prctl(PR_GET_DUMPABLE));
  }};
  child(number);
  CHECK(number == 1);  // no core dump
}

TEST_CASE("a child process that ends early, also in the middle of a value, is an error",
          "[child_process]") {
  CHECK(end_of_child([](const child_output&) {}) == "ended early with status 0");
  CHECK(end_of_child([](const child_output&) { ::_exit(7); }) == "ended early with status 7");
  CHECK(end_of_child([](const child_output& output) { output('x'); }) ==
        "ended early with status 0");
  CHECK(error_of<child_ended>([] {
          child_process child{[](const child_output& output) { output(std::size_t{100}); }};
          std::string text;
          child(text);
        }).what() == std::string{"ended early with status 0"});
}

TEST_CASE("an endless loop in a child process ends at the limit of processor time",
          "[child_process]") {
  CHECK(end_of_child([](const child_output&) {
          child_process::limit_processor_time(0);
          compute_forever();
        }) == "ended by signal 24 (CPU time limit exceeded)");
}

TEST_CASE("the limit of processor time never exceeds the hard limit", "[child_process]") {
  for (const auto& [hard, limit] : {std::pair<::rlim_t, ::rlim_t>{5000, 1001}, {500, 500}}) {
    const ::rlim_t end = hard;
    ::rlim_t found = 0;
    child_process child{[end](const child_output& output) {
      const ::rlimit low{end, end};
      ::setrlimit(RLIMIT_CPU, &low);
      child_process::limit_processor_time(1000);
      ::rlimit now{};
      ::getrlimit(RLIMIT_CPU, &now);
      output(now.rlim_cur);
    }};
    child(found);
    CHECK(found == limit);
  }
}

TEST_CASE("a program that ignores SIGCHLD, or waits for all children, receives all values",
          "[child_process]") {
  for (void (*const handler)(int) : {SIG_IGN, +[](int) {
                                       const int before = errno;
                                       while (::waitpid(-1, nullptr, WNOHANG) > 0) {
                                       }
                                       errno = before;
                                     }}) {
    const handler_of own{SIGCHLD, handler};
    std::vector<int> received;
    {
      child_process child{[](const child_output& output) { output(std::vector<int>(100000, 7)); }};
      child(received);
    }
    CHECK(received == std::vector<int>(100000, 7));
    const std::string end = end_of_child([](const child_output&) { ::raise(SIGSEGV); });
    CHECK(end.starts_with("ended "));  // if the handler runs after `wait`, the status is known
    CHECK(has_no_children());
  }
}

TEST_CASE("signals that interrupt the parent of a child process lose nothing", "[child_process]") {
  const handler_of own{SIGUSR1, [](int) {}};  // without SA_RESTART
  const ::pid_t parent = ::getpid();
  std::vector<int> received(1000);
  {
    child_process child{[parent](const child_output& output) {
      for (int i = 0; i < 1000; ++i) {
        ::kill(parent, SIGUSR1);
        output(i);
      }
      // The parent waits for the end of the child in the meantime.
      for (int i = 0; i < 20000; ++i) ::kill(parent, SIGUSR1);
    }};
    for (int& one : received) child(one);
  }
  for (int i = 0; i < 1000; ++i) CHECK(received[static_cast<std::size_t>(i)] == i);
  CHECK(has_no_children());
}

TEST_CASE("a child process runs no exit handlers", "[child_process]") {
  CHECK(test::in_child([] {
          static bool is_work = false;
          std::atexit([] { ::_exit(is_work ? 9 : 1); });
          return end_of_child([](const child_output&) { is_work = true; }) ==
                         "ended early with status 0"
                     ? 0
                     : 1;
        }) == 0);
}

TEST_CASE("a child process leaves no descriptor and no zombie", "[child_process]") {
  const std::size_t before = test::open_descriptors();
  const std::vector<char> many(1 << 20);
  for (int i = 0; i < 3; ++i) {
    // The parent does not read everything, so the child cannot write everything.
    const child_process child{[&](const child_output& output) { output(many); }};
    (void)end_of_child([](const child_output&) {});
  }
  CHECK(has_no_children());
  CHECK(test::open_descriptors() == before);
}

TEST_CASE("programs that other threads start do not inherit the pipe of a child process",
          "[child_process]") {
  static int at_fork = -1;
  const int before = inheritable_descriptors();
  const child_process child{[](const child_output&) {},
                            []() -> ::pid_t {
                              at_fork = inheritable_descriptors();
                              return ::fork();
                            }};
  CHECK(at_fork == before);
  CHECK(inheritable_descriptors() == before);
}

TEST_CASE("a fork that fails is a system error and leaves no descriptor", "[child_process]") {
  const std::size_t before = test::open_descriptors();
  const auto start = [](::pid_t (*fork)()) {
    return error_of<std::system_error>([&] { child_process{[](const child_output&) {}, fork}; });
  };
  CHECK(start([]() -> ::pid_t {
          errno = EAGAIN;
          return -1;
        }).code() == std::errc::resource_unavailable_try_again);
  CHECK(test::open_descriptors() == before);
  const test::descriptor_limit none{0};
  CHECK(start(&::fork).code() == std::errc::too_many_files_open);
}

TEST_CASE("another child that inherits the pipe does not hide the end of a child process",
          "[child_process]") {
  static ::pid_t other = -1;
  CHECK(error_of<child_ended>([] {
          child_process child{[](const child_output&) {},
                              []() -> ::pid_t {
                                other = ::fork();
                                if (other == 0) {
                                  ::alarm(60);
                                  ::signal(SIGALRM, SIG_DFL);
                                  ::sigset_t none;
                                  ::sigemptyset(&none);
                                  ::sigsuspend(&none);
                                }
                                return ::fork();
                              }};
          int number = 0;
          child(number);
        }).what() == std::string{"ended early with status 0"});
  CHECK(::waitpid(other, nullptr, WNOHANG) == 0);  // the other child runs
  ::kill(other, SIGKILL);
  CHECK(test::end_of(other) == -SIGKILL);
}

TEST_CASE("a child process ends if its parent is gone", "[child_process]") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  CHECK(test::in_child([&] {
          const auto* const child = new child_process{[](const child_output& output) {
            while (true) output(1);
          }};
          return child == nullptr ? 1 : 0;
        }) == 0);
  ::close(ends[1]);
  // The pipe ends when the last process that inherited it ends.
  ::pollfd end{ends[0], POLLIN, 0};
  CHECK(::poll(&end, 1, 100000) == 1);
  ::close(ends[0]);
}

TEST_CASE("a child process that computes ends if its parent is killed", "[child_process]") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const ::pid_t parent = test::fork_to([&] {
    child_process child{[](const child_output& output) {
      child_process::limit_processor_time(500);
      output(1);
      compute_forever();
    }};
    int number = 0;
    child(number);
    ::raise(SIGKILL);
    return 0;
  });
  CHECK(test::end_of(parent) == -SIGKILL);
  ::close(ends[1]);
  // The pipe ends when the last process that inherited it ends.
  ::pollfd end{ends[0], POLLIN, 0};
  CHECK(::poll(&end, 1, 100000) == 1);
  ::close(ends[0]);
}

TEST_CASE("the destructor ends a child process that computes", "[child_process]") {
  {
    int number = 0;
    child_process child{[](const child_output& output) {
      child_process::limit_processor_time(500);
      output(1);
      compute_forever();
    }};
    child(number);
    CHECK(number == 1);
  }
  CHECK(has_no_children());
}

TEST_CASE("after the end of a child process, the next value is an error at once",
          "[child_process]") {
  child_process child{[](const child_output&) {}};
  int number = 0;
  CHECK(error_of<child_ended>([&] { child(number); }).what() ==
        std::string{"ended early with status 0"});
  const ::pid_t other = ::fork();
  if (other == 0) ::_exit(7);
  CHECK(error_of<child_ended>([&] { child(number); }).what() == std::string{"ended early"});
  CHECK(test::end_of(other) == 7);
}

TEST_CASE("an impossible size from a child process is an error", "[child_process]") {
  CHECK(error_of<child_ended>([] {
          child_process child{[](const child_output& output) { output(~std::size_t{0}); }};
          std::string text;
          child(text);
        }).what() == std::string{"sent a damaged result"});
}

TEST_CASE("an exception in a child process calls no handler of the program", "[child_process]") {
  CHECK(test::in_child([] {
          std::set_terminate([] { ::_exit(3); });
          return end_of_child([](const child_output&) { throw 1; }) == "ended by signal 6 (Aborted)"
                     ? 0
                     : 1;
        }) == 0);
}
