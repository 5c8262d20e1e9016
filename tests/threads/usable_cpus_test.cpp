// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/support/cpus.hpp>

#include <sched.h>

#include <cstddef>
#include <limits>

#include "memory/machine.hpp"
#include "support/catch.hpp"

namespace {

using penstock::detail::cpus_of_affinity;
using penstock::detail::cpus_of_quota;

constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

}  // namespace

TEST_CASE("usable cores are those of the affinity mask", "[threads][promise:bounded-4]") {
  ::cpu_set_t before;
  if (::sched_getaffinity(0, sizeof before, &before) != 0) {
    WARN("not tested: there are more cores than a cpu_set_t has room for");
    return;
  }
  CHECK(cpus_of_affinity() == static_cast<std::size_t>(CPU_COUNT(&before)));
  std::size_t first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  ::cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  if (::sched_setaffinity(0, sizeof one, &one) != 0) {
    WARN("not tested: threads can't be bound here");
    return;
  }
  const std::size_t with_one = cpus_of_affinity();
  const std::size_t usable = penstock::detail::usable_cpus();
  REQUIRE(::sched_setaffinity(0, sizeof before, &before) == 0);
  CHECK(with_one == 1);
  CHECK(usable == 1);
}

TEST_CASE("usable cores are the whole cores of the smallest quota, v2",
          "[threads][promise:bounded-4]") {
  test::machine files;
  files.file("/proc/self/cgroup", "0::/box/job\n")
      .file("/sys/fs/cgroup/box/job/cpu.max", "max 100000\n")
      .file("/sys/fs/cgroup/box/cpu.max", "350000 100000\n")
      .file("/sys/fs/cgroup/cpu.max", "800000 100000\n");
  CHECK(cpus_of_quota(files.root()) == 3);
  files.file("/sys/fs/cgroup/box/job/cpu.max", "20000 100000\n");
  CHECK(cpus_of_quota(files.root()) == 1);
}

TEST_CASE("usable cores are those of a quota of cgroup v1", "[threads]") {
  test::machine files;
  files.file("/proc/self/cgroup", "4:cpu,cpuacct:/box\n0::/\n")
      .file("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "250000\n")
      .file("/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "50000\n")
      .file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
      .file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(cpus_of_quota(files.root()) == 5);
}

TEST_CASE("without a quota, or with uninformative files, all cores are usable", "[threads]") {
  test::machine files;
  CHECK(cpus_of_quota(files.root()) == none);
  files.file("/proc/self/cgroup", "garbage\n0::/box\n")
      .file("/sys/fs/cgroup/box/cpu.max", "max 100000\n")
      .file("/sys/fs/cgroup/cpu.max", "1000 0\n");
  CHECK(cpus_of_quota(files.root()) == none);
  files.file("/sys/fs/cgroup/cpu.max", "many\n");
  CHECK(cpus_of_quota(files.root()) == none);
}
