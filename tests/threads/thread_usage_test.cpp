// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/support/cpus.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

#include "support/catch.hpp"
#include "support/temp_dir.hpp"

TEST_CASE("a thread's usage is looked up by itself, and not too often", "[threads]") {
  penstock::detail::thread_usage usage;
  CHECK(usage.processor().count() == 0);
  constexpr std::uint64_t apart = 100;
  usage.look(99, apart);
  CHECK(usage.processor().count() == 0);
  std::uint64_t now = 100;
  // The kernel counts in microseconds, or in ticks of its own.
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

TEST_CASE("a thread's time on the run queue is what the kernel says", "[threads]") {
  const test::temp_dir root;
  const std::filesystem::path task = root.path("proc/self/task/77");
  std::filesystem::create_directories(task);
  const auto waited = [&] {
    return penstock::detail::run_queue_time_of(77, root.path("")).count();
  };
  CHECK(waited() == 0);  // no file: the kernel doesn't say
  std::ofstream{task / "schedstat"} << "4711 1234567 9\n";
  CHECK(waited() == 1'234'567);
  std::ofstream{task / "schedstat"} << "none\n";
  CHECK(waited() == 0);
  // The thread that has looked, and no other: a kernel that says nothing says 0 of all.
  const auto own = [] {
    std::ifstream file{"/proc/thread-self/schedstat"};
    std::int64_t running = 0;
    std::int64_t waiting = 0;
    return file >> running >> waiting ? waiting : 0;
  };
  penstock::detail::thread_usage usage;
  CHECK(usage.run_queue().count() == 0);
  usage.look(100, 100);
  const auto least = own();
  const auto found = usage.run_queue().count();
  CHECK(found >= least);
  CHECK(found <= own());
}
