// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/support/cpus.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/temp_dir.hpp"

TEST_CASE("the usage of a thread is read by the thread itself, at a limited rate", "[threads]") {
  penstock::detail::thread_usage usage;
  CHECK(usage.processor().count() == 0);
  constexpr std::uint64_t apart = 100;
  usage.look(99, apart);
  CHECK(usage.processor().count() == 0);
  std::uint64_t now = 100;
  // Repeats the call, because the kernel counts processor time in microseconds or ticks.
  while (usage.processor().count() == 0) usage.look(now += apart, apart);
  const auto before = usage.processor();
  const std::vector<char> touched(std::size_t{64} << 20, 1);
  usage.look(now + apart - 1, apart);
  CHECK(usage.processor() == before);
  const auto faults = usage.minor_faults();
  usage.look(now + apart, apart);
  CHECK(usage.processor() > before);
  CHECK(usage.minor_faults() > faults);
}

TEST_CASE("the run-queue time of a thread equals the kernel's value", "[threads]") {
  const test::temp_dir root;
  const std::filesystem::path task = root.path("proc/self/task/77");
  std::filesystem::create_directories(task);
  const auto waited = [&] {
    return penstock::detail::run_queue_time_of(77, root.path("").c_str()).count();
  };
  CHECK(waited() == 0);  // without the file, the kernel does not report the time
  std::ofstream{task / "schedstat"} << "4711 1234567 9\n";
  CHECK(waited() == 1'234'567);
  std::ofstream{task / "schedstat"} << "none\n";
  CHECK(waited() == 0);
  // Returns the run-queue time of the calling thread only. Both values are 0 if the kernel does not
  // report the time.
  const auto own = [] {
    std::ifstream file{"/proc/thread-self/schedstat"};
    std::int64_t running = 0;
    std::int64_t waiting = 0;
    return file >> running >> waiting ? waiting : 0;
  };
  penstock::detail::thread_usage usage;
  CHECK(usage.run_queue().count() == 0);
  usage.look(100, 100);
  const auto min = own();
  const auto found = usage.run_queue().count();
  CHECK(found >= min);
  CHECK(found <= own());
}

TEST_CASE("time on the run queue is counted between start and stop only", "[threads]") {
  penstock::detail::run_queue_watch watch;
  CHECK(watch.read().count() == 0);
  const auto own = [] {
    return penstock::detail::run_queue_time_of(static_cast<std::uint64_t>(::syscall(SYS_gettid)));
  };
  // Keeps the cores busy until the kernel has preempted this thread, which increases its run-queue
  // time slightly.
  const auto queue_for_a_while = [&](std::chrono::nanoseconds base) {
    std::vector<std::thread> rivals;
    std::atomic<bool> done{false};
    for (unsigned i = 0; i < 2 * std::max(1U, std::thread::hardware_concurrency()); ++i)
      rivals.emplace_back([&done] {
        while (!done) std::this_thread::yield();
      });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{20};
    while (own() == base && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    done = true;
    for (auto& rival : rivals) rival.join();
    return own() != base;
  };
  if (!queue_for_a_while(own())) return;  // the kernel does not report the time
  CHECK(watch.read().count() == 0);       // time before the start is not counted
  const auto before = own();
  watch.start();
  REQUIRE(queue_for_a_while(own()));
  const auto going = watch.read();
  CHECK(going.count() > 0);
  watch.start();  // no effect, because the watch is already running
  watch.stop();
  const auto after = own();
  CHECK(watch.read() >= going);
  CHECK(watch.read() <= after - before);
  const auto counted = watch.read();
  queue_for_a_while(own());
  CHECK(watch.read() == counted);
  // Another thread may take over the watch. The time stops growing when that thread ends.
  std::thread{[&watch] { watch.start(); }}.join();
  CHECK(watch.read() == counted);
  watch.stop();
  CHECK(watch.read() == counted);
}
