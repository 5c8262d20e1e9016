// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <ios>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/core/support/cgroup.hpp>
#include <penstock/core/version.hpp>
#include <penstock/threads/cpu_list.hpp>
#include <penstock/threads/support/shared_value.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The cores of a NUMA node, out of `root`/devices/system/node; nothing where the system does not
/// say, or the node has none. Reads a file. `root` is "/sys" but for tests.
[[nodiscard]] inline std::optional<cpu_list> cpus_of_node(const std::string& root, int node) {
  constexpr std::streamsize most = 1 << 16;  // a longer list is none of a kernel's
  std::ifstream file{root + "/devices/system/node/node" + std::to_string(node) + "/cpulist"};
  if (!file) return std::nullopt;
  std::string text(static_cast<std::size_t>(most), '\0');
  file.read(text.data(), most);
  text.resize(static_cast<std::size_t>(file.gcount()));
  return cpu_list::parse(text);
}

/// A set of cores as the kernel takes and gives it: a bit a core.
class cpu_bits {
 public:
  explicit cpu_bits(std::size_t cores) : words_((cores + word_bits - 1) / word_bits) {}
  explicit cpu_bits(const cpu_list& cores)
      : cpu_bits(cores.empty() ? 1 : cores.numbers().back() + 1) {
    for (const unsigned core : cores.numbers())
      words_[core / word_bits] |= 1UL << (core % word_bits);
  }
  [[nodiscard]] unsigned long* data() noexcept { return words_.data(); }
  [[nodiscard]] const unsigned long* data() const noexcept { return words_.data(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return words_.size() * sizeof(unsigned long); }
  [[nodiscard]] cpu_list list() const {
    std::vector<unsigned> numbers;
    for (unsigned core = 0; core < words_.size() * word_bits; ++core) {
      if ((words_[core / word_bits] >> (core % word_bits) & 1UL) != 0) numbers.push_back(core);
    }
    return cpu_list{std::move(numbers)};
  }

 private:
  static constexpr unsigned word_bits = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> words_;
};

/// What asks for the calling thread's mask, `bytes` long at `mask`: the bytes written, or -1 and
/// errno. By a name of its own, so that tests have kernels of any size.
struct ask_kernel {
  long operator()(std::size_t bytes, unsigned long* mask) const noexcept {
    return ::syscall(SYS_sched_getaffinity, 0, bytes, mask);
  }
};

/// The cores that the calling thread may run on, as many as the machine may have; nothing where the
/// system refuses to tell, and then errno says why.
template <class Ask = ask_kernel>
[[nodiscard]] std::optional<cpu_list> affinity_of_this_thread(const Ask& ask = {}) {
  // The kernel refuses a mask that is shorter than its own (EINVAL), and tells no length.
  for (std::size_t cores = 1024; cores <= cpu_list::limit; cores *= 2) {
    cpu_bits mask{cores};
    if (ask(mask.bytes(), mask.data()) >= 0) return mask.list();
    if (errno != EINVAL) return std::nullopt;
  }
  return std::nullopt;
}

/// Has the calling thread run on these cores alone. Returns 0, or what errno says.
[[nodiscard]] inline int bind_this_thread(const cpu_bits& cores) noexcept {
  return ::syscall(SYS_sched_setaffinity, 0, cores.bytes(), cores.data()) == 0 ? 0 : errno;
}

/// How often and for how long the threads of a container had to stop because its quota of processor
/// time was used up.
struct cpu_throttling {
  std::uint64_t count = 0;  ///< periods in which they did
  std::chrono::nanoseconds time{0};
};

/// That of this process's cgroups (v1 and v2) and all above them, since they exist; nothing where
/// there is no quota. Reads files. `root` is for tests: the files of another machine.
[[nodiscard]] inline cpu_throttling cpu_throttling_so_far(const std::string& root = "") {
  cpu_throttling all;
  for (const auto& [group, is_unified] : cgroups_of_process(root, "cpu")) {
    const std::string file = group + "cpu.stat";
    all.count += number_after(file, "nr_throttled").value_or(0);
    if (is_unified) {
      all.time += std::chrono::microseconds{number_after(file, "throttled_usec").value_or(0)};
    } else {
      all.time += std::chrono::nanoseconds{number_after(file, "throttled_time").value_or(0)};
    }
  }
  return all;
}

/// How long thread `thread` of this process has been ready to run and had no core; 0 where the
/// kernel does not say. Reads a file. `root` is for tests.
[[nodiscard]] inline std::chrono::nanoseconds run_queue_time_of(std::uint64_t thread,
                                                                const std::string& root = "") {
  std::ifstream file{root + "/proc/self/task/" + std::to_string(thread) + "/schedstat"};
  std::uint64_t running = 0;
  std::uint64_t waiting = 0;
  return std::chrono::nanoseconds{file >> running >> waiting ? waiting : 0};
}

/// What a thread has used of the machine, as the kernel counts it. The thread itself looks, by a
/// system call; any thread reads what it saw last.
class thread_usage {
 public:
  /// The thread in question: asks the kernel, unless it has done so less than `apart` ticks before
  /// `now`. May change errno.
  void look(std::uint64_t now, std::uint64_t apart) noexcept {
    if (now - looked_ < apart) [[likely]]
      return;
    looked_ = now;
    if (thread_.value() == 0) thread_.set(static_cast<std::uint64_t>(::syscall(SYS_gettid)));
    struct ::rusage used {};
    if (::getrusage(RUSAGE_THREAD, &used) != 0) return;
    processor_.set(nanoseconds_of(used.ru_utime) + nanoseconds_of(used.ru_stime));
    minor_faults_.set(static_cast<std::uint64_t>(used.ru_minflt));
    major_faults_.set(static_cast<std::uint64_t>(used.ru_majflt));
  }

  /// Processor time, of program and kernel.
  [[nodiscard]] std::chrono::nanoseconds processor() const noexcept {
    return std::chrono::nanoseconds{processor_.value()};
  }
  /// Time on the run queue, up to now: ready, without a core. Reads a file.
  [[nodiscard]] std::chrono::nanoseconds run_queue() const {
    return thread_.value() == 0 ? std::chrono::nanoseconds{0} : run_queue_time_of(thread_.value());
  }
  /// Page faults that needed no disk.
  [[nodiscard]] std::uint64_t minor_faults() const noexcept { return minor_faults_.value(); }
  /// Page faults that waited for a disk.
  [[nodiscard]] std::uint64_t major_faults() const noexcept { return major_faults_.value(); }

 private:
  static std::uint64_t nanoseconds_of(const struct ::timeval& time) noexcept {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(time.tv_usec) * 1'000;
  }

  std::uint64_t looked_ = 0;
  tally thread_;     // its number; 0: it has not looked yet
  tally processor_;  // nanoseconds
  tally minor_faults_;
  tally major_faults_;
};

/// The cores that the calling thread may run on at once; what the machine has where the system does
/// not say.
[[nodiscard]] inline std::size_t cpus_of_affinity() {
  const auto mask = affinity_of_this_thread();
  if (mask && !mask->empty()) return mask->size();
  return (std::max)(1U, std::thread::hardware_concurrency());
}

/// The cores that the quotas of this process's cgroups (v1 and v2), and of all above them, pay for:
/// whole ones, at least 1; the largest number without a quota. Reads files. `root` is for tests.
[[nodiscard]] inline std::size_t cpus_of_quota(const std::string& root = "") {
  std::uint64_t cpus = (std::numeric_limits<std::size_t>::max)();
  const auto limit = [&](std::uint64_t quota, std::uint64_t period) {
    if (period != 0) cpus = (std::min)(cpus, std::max<std::uint64_t>(1, quota / period));
  };
  for (const auto& [group, is_unified] : cgroups_of_process(root, "cpu")) {
    if (is_unified) {  // "max 100000", or two numbers, in microseconds
      std::ifstream file{group + "cpu.max"};
      std::uint64_t quota = 0;
      std::uint64_t period = 0;
      if (file >> quota >> period) limit(quota, period);
    } else {  // -1: no quota
      std::ifstream file{group + "cpu.cfs_quota_us"};
      std::int64_t quota = -1;
      const auto period = number_in(group + "cpu.cfs_period_us");
      if (file >> quota && quota > 0 && period) limit(static_cast<std::uint64_t>(quota), *period);
    }
  }
  return static_cast<std::size_t>(cpus);
}

/// The cores that this process may use at once, at least 1.
[[nodiscard]] inline std::size_t usable_cpus() {
  return (std::min)(cpus_of_affinity(), cpus_of_quota());
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
