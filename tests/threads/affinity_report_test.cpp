// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/cpu_list.hpp>

#include <cerrno>

#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("the affinity report explains where workers run and why", "[threads]") {
  using enum ps::core_binding;
  const ps::cpu_list cores{{8, 9, 10}};
  CHECK(to_text(ps::affinity_report{}) == "workers anywhere: the device has no NUMA node");
  CHECK(to_text(ps::affinity_report{bound, 1, cores}) == "workers on node 1, cores 8-10");
  CHECK(to_text(ps::affinity_report{within_node, 0, cores}) ==
        "workers on node 0, cores 8-10, as allowed to the process");
  CHECK(to_text(ps::affinity_report{disabled}) ==
        "workers anywhere: worker_affinity::anywhere was requested");
  CHECK(to_text(ps::affinity_report{no_workers, 1}) ==
        "no workers: the consumer thread reads, on any core");
  CHECK(to_text(ps::affinity_report{unknown_cores, 3}) ==
        "workers anywhere: the system does not report the cores of node 3");
  CHECK(to_text(ps::affinity_report{not_in_cpuset, 3}) ==
        "workers anywhere: the process may not run on node 3");
  CHECK(
      to_text(ps::affinity_report{failed, 3, cores, EPERM}) ==
      "workers anywhere: the system denied access to node 3, cores 8-10: Operation not permitted");
  CHECK(to_text(ps::affinity_report{failed, 3, {}, ENOSYS}) ==
        "workers anywhere: the system denied access to node 3: Function not implemented");
}
