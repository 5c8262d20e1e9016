// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/detail/worker_binding.hpp>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock/threads/cpu_list.hpp>

#include "memory/machine.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using penstock::detail::affinity_of_this_thread;

namespace {

/// A device that is attached to a NUMA node of a simulated machine.
struct device_at_a_node : ps::cpu_device {
  std::optional<int> node;
  std::string sysfs;

  [[nodiscard]] std::optional<int> host_node() const { return node; }
  [[nodiscard]] std::string sysfs_root() const { return sysfs; }
};
static_assert(ps::device<device_at_a_node>);

/// A dataset that records the affinity mask of each reading thread.
struct watched {
  using record_type = ps::record<ps::field<"label", std::uint64_t>>;
  struct notes {
    std::mutex mutex;
    std::map<std::thread::id, std::optional<ps::cpu_list>> masks;
  };
  std::shared_ptr<notes> seen = std::make_shared<notes>();

  [[nodiscard]] std::uint64_t size() const { return 64; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    ps::get<"label">(out) = index;
    const std::lock_guard lock{seen->mutex};
    seen->masks[std::this_thread::get_id()] = affinity_of_this_thread();
  }
};

struct outcome {
  ps::affinity_report where;
  ps::affinity_report at_end;
  // Affinity mask of each reading thread.
  std::map<std::thread::id, std::optional<ps::cpu_list>> masks;
  std::uint64_t sum = 0;
};

/// Reads an epoch on a device attached to node 1 of a machine. The node has the cores `there`.
outcome read_next_to(const std::string& there, ps::loader_options options) {
  test::machine files;
  files.file("/sys/devices/system/node/node1/cpulist", there + "\n");
  device_at_a_node device;
  device.node = 1;
  device.sysfs = files.root() + "/sys";
  options.batch_size = 4;
  options.tuning.chunk = 1;
  const watched data;
  outcome found;
  {
    ps::loader loader{data, ps::sequential{}, device, options};
    found.where = loader.footprint().workers;
    for (auto& batch : loader.epochs(0, 3)) {
      for (const auto label : ps::get<"label">(batch).flat()) found.sum += label;
    }
    found.at_end = loader.footprint().workers;
  }
  found.masks = data.seen->masks;
  return found;
}

constexpr std::uint64_t whole_sum = 3 * 63 * 64 / 2;

ps::cpu_list own_mask() {
  auto mask = affinity_of_this_thread();
  REQUIRE(mask.has_value());
  REQUIRE_FALSE(mask->empty());
  return *mask;
}

/// Returns true if the system permits binding a thread to these cores.
bool may_bind(const ps::cpu_list& cores) {
  int rejected = 0;
  std::thread{[&] { rejected = ps::detail::bind_this_thread(ps::detail::cpu_bits{cores}); }}.join();
  return rejected == 0;
}

/// Makes the system reject affinity changes by the calling thread and its future threads. Returns
/// false if the filter cannot be installed.
bool forbid_binding() {
  constexpr auto nr_offset = static_cast<std::uint32_t>(offsetof(seccomp_data, nr));
  std::array<sock_filter, 4> rule{{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, nr_offset},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, static_cast<std::uint32_t>(SYS_sched_setaffinity)},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  }};
  const sock_fprog program{static_cast<unsigned short>(rule.size()), rule.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

TEST_CASE("workers run on the cores of the device's node, and the consumer is not bound",
          "[load][promise:honest-16]") {
  const auto mask = own_mask();
  const ps::cpu_list there{{mask.numbers().back()}};
  if (mask.size() == 1) {
    WARN("not tested: there is one core");
    return;
  }
  if (!may_bind(there)) {
    WARN("not tested: threads can't be bound here");
    return;
  }
  const auto found = read_next_to(to_text(there) + ",65535", {.workers = 3});
  CHECK(found.where == ps::affinity_report{ps::core_binding::bound, 1, there});
  CHECK(found.at_end == found.where);
  CHECK(found.sum == whole_sum);
  CHECK_FALSE(found.masks.empty());
  CHECK_FALSE(found.masks.contains(std::this_thread::get_id()));
  for (const auto& [thread, bound] : found.masks) CHECK(bound == there);
  CHECK(own_mask() == mask);
}

TEST_CASE("a process that may run only on the node's cores is not bound",
          "[load][promise:honest-16]") {
  const auto mask = own_mask();
  const auto found = read_next_to("0-65535", {.workers = 2});
  CHECK(found.where == ps::affinity_report{ps::core_binding::within_node, 1, mask});
  for (const auto& [thread, as_before] : found.masks) CHECK(as_before == mask);
  CHECK(found.sum == whole_sum);
}

TEST_CASE("workers run anywhere if requested, or if nothing else is possible",
          "[load][promise:honest-16]") {
  using enum ps::core_binding;
  const auto mask = own_mask();
  const std::string first = std::to_string(mask.numbers().front());
  struct way {
    std::string there;
    ps::loader_options options;
    ps::affinity_report expected;
  };
  const std::vector<way> ways{
      {first,
       {.workers = 2, .tuning = {.affinity = ps::worker_affinity::anywhere}},
       {.binding = disabled}},
      {first, {.workers = 0}, {.binding = no_workers, .node = 1}},
      {"65535", {.workers = 2}, {.binding = not_in_cpuset, .node = 1}},
      {"", {.workers = 2}, {.binding = unknown_cores, .node = 1}},
      {"0-rubbish", {.workers = 2}, {.binding = unknown_cores, .node = 1}},
  };
  for (const way& one : ways) {
    CAPTURE(one.there, to_text(one.expected));
    const auto found = read_next_to(one.there, one.options);
    CHECK(found.where == one.expected);
    CHECK(found.sum == whole_sum);
    for (const auto& [thread, as_before] : found.masks) CHECK(as_before == mask);
  }
}

TEST_CASE("without a NUMA node workers run anywhere, and the footprint reports this", "[load]") {
  device_at_a_node device;
  const ps::loader_options options{.batch_size = 4, .workers = 1};
  const ps::loader loader{watched{}, ps::sequential{}, device, options};
  CHECK(loader.footprint().workers == ps::affinity_report{});
  const auto need = ps::footprint<watched::record_type>({}, options);
  CHECK(need == loader.footprint());
  const ps::loader free_to_go{
      watched{},
      ps::sequential{},
      device,
      {.workers = 1, .tuning = {.affinity = ps::worker_affinity::anywhere}}};
  const auto also = ps::footprint<watched::record_type>(
      {}, {.workers = 1, .tuning = {.affinity = ps::worker_affinity::anywhere}});
  CHECK(also == free_to_go.footprint());
}

TEST_CASE("a rejected binding is reported and harmless", "[load][promise:honest-16]") {
  const auto mask = own_mask();
  if (mask.size() == 1) {
    WARN("not tested: there is one core");
    return;
  }
  const ps::cpu_list there{{mask.numbers().front()}};
  bool is_forbidden = false;
  std::optional<outcome> found;
  int reported_at_once = 0;
  constexpr int turns = 100;
  std::thread{[&] {
    is_forbidden = forbid_binding();
    if (!is_forbidden) return;
    found = read_next_to(to_text(there), {.workers = 3});
    test::machine files;
    files.file("/sys/devices/system/node/node1/cpulist", to_text(there));
    device_at_a_node device;
    device.node = 1;
    device.sysfs = files.root() + "/sys";
    for (int turn = 0; turn < turns; ++turn) {
      const ps::loader loader{watched{}, ps::sequential{}, device, {.workers = 1}};
      if (loader.footprint().workers == found->where) ++reported_at_once;
    }
  }}.join();
  if (!is_forbidden) {
    WARN("not tested: no system call can be forbidden here");
    return;
  }
  CHECK(found->where == ps::affinity_report{ps::core_binding::failed, 1, there, EPERM});
  CHECK(found->at_end == found->where);
  CHECK(found->sum == whole_sum);
  // Every worker has reported its binding before the constructor returns.
  CHECK(reported_at_once == turns);
  for (const auto& [thread, as_before] : found->masks) CHECK(as_before == mask);
}
