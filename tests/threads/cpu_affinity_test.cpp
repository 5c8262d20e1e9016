// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/support/cpus.hpp>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>

#include "memory/machine.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using ps::detail::affinity_of_this_thread;
using ps::detail::bind_this_thread;
using ps::detail::cpu_bits;
using ps::detail::cpus_of_node;

namespace {

/// A simulated kernel for `cores` cores. The calling thread may run only on the last core.
struct kernel_of {
  std::size_t cores;
  int rejects_with = 0;

  long operator()(std::size_t bytes, unsigned long* mask) const noexcept {
    constexpr std::size_t word_bits = 8 * sizeof(unsigned long);
    errno = rejects_with != 0 ? rejects_with : EINVAL;
    if (rejects_with != 0 || bytes * 8 < cores) return -1;
    mask[(cores - 1) / word_bits] |= 1UL << ((cores - 1) % word_bits);
    return static_cast<long>(cores / 8);
  }
};

}  // namespace

TEST_CASE("the cores of a node are read from its file", "[threads]") {
  test::machine files;
  files.file("/sys/devices/system/node/node0/cpulist", "0-1,4\n")
      .file("/sys/devices/system/node/node1/cpulist", "\n")
      .file("/sys/devices/system/node/node2/cpulist", "2-3\nand more\n")
      .file("/sys/devices/system/node/node3/cpulist", std::string(100'000, '1'));
  const std::string root = files.root() + "/sys";
  CHECK(cpus_of_node(root, 0) == ps::cpu_list{{0, 1, 4}});
  CHECK(cpus_of_node(root, 1) == std::nullopt);  // a node with memory only
  CHECK(cpus_of_node(root, 2) == std::nullopt);
  CHECK(cpus_of_node(root, 3) == std::nullopt);
  CHECK(cpus_of_node(root, 4) == std::nullopt);  // the file does not exist
  CHECK(cpus_of_node(root, -1) == std::nullopt);
  CHECK(cpus_of_node(files.root() + "/nowhere", 0) == std::nullopt);
}

TEST_CASE("the affinity mask of a thread is queried with growing sizes", "[threads]") {
  for (const unsigned cores : {64U, 1024U, 1025U, 8192U, 65536U}) {
    CAPTURE(cores);
    CHECK(affinity_of_this_thread(kernel_of{cores}) == ps::cpu_list{{cores - 1}});
  }
  CHECK(affinity_of_this_thread(kernel_of{1U << 17}) == std::nullopt);
  CHECK(affinity_of_this_thread(kernel_of{64, EPERM}) == std::nullopt);
  CHECK(errno == EPERM);
}

TEST_CASE("a bound thread runs only on its cores, and other threads are unchanged", "[threads]") {
  const auto before = affinity_of_this_thread();
  REQUIRE(before.has_value());
  REQUIRE_FALSE(before->empty());
  const ps::cpu_list last{{before->numbers().back()}};
  int rejected = 0;
  std::optional<ps::cpu_list> bound;
  std::thread{[&] {
    rejected = bind_this_thread(cpu_bits{last});
    bound = affinity_of_this_thread();
  }}.join();
  CHECK(affinity_of_this_thread() == before);
  CHECK(bind_this_thread(cpu_bits{ps::cpu_list{}}) != 0);  // an empty list of cores is invalid
  if (rejected != 0) {
    WARN("not tested: threads can't be bound here");
    CHECK(bound == before);
  } else {
    CHECK(bound == last);
  }
}
