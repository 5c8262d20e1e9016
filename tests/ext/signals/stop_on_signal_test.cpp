// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/signals/stop_on_signal.hpp>

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include <penstock/threads/support/waitable_counter.hpp>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/in_child.hpp"
#include "support/sanitized.hpp"
#include "support/threads.hpp"

namespace ps = penstock;

namespace {

std::atomic<int> former_calls{0};
void former_handler(int) { ++former_calls; }

/// Saves the handlers of SIGUSR1 and SIGUSR2 and restores them at the end of a test.
class saved_handlers {
 public:
  saved_handlers() {
    ::sigaction(SIGUSR1, nullptr, &first_);
    ::sigaction(SIGUSR2, nullptr, &second_);
    former_calls = 0;
  }
  saved_handlers(saved_handlers&&) = delete;
  ~saved_handlers() {
    ::sigaction(SIGUSR1, &first_, nullptr);
    ::sigaction(SIGUSR2, &second_, nullptr);
  }

 private:
  struct sigaction first_ {};
  struct sigaction second_ {};
};

auto handler_of(int number) {
  struct sigaction now {};
  ::sigaction(number, nullptr, &now);
  return now.sa_handler;
}

void set_handler(int number, void (*handler)(int)) {
  struct sigaction now {};
  now.sa_handler = handler;
  ::sigaction(number, &now, nullptr);
}

void wait_for_stop(const std::stop_token& token) {
  while (!token.stop_requested()) std::this_thread::yield();
}

/// Runs `work` in a child process. Returns the signal that killed the child, or 0 if the child
/// exited.
int signal_that_ends(const std::function<void()>& work) {
  const ::pid_t child = ::fork();
  if (child == 0) {
    ::alarm(100);
    work();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

TEST_CASE("a signal requests a stop, and callbacks run on a thread of the library",
          "[signals][promise:honest-15]") {
  const saved_handlers kept;
  const int number = GENERATE(SIGUSR1, SIGUSR2);
  ps::stop_on_signal signals{SIGUSR1, SIGUSR2};
  const auto token = signals.token();
  CHECK(token.stop_possible());
  CHECK_FALSE(token.stop_requested());
  CHECK_FALSE(signals.received().has_value());
  ps::detail::waitable_counter called;
  std::thread::id caller;
  const std::stop_callback on_stop{token, [&] {
                                     caller = std::this_thread::get_id();
                                     called.advance();
                                   }};
  CHECK(std::raise(number) == 0);
  called.wait([](std::uint32_t times) { return times == 1; });
  CHECK(caller != std::this_thread::get_id());
  CHECK(token.stop_requested());
  CHECK(signals.received() == number);
}

#if !defined(PENSTOCK_TEST_THREADS_SANITIZED)  // ThreadSanitizer delays signals in blocking calls
TEST_CASE("an existing thread gets the signal, and its interrupted call continues",
          "[signals][promise:honest-15]") {
  const saved_handlers kept;
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  std::atomic<long> number{0};
  ::ssize_t got = 0;
  std::thread reader{[&] {
    char byte = 0;
    number = this_thread_number();
    got = ::read(ends[0], &byte, 1);
  }};
  ps::stop_on_signal signals{SIGUSR1};
  while (number == 0) std::this_thread::yield();
  wait_until_asleep(number);
  CHECK(::pthread_kill(reader.native_handle(), SIGUSR1) == 0);
  wait_for_stop(signals.token());
  CHECK(::write(ends[1], "x", 1) == 1);
  reader.join();
  CHECK(got == 1);
  ::close(ends[0]);
  ::close(ends[1]);
}
#endif

TEST_CASE("the second signal has its default action, even if it is of another kind",
          "[signals][promise:honest-15]") {
  const int second = GENERATE(SIGUSR1, SIGUSR2);
  CHECK(signal_that_ends([&] {
          ps::stop_on_signal signals{SIGUSR1, SIGUSR2};
          std::raise(SIGUSR1);
          wait_for_stop(signals.token());
          std::raise(second);
        }) == second);
}

TEST_CASE("the second signal has its default action even if nobody has seen the first one",
          "[signals][promise:honest-15]") {
  CHECK(signal_that_ends([] {
          ps::stop_on_signal signals{SIGUSR1};
          std::raise(SIGUSR1);
          std::raise(SIGUSR1);
          wait_for_stop(signals.token());
        }) == SIGUSR1);
}

TEST_CASE("a single signal does not end the program", "[signals]") {
  CHECK(signal_that_ends([] {
          ps::stop_on_signal signals{SIGINT, SIGTERM};
          std::raise(SIGTERM);
          wait_for_stop(signals.token());
        }) == 0);
  // The process survives a signal that only the library's thread could receive, because that thread
  // blocks the signal.
  CHECK(signal_that_ends([] {
          sigset_t blocked;
          ::sigemptyset(&blocked);
          ::sigaddset(&blocked, SIGUSR1);
          ps::stop_on_signal signals{SIGUSR2};
          ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
          ::kill(::getpid(), SIGUSR1);
        }) == 0);
}

TEST_CASE("destroying stop_on_signal restores the former handlers",
          "[signals][promise:honest-15]") {
  const saved_handlers kept;
  set_handler(SIGUSR1, &former_handler);
  {
    ps::stop_on_signal signals{SIGUSR1, SIGUSR2};
    SECTION("unused") {}
    SECTION("after SIGUSR1") {
      std::raise(SIGUSR1);
      wait_for_stop(signals.token());
    }
    SECTION("after SIGUSR2") {
      std::raise(SIGUSR2);
      wait_for_stop(signals.token());
    }
    CHECK(former_calls == 0);
  }
  std::raise(SIGUSR1);
  CHECK(former_calls == 1);
  CHECK(handler_of(SIGUSR2) == SIG_DFL);
}

TEST_CASE("a handler that was installed later is kept", "[signals]") {
  const saved_handlers kept;
  {
    ps::stop_on_signal signals{SIGUSR1, SIGUSR2};
    set_handler(SIGUSR1, &former_handler);
    std::raise(SIGUSR1);
    CHECK(former_calls == 1);
    CHECK_FALSE(signals.token().stop_requested());
    std::raise(SIGUSR2);
    wait_for_stop(signals.token());
    std::raise(SIGUSR1);
    CHECK(former_calls == 2);
  }
  std::raise(SIGUSR1);
  CHECK(former_calls == 3);
}

TEST_CASE("a default action that was set later is kept", "[signals]") {
  const saved_handlers kept;
  set_handler(SIGUSR1, &former_handler);
  set_handler(SIGUSR2, &former_handler);
  {
    const ps::stop_on_signal signals{SIGUSR1, SIGUSR2};
    set_handler(SIGUSR1, SIG_DFL);
  }
  CHECK(handler_of(SIGUSR1) == SIG_DFL);
  CHECK(handler_of(SIGUSR2) == &former_handler);
}

TEST_CASE("a signal during the destruction of stop_on_signal does not remove a former handler",
          "[signals][promise:honest-15]") {
  // Uses many real-time signals, because both threads then take longer and overlap more often.
  constexpr int count = 16;
  const auto real_time = [](int i) { return SIGRTMIN + 4 + i; };
  struct sigaction mine {};
  mine.sa_handler = &former_handler;
  std::array<struct sigaction, count> kept{};
  for (int i = 0; i < count; ++i) {
    ::sigaction(real_time(i), &mine, &kept[static_cast<std::size_t>(i)]);
  }
  const int own = SIGRTMIN + 3;
  int lost = 0;
  int patience = 1;
  for (int round = 0; round < 300; ++round) {
    {
      const ps::stop_on_signal signals{
          own,           real_time(0),  real_time(1),  real_time(2),  real_time(3), real_time(4),
          real_time(5),  real_time(6),  real_time(7),  real_time(8),  real_time(9), real_time(10),
          real_time(11), real_time(12), real_time(13), real_time(14), real_time(15)};
      std::raise(own);
      // Here, the waiter restores the default actions. The destructor should start at the same
      // time. Therefore, the delay grows if the destructor was too early in the previous round, and
      // shrinks if it was too late.
      int turn = 0;
      while (turn < patience && handler_of(real_time(0)) != SIG_DFL) ++turn;
      patience += (turn == patience ? 1 : -1) * (patience / 16 + 1);
    }
    for (int i = 0; i < count; ++i) {
      lost += handler_of(real_time(i)) == &former_handler ? 0 : 1;
      ::sigaction(real_time(i), &mine, nullptr);
    }
  }
  CHECK(lost == 0);
  for (int i = 0; i < count; ++i) {
    ::sigaction(real_time(i), &kept[static_cast<std::size_t>(i)], nullptr);
  }
}

TEST_CASE("no handler is reset before all handlers are installed", "[signals][promise:honest-15]") {
  const saved_handlers kept;
  constexpr auto both = ps::detail::mask_of(SIGUSR1) | ps::detail::mask_of(SIGUSR2);
  // A thread that restores the handlers of these signals must hold this lock.
  std::unique_lock held{ps::detail::the_signals.actions};
  std::optional<ps::detail::signal_handlers> made;
  std::atomic<bool> is_made{false};
  std::atomic<long> number{0};
  std::thread maker{[&] {
    number = this_thread_number();
    made.emplace(both);
    is_made = true;
  }};
  while (number == 0) std::this_thread::yield();
  while (!is_made && !is_asleep(number)) std::this_thread::yield();
  CHECK(handler_of(SIGUSR1) == SIG_DFL);
  held.unlock();
  maker.join();
  CHECK(handler_of(SIGUSR1) == &ps::detail::record_signal);
  CHECK(handler_of(SIGUSR2) == &ps::detail::record_signal);
}

TEST_CASE("in a forked child a stop_on_signal is destroyed without its thread",
          "[signals][promise:honest-15]") {
  const saved_handlers kept;
  std::optional<ps::stop_on_signal> signals{std::in_place, SIGUSR1};
  CHECK(signal_that_ends([&] {
          // A thread of the parent, which does not exist in the child, may hold the lock during the
          // fork.
          ps::detail::the_signals.actions.lock();
          signals.reset();
          if (handler_of(SIGUSR1) != SIG_DFL) std::raise(SIGKILL);
        }) == 0);
  std::raise(SIGUSR1);
  wait_for_stop(signals->token());  // no signal has arrived in the parent
}

TEST_CASE("exit() in a callback of the token ends a process with a static stop_on_signal",
          "[signals][fault:hangs-8]") {
  static std::optional<ps::stop_on_signal> signals;
  CHECK(test::in_child([]() -> int {
          signals.emplace(SIGUSR1);
          const std::stop_callback leaves{signals->token(), [] { std::exit(7); }};
          std::raise(SIGUSR1);
          for (;;) ::pause();
        }) == 7);
}

TEST_CASE("a signal on its way to its handler does not remove a former handler",
          "[signals][promise:honest-15]") {
  const saved_handlers kept;
  set_handler(SIGUSR1, &former_handler);
  {
    const ps::stop_on_signal signals{SIGUSR1};
    // With SA_RESETHAND, the kernel resets the handler before the first statement of the handler
    // runs.
    struct sigaction left {};
    ::sigaction(SIGUSR1, nullptr, &left);
    left.sa_handler = SIG_DFL;
    ::sigaction(SIGUSR1, &left, nullptr);
  }
  CHECK(handler_of(SIGUSR1) == &former_handler);
}

TEST_CASE("one stop_on_signal at a time waits for a signal", "[signals]") {
  const saved_handlers kept;
  auto first = std::make_optional<ps::stop_on_signal>(SIGUSR1);
  const auto second = [] { ps::stop_on_signal both{SIGUSR2, SIGUSR1}; };
  const auto rejection = test::error_of<ps::signal_in_use>(second);
  CHECK(rejection.number() == SIGUSR1);
  CHECK_THAT(rejection.what(), Catch::Matchers::StartsWith("stop_on_signal: signal 10 is already"));
  CHECK(handler_of(SIGUSR2) == SIG_DFL);
  { ps::stop_on_signal other{SIGUSR2}; }  // the failed constructor has not reserved SIGUSR2
  std::raise(SIGUSR1);
  wait_for_stop(first->token());
  first.reset();
  ps::stop_on_signal again{SIGUSR1, SIGUSR1};
  CHECK_FALSE(again.token().stop_requested());
  std::raise(SIGUSR1);
  wait_for_stop(again.token());
}

TEST_CASE("signals that cannot be handled are rejected by number", "[signals]") {
  const int number = GENERATE(-1, 0, 65, SIGKILL, SIGSTOP, 32);
  const auto wait = [&] { ps::stop_on_signal signals{number}; };
  CHECK_THROWS_MATCHES(wait(), ps::option_error,
                       Catch::Matchers::Message("stop_on_signal: signal " + std::to_string(number) +
                                                " cannot be handled by a program"));
  CHECK_THROWS_AS(ps::stop_on_signal({}), ps::option_error);
  const auto faults = [] { ps::stop_on_signal signals{SIGUSR1, SIGSEGV}; };
  const auto rejection = test::error_of<ps::option_error>(faults);
  CHECK_THAT(rejection.what(), Catch::Matchers::StartsWith("stop_on_signal: signal 11 reports"));
  { ps::stop_on_signal signals{SIGUSR1}; }
}

TEST_CASE("a stop_on_signal without a signal ends its thread", "[signals]") {
  const auto before = present_threads();
  std::stop_token token;
  {
    ps::stop_on_signal signals{SIGUSR1};
    CHECK(threads_added_become(before, 1));
    token = signals.token();
  }
  CHECK(threads_added_become(before, 0));
  CHECK_FALSE(token.stop_requested());
  CHECK_FALSE(token.stop_possible());
}
