// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/budget.hpp>

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <type_traits>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t mib = 1 << 20;

/// A root directory with the files of a machine thought up, removed at the end.
class machine {
 public:
  machine() {
    std::string pattern = (std::filesystem::temp_directory_path() / "penstock-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    root_ = pattern;
  }
  machine(machine&&) = delete;
  ~machine() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  machine& file(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root_ + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream{whole} << text;
    return *this;
  }
  /// The MemAvailable of /proc/meminfo.
  machine& free_mib(std::uint64_t count) {
    return file("/proc/meminfo",
                "MemTotal:       99999999 kB\nMemFree:            1234 kB\n"
                "MemAvailable:   " +
                    std::to_string(count * 1024) + " kB\nBuffers:  77 kB\n");
  }
  [[nodiscard]] std::uint64_t available() const { return ps::available_memory(root_); }

 private:
  std::string root_;
};

std::string bytes_of(std::uint64_t count) { return std::to_string(count * mib) + "\n"; }

}  // namespace

TEST_CASE("bytes are written as people read them", "[memory]") {
  CHECK(ps::readable_bytes(0) == "0 bytes");
  CHECK(ps::readable_bytes(1023) == "1023 bytes");
  CHECK(ps::readable_bytes(1024) == "1.0 KiB");
  CHECK(ps::readable_bytes(1536) == "1.5 KiB");
  CHECK(ps::readable_bytes(1048575) == "1.0 MiB");
  CHECK(ps::readable_bytes(273 * mib) == "273.0 MiB");
  CHECK(ps::readable_bytes(3277 * mib) == "3.2 GiB");
  CHECK(ps::readable_bytes(std::uint64_t{5} << 40) == "5.0 TiB");
  CHECK(ps::readable_bytes(std::uint64_t{5} << 50) == "5.0 PiB");
  CHECK(ps::readable_bytes(most) == "16.0 EiB");
}

TEST_CASE("a machine that tells nothing has all the memory there is", "[memory]") {
  CHECK(machine{}.available() == most);
  CHECK(machine{}.file("/proc/meminfo", "MemTotal: 5 kB\n").available() == most);
  CHECK(machine{}.file("/proc/self/cgroup", "garbage\n0:\n\n::\n").available() == most);
}

TEST_CASE("without a control group what the system has left counts", "[memory]") {
  CHECK(machine{}.free_mib(100).available() == 100 * mib);
}

TEST_CASE("the limit of a control group counts, less what is used without the file cache",
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
  CHECK(it.available() == 400 * mib);  // the smaller of the two
}

TEST_CASE("a control group that is full, or over its limit, leaves nothing", "[memory]") {
  machine it;
  it.free_mib(10'000)
      .file("/proc/self/cgroup", "0::/box\n")
      .file("/sys/fs/cgroup/box/memory.max", bytes_of(500))
      .file("/sys/fs/cgroup/box/memory.current", bytes_of(501));
  CHECK(it.available() == 0);
  it.file("/sys/fs/cgroup/box/memory.stat", "inactive_file " + bytes_of(9000));
  CHECK(it.available() == 500 * mib);  // never more than the limit
}

TEST_CASE("a limit of \"max\" is none", "[memory]") {
  machine it;
  it.free_mib(100)
      .file("/proc/self/cgroup", "0::/box\n")
      .file("/sys/fs/cgroup/box/memory.max", "max\n")
      .file("/sys/fs/cgroup/box/memory.current", bytes_of(50));
  CHECK(it.available() == 100 * mib);
}

TEST_CASE("the limits of all groups above count, the root's too", "[memory]") {
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

TEST_CASE("both versions of control groups at once: the smallest counts", "[memory]") {
  machine it;
  it.free_mib(10'000)
      .file("/proc/self/cgroup", "4:memory:/one\n0::/two\n")
      .file("/sys/fs/cgroup/memory/one/memory.limit_in_bytes", bytes_of(70))
      .file("/sys/fs/cgroup/two/memory.max", bytes_of(60));
  CHECK(it.available() == 60 * mib);
  it.file("/sys/fs/cgroup/memory/one/memory.limit_in_bytes", bytes_of(50));
  CHECK(it.available() == 50 * mib);
}

TEST_CASE("the machine that runs this has memory left", "[memory]") {
  CHECK(ps::available_memory() > mib);
  CHECK(ps::pinned_budget(0) > mib / 4);
  CHECK(ps::pinned_budget(0) <= most / 4);
  CHECK(ps::pinned_budget(12'345) == 12'345);
}

TEST_CASE("slots may fill the budget to the last byte and no further", "[memory]") {
  ps::require_within_budget(12, 100, 1200);
  CHECK_THROWS_AS(ps::require_within_budget(12, 100, 1199), ps::pinned_budget_exceeded);
  ps::require_within_budget(0, 100, 0);
}

TEST_CASE("a budget that is exceeded says the need, the limit and what to lower", "[memory]") {
  try {
    ps::require_within_budget(12, 273 * mib, std::uint64_t{2} << 30);
    FAIL("12 slots of 273 MiB fit into 2 GiB");
  } catch (const ps::pinned_budget_exceeded& problem) {
    CHECK(std::string{problem.what()} ==
          "pinned_budget_exceeded: 3.2 GiB needed for 12 slots of 273.0 MiB, limit 2.0 GiB: lower "
          "prefetch or batch_size, or raise pinned_budget_bytes");
    CHECK(problem.need() == 12 * 273 * mib);
    CHECK(problem.limit() == std::uint64_t{2} << 30);
  }
  CHECK(std::is_base_of_v<ps::error, ps::pinned_budget_exceeded>);
}

TEST_CASE("a need beyond 64 bits is the largest number and not a small one", "[memory]") {
  try {
    ps::require_within_budget(std::uint64_t{1} << 40, std::uint64_t{1} << 40, 1000);
    FAIL("2^80 bytes fit into 1000");
  } catch (const ps::pinned_budget_exceeded& problem) {
    CHECK(problem.need() == most);
  }
  CHECK_THROWS_AS(ps::require_within_budget(most, 2, most - 1), ps::pinned_budget_exceeded);
}
