// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/support/system_file.hpp>
#include <penstock_ext/signals/support/signals_blocked.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Thrown if a child process ended before it had sent all values, or sent impossible values.
struct child_ended : std::runtime_error {
  explicit child_ended(const std::string& how, int by = 0)
      : std::runtime_error(how), by_signal(by) {}

  int by_signal;  ///< the signal that ended the child, or 0
};

/// Sends values from a child process to its parent. A value is trivially copyable, or a vector or
/// string of such elements.
class child_output {
 public:
  explicit child_output(int pipe) noexcept : pipe_(pipe) {}

  template <class Value>
  void operator()(const Value& value) const noexcept {
    if constexpr (std::is_trivially_copyable_v<Value>) {
      write(&value, sizeof(value));
    } else {
      (*this)(value.size());
      write(value.data(), value.size() * sizeof(value[0]));
    }
  }

 private:
  // Exits if the parent no longer reads.
  void write(const void* from, std::size_t bytes) const noexcept {
    if (write_all(pipe_, {static_cast<const char*>(from), bytes}) != 0) ::_exit(1);
  }

  int pipe_;
};

/// A child process made by `fork()` that sends values to this process. If the child crashes or
/// exceeds its limit of processor time, this process continues. The destructor ends the child.
///
/// The child has one thread and a copy of all memory. A lock that another thread holds at the call
/// of `fork()` stays locked in the child. The child runs no exit handlers, and writes no core dump.
/// The child ends when this process ends.
class child_process {
 public:
  /// Starts a child, which calls `work(output)` with a `child_output`. `work` must not throw.
  /// Throws `std::system_error` if the pipe or the child cannot be created.
  template <class Work>
  explicit child_process(const Work& work, ::pid_t (*fork)() = &::fork) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail("pipe2");
    input_ = descriptor{ends[0]};
    const descriptor output{ends[1]};
    // The child must not run the program's signal handlers.
    const signals_blocked while_it_starts;
    const ::pid_t parent = ::getpid();
    child_ = fork();
    if (child_ < 0) fail("fork");
    if (child_ == 0) {
      ::close(ends[0]);  // otherwise the child could not detect the end of the parent
      run(work, ends[1], parent);
    }
#ifdef SYS_pidfd_open
    watch_ = descriptor{static_cast<int>(::syscall(SYS_pidfd_open, child_, 0))};
#endif
  }
  child_process(child_process&&) = delete;
  ~child_process() {
    input_ = descriptor{-1};  // ends a child that is writing
    if (child_ == 0) return;
#ifdef SYS_pidfd_send_signal
    // A number of a process could already be that of another process.
    if (watch_.get() >= 0) ::syscall(SYS_pidfd_send_signal, watch_.get(), SIGKILL, nullptr, 0);
#endif
    wait();
  }

  /// Receives a value that the child sends. Throws `child_ended`, also for a vector or string of
  /// more than 2^28 elements.
  template <class Value>
  void operator()(Value& value) {
    if constexpr (std::is_trivially_copyable_v<Value>) {
      read(&value, sizeof(value));
    } else {
      std::size_t size = 0;
      (*this)(size);
      if (size > std::size_t{1} << 28) throw child_ended("sent a damaged result");
      value.resize(size);
      read(value.data(), size * sizeof(value[0]));
    }
  }

  /// Limits the processor time that the calling process may use starting now. The kernel ends a
  /// process that exceeds its limit. Never exceeds the hard limit of the process.
  static void limit_processor_time(std::uint64_t seconds) noexcept {
    ::timespec used{};
    ::rlimit limit{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    if (::getrlimit(RLIMIT_CPU, &limit) != 0) return;
    limit.rlim_cur = (std::min)(limit.rlim_max, static_cast<::rlim_t>(used.tv_sec) + 1 + seconds);
    ::setrlimit(RLIMIT_CPU, &limit);
  }

 private:
  [[noreturn]] static void fail(const char* call) {
    throw std::system_error(errno, std::generic_category(), call);
  }

  template <class Work>
  [[noreturn]] static void run(const Work& work, int pipe, ::pid_t parent) noexcept {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // the parent ended before the call of prctl()
    ::prctl(PR_SET_DUMPABLE, 0);            // no core dump
    std::set_terminate(&std::abort);        // the program's handler could run exit handlers
    ::sigset_t deadly;
    ::sigemptyset(&deadly);
    for (const int signal :
         {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGXCPU, SIGALRM}) {
      std::signal(signal, SIG_DFL);
      ::sigaddset(&deadly, signal);
    }
    ::pthread_sigmask(SIG_UNBLOCK, &deadly, nullptr);
    work(child_output{pipe});
    ::_exit(0);
  }

  void read(void* to, std::size_t bytes) {
    std::span out{static_cast<char*>(to), bytes};
    while (!out.empty()) {
      // Another child of this process may keep the pipe open. Therefore also detects the end of the
      // child. poll() checks the child first, so if the pipe is empty then, it stays empty.
      ::pollfd both[] = {{watch_.get(), POLLIN, 0}, {input_.get(), POLLIN, 0}};
      const int ready = ::poll(both, 2, -1);
      if (ready < 0 && errno == EINTR) continue;
      const bool is_over = ready > 0 && both[1].revents == 0;
      const ssize_t count = is_over ? 0 : ::read(input_.get(), out.data(), out.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) throw end_of(wait());
      out = out.subspan(static_cast<std::size_t>(count));
    }
  }

  // Waits for the end of the child and returns its status. If the program ignores SIGCHLD, or if
  // another thread has waited for all children, the status is lost.
  std::optional<int> wait() noexcept {
    if (child_ == 0) return std::nullopt;
    int status = 0;
    ::pid_t found = -1;
    do {
      found = ::waitpid(child_, &status, 0);
    } while (found < 0 && errno == EINTR);
    child_ = 0;
    return found < 0 ? std::nullopt : std::optional{status};
  }

  [[nodiscard]] static child_ended end_of(std::optional<int> status) {
    if (!status) return child_ended("ended early");
    if (!WIFSIGNALED(*status)) {
      return child_ended("ended early with status " + std::to_string(WEXITSTATUS(*status)));
    }
    const int number = WTERMSIG(*status);
    return child_ended(
        "ended by signal " + std::to_string(number) + " (" + ::strsignal(number) + ')', number);
  }

  descriptor input_{-1};
  descriptor watch_{-1};  // readable when the child has ended; negative without pidfd
  ::pid_t child_ = 0;     // 0 after `wait`
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
