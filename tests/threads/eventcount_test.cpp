// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/support/eventcount.hpp>

#include <atomic>
#include <cstdint>
#include <thread>

#include <penstock/threads/support/atomics.hpp>

#include "support/catch.hpp"
#include "support/sleepy_atomics.hpp"

namespace ps = penstock;

namespace {

/// Atomics on which threads can wait only through `word`, which makes a system call for each wait.
struct no_library_waits : sleepy_atomics {
  template <class T>
  struct atomic : std::atomic<T> {
    using std::atomic<T>::atomic;
    void wait(T, std::memory_order) const = delete;
    void notify_one() = delete;
    void notify_all() = delete;
  };
};

}  // namespace

TEST_CASE("threads sleep on an eventcount in the kernel, and not in the standard library",
          "[load]") {
  sleepy_atomics::reset();
  ps::detail::basic_eventcount<no_library_waits> changed;
  std::atomic<bool> is_done{false};
  std::thread waiter{[&] { changed.wait([&] { return is_done.load(); }); }};
  sleepy_atomics::wait_for_sleeps(1);
  is_done = true;
  changed.notify();
  waiter.join();
  CHECK(sleepy_atomics::wakes == 1);
  changed.notify();  // no thread is waiting any more
  CHECK(sleepy_atomics::wakes == 1);
}
