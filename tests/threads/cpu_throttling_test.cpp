// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/support/cpus.hpp>

#include <chrono>

#include "memory/machine.hpp"
#include "support/catch.hpp"

using penstock::detail::cpu_throttling_so_far;
using namespace std::chrono_literals;

TEST_CASE("throttling counts the cgroup and all above it, v2", "[threads]") {
  test::machine files;
  files.file("/proc/self/cgroup", "0::/box/job\n")
      .file("/sys/fs/cgroup/box/job/cpu.stat",
            "usage_usec 99\nnr_periods 10\nnr_throttled 4\nthrottled_usec 2500\n")
      .file("/sys/fs/cgroup/box/cpu.stat", "usage_usec 99\nnr_throttled 1\nthrottled_usec 500\n")
      .file("/sys/fs/cgroup/cpu.stat", "usage_usec 99\n");
  const auto seen = cpu_throttling_so_far(files.root());
  CHECK(seen.count == 5);
  CHECK(seen.time == 3ms);
}

TEST_CASE("throttling is counted in nanoseconds by cgroup v1", "[threads]") {
  test::machine files;
  files.file("/proc/self/cgroup", "5:memory:/box\n4:cpu,cpuacct:/box\n0::/\n")
      .file("/sys/fs/cgroup/cpu/box/cpu.stat",
            "nr_periods 10\nnr_throttled 3\nthrottled_time 2000000\n")
      .file("/sys/fs/cgroup/memory/box/cpu.stat", "nr_throttled 1000\nthrottled_time 1000\n");
  const auto seen = cpu_throttling_so_far(files.root());
  CHECK(seen.count == 3);
  CHECK(seen.time == 2ms);
}

TEST_CASE("without a quota, or without the files, nothing is throttled", "[threads]") {
  test::machine files;
  CHECK(cpu_throttling_so_far(files.root()).count == 0);
  files.file("/proc/self/cgroup", "garbage\n0::/box\n");
  CHECK(cpu_throttling_so_far(files.root()).time == 0ns);
  files.file("/sys/fs/cgroup/box/cpu.stat", "nr_throttled many\n");
  CHECK(cpu_throttling_so_far(files.root()).count == 0);
}
