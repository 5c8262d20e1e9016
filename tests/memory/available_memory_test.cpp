// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/budget.hpp>

#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <cstdint>
#include <limits>
#include <string>

#include "memory/machine.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using test::machine;

namespace {

constexpr std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t mib = 1 << 20;

std::string bytes_of(std::uint64_t count) { return std::to_string(count * mib) + "\n"; }

}  // namespace

TEST_CASE("an unknown memory size saturates", "[memory]") {
  CHECK(machine{}.available() == max);
  CHECK(machine{}.file("/proc/meminfo", "MemTotal: 5 kB\n").available() == max);
  CHECK(machine{}.file("/proc/self/cgroup", "garbage\n0:\n\n::\n").available() == max);
}

TEST_CASE("without a control group the system's available memory counts", "[memory]") {
  CHECK(machine{}.free_mib(100).available() == 100 * mib);
}

TEST_CASE("the limit of a control group counts, minus the memory in use without the file cache",
          "[memory]") {
  machine it;
  it.free_mib(10'000)
      .file("/proc/self/cgroup", "0::/box\n")
      .file("/sys/fs/cgroup/box/memory.max", bytes_of(500));
  CHECK(it.available() == 500 * mib);
  it.file("/sys/fs/cgroup/box/memory.current", bytes_of(200));
  CHECK(it.available() == 300 * mib);
  it.file("/sys/fs/cgroup/box/memory.stat",
          "anon 1\nfile 2\nactive_file 9\ninactive_file " + bytes_of(150) + "slab 3\n");
  CHECK(it.available() == 450 * mib);
  it.free_mib(400);
  CHECK(it.available() == 400 * mib);  // the smaller limit applies
}

TEST_CASE("a control group that is full, or over its limit, has 0 bytes left", "[memory]") {
  machine it;
  it.free_mib(10'000)
      .file("/proc/self/cgroup", "0::/box\n")
      .file("/sys/fs/cgroup/box/memory.max", bytes_of(500))
      .file("/sys/fs/cgroup/box/memory.current", bytes_of(501));
  CHECK(it.available() == 0);
  it.file("/sys/fs/cgroup/box/memory.stat", "inactive_file " + bytes_of(9000));
  CHECK(it.available() == 500 * mib);  // never more than the limit
}

TEST_CASE("a limit of \"max\" means no limit", "[memory]") {
  machine it;
  it.free_mib(100)
      .file("/proc/self/cgroup", "0::/box\n")
      .file("/sys/fs/cgroup/box/memory.max", "max\n")
      .file("/sys/fs/cgroup/box/memory.current", bytes_of(50));
  CHECK(it.available() == 100 * mib);
}

TEST_CASE("the limits of all parent groups count, including the root",
          "[memory][promise:bounded-3]") {
  machine it;
  it.free_mib(10'000)
      .file("/proc/self/cgroup", "0::/a/b/c\n")
      .file("/sys/fs/cgroup/a/b/c/memory.max", "max\n")
      .file("/sys/fs/cgroup/a/b/memory.max", bytes_of(700))
      .file("/sys/fs/cgroup/a/memory.max", bytes_of(600))
      .file("/sys/fs/cgroup/a/memory.current", bytes_of(100));
  CHECK(it.available() == 500 * mib);
  it.file("/sys/fs/cgroup/a/b/memory.current", bytes_of(300));
  CHECK(it.available() == 400 * mib);
  it.file("/sys/fs/cgroup/memory.max", bytes_of(50));
  CHECK(it.available() == 50 * mib);
}

TEST_CASE("in a container the group's own files lie at the root of the mount", "[memory]") {
  machine it;
  it.free_mib(10'000)
      .file("/proc/self/cgroup", "0::/\n")
      .file("/sys/fs/cgroup/memory.max", bytes_of(80))
      .file("/sys/fs/cgroup/memory.current", bytes_of(20));
  CHECK(it.available() == 60 * mib);
}

TEST_CASE("control groups of the first version count", "[memory]") {
  machine it;
  it.free_mib(10'000)
      .file("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/box/inner\n1:name=systemd:/y\n")
      .file("/sys/fs/cgroup/memory/box/inner/memory.limit_in_bytes", "9223372036854771712\n")
      .file("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", bytes_of(300))
      .file("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", bytes_of(200))
      .file("/sys/fs/cgroup/memory/box/memory.stat",
            "inactive_file 5\ntotal_inactive_file " + bytes_of(40));
  CHECK(it.available() == 140 * mib);
}

TEST_CASE("the memory controller is found among others, and only by its whole name", "[memory]") {
  const std::string limit = "/sys/fs/cgroup/memory/box/memory.limit_in_bytes";
  machine it;
  it.free_mib(100).file(limit, bytes_of(30));
  CHECK(it.file("/proc/self/cgroup", "3:cpu,memory,pids:/box\n").available() == 30 * mib);
  CHECK(it.file("/proc/self/cgroup", "3:hugememory,memoryless:/box\n").available() == 100 * mib);
}

TEST_CASE("the smallest limit counts if both versions of control groups exist",
          "[memory][promise:bounded-3]") {
  machine it;
  it.free_mib(10'000)
      .file("/proc/self/cgroup", "4:memory:/one\n0::/two\n")
      .file("/sys/fs/cgroup/memory/one/memory.limit_in_bytes", bytes_of(70))
      .file("/sys/fs/cgroup/two/memory.max", bytes_of(60));
  CHECK(it.available() == 60 * mib);
  it.file("/sys/fs/cgroup/memory/one/memory.limit_in_bytes", bytes_of(50));
  CHECK(it.available() == 50 * mib);
}

TEST_CASE("a limit on address space or data counts, minus the memory in use", "[memory]") {
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    struct ::rlimit before {};
    REQUIRE(::getrlimit(resource, &before) == 0);
    const std::uint64_t without = ps::available_memory();
    // Sets the limit to the memory that the process already uses. A huge limit shows how much that
    // is.
    constexpr std::uint64_t large = std::uint64_t{1} << 56;
    if (before.rlim_max < large) continue;  // raising such a limit again would fail
    const auto set_limit = [&](std::uint64_t bytes) {
      const struct ::rlimit limit {
        bytes, before.rlim_max
      };
      return ::setrlimit(resource, &limit);
    };
    REQUIRE(set_limit(large) == 0);
    const std::uint64_t taken = large - ps::detail::left_by_limits("");
    CHECK(taken > mib / 16);
    CHECK(ps::available_memory() <= large);
    REQUIRE(set_limit(taken + 100 * mib) == 0);
    const std::uint64_t left = ps::available_memory();
    REQUIRE(::setrlimit(resource, &before) == 0);
    CHECK(left <= 100 * mib);
    CHECK((without < 100 * mib || left > 50 * mib));
  }
}

TEST_CASE("without /proc the free memory comes from a system call", "[memory]") {
  struct ::sysinfo system {};
  REQUIRE(::sysinfo(&system) == 0);
  CHECK(ps::detail::free_memory() > 0);
  CHECK(ps::detail::free_memory() < std::uint64_t{system.totalram} * system.mem_unit);
}

TEST_CASE("this machine has memory left", "[memory]") { CHECK(ps::available_memory() > mib); }
