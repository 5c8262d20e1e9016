// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/support/cgroup.hpp>
#include <penstock/core/support/text_of_file.hpp>
#include <penstock/core/version.hpp>
#include <penstock/threads/cpu_list.hpp>
#include <penstock/threads/support/shared_value.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns the cores of a NUMA node, as listed in `root`/devices/system/node. Returns nothing if
/// the node is not listed or has no cores. Reads a file. `root` is "/sys" except in tests.
[[nodiscard]] inline std::optional<cpu_list> cpus_of_node(const std::string& root, int node) {
  return cpu_list::parse(
      text_of_file(str_cat({root, "/devices/system/node/node", node, "/cpulist"})));
}

/// A set of cores as a bit mask in the kernel's format.
class cpu_bits {
 public:
  /// Creates an empty set with room for `cores` cores.
  explicit cpu_bits(std::size_t cores) : words_((cores + word_bits - 1) / word_bits) {}
  /// Creates the set of `cores`.
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

/// Reads the affinity mask of the calling thread into the `bytes` bytes at `mask`. Returns the
/// number of bytes written, or -1 with errno. Tests replace this type to emulate kernels of any
/// size.
struct ask_kernel {
  long operator()(std::size_t bytes, unsigned long* mask) const noexcept {
    return ::syscall(SYS_sched_getaffinity, 0, bytes, mask);
  }
};

/// Returns the cores on which the calling thread may run. If the system call fails, returns nothing
/// and sets errno.
template <class Ask = ask_kernel>
[[nodiscard]] std::optional<cpu_list> affinity_of_this_thread(const Ask& ask = {}) {
  // The kernel rejects a mask that is shorter than its own (EINVAL), and does not report the
  // length.
  for (std::size_t cores = 1024; cores <= cpu_list::limit; cores *= 2) {
    cpu_bits mask{cores};
    if (ask(mask.bytes(), mask.data()) >= 0) return mask.list();
    if (errno != EINVAL) return std::nullopt;
  }
  return std::nullopt;
}

/// Binds the calling thread to `cores`. Returns 0 or an errno value.
[[nodiscard]] inline int bind_this_thread(const cpu_bits& cores) noexcept {
  return ::syscall(SYS_sched_setaffinity, 0, cores.bytes(), cores.data()) == 0 ? 0 : errno;
}

/// Throttling of threads in a container that has used up its CPU quota.
struct cpu_throttling {
  std::uint64_t count = 0;           ///< number of periods with throttling
  std::chrono::nanoseconds time{0};  ///< total throttled time of all threads
};

/// Returns the throttling of this process's cgroups (v1 and v2) and all their ancestors since the
/// cgroups were created, or zero without a quota. Reads files. `root` is for tests.
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

/// Returns the time in which thread `thread` of this process was runnable but had no core, or 0 if
/// the kernel does not report it. Reads a file but does not allocate. `root` is for tests.
[[nodiscard]] inline std::chrono::nanoseconds run_queue_time_of(std::uint64_t thread,
                                                                const char* root = "") noexcept {
  std::array<char, 512> text{};
  std::snprintf(text.data(), text.size(), "%s/proc/self/task/%" PRIu64 "/schedstat", root, thread);
  const int file = ::open(text.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const auto length = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  std::uint64_t running = 0;
  std::uint64_t waiting = 0;
  text[length > 0 ? static_cast<std::size_t>(length) : 0] = '\0';
  if (std::sscanf(text.data(), "%" SCNu64 " %" SCNu64, &running, &waiting) != 2) return {};
  return std::chrono::nanoseconds{waiting};
}

/// Measures the time between `start` and `stop` in which a thread is runnable but has no core. One
/// thread at a time starts and stops the watch. Any thread may read it.
class run_queue_watch {
 public:
  /// Starts measuring the calling thread. Has no effect if the watch is already running.
  void start() noexcept {
    if (state_.thread != 0) return;
    state_.thread = static_cast<std::uint64_t>(::syscall(SYS_gettid));
    state_.base = run_queue_time_of(state_.thread);
    published_.store(state_);
  }
  /// Stops measuring.
  void stop() noexcept {
    state_.total = total_of(state_);
    state_.thread = 0;
    published_.store(state_);
  }
  /// Returns the measured time so far, including a measurement in progress. Any thread may call
  /// this.
  [[nodiscard]] std::chrono::nanoseconds read() const noexcept {
    return total_of(published_.load());
  }

 private:
  struct state {
    std::uint64_t thread;            // the measured thread, or 0
    std::chrono::nanoseconds base;   // run-queue time of the thread at `start`
    std::chrono::nanoseconds total;  // total of earlier measurements
  };
  [[nodiscard]] static std::chrono::nanoseconds total_of(const state& read) noexcept {
    if (read.thread == 0) return read.total;
    // The file no longer exists after the thread has ended.
    return read.total +
           (std::max)(run_queue_time_of(read.thread) - read.base, std::chrono::nanoseconds{0});
  }

  state state_{};  // accessed only by the thread that starts and stops the watch
  shared_value<state> published_;
};

/// Resource usage of a thread, as counted by the kernel. The thread itself samples the counters
/// with a system call. Any thread may read the last sample.
class thread_usage {
 public:
  /// Samples the counters of the calling thread, unless the last sample is less than `apart` ticks
  /// before `now`. Only the measured thread may call this. May change errno.
  void look(std::uint64_t now, std::uint64_t apart) noexcept {
    if (now - sampled_ < apart) [[likely]]
      return;
    sampled_ = now;
    if (thread_.value() == 0) thread_.set(static_cast<std::uint64_t>(::syscall(SYS_gettid)));
    struct ::rusage used {};
    if (::getrusage(RUSAGE_THREAD, &used) != 0) return;
    processor_.set(nanoseconds_of(used.ru_utime) + nanoseconds_of(used.ru_stime));
    minor_faults_.set(static_cast<std::uint64_t>(used.ru_minflt));
    major_faults_.set(static_cast<std::uint64_t>(used.ru_majflt));
  }

  /// Returns the CPU time in user mode and in the kernel.
  [[nodiscard]] std::chrono::nanoseconds processor() const noexcept {
    return std::chrono::nanoseconds{processor_.value()};
  }
  /// Returns the time in which the thread was runnable but had no core, up to now. Reads a file.
  [[nodiscard]] std::chrono::nanoseconds run_queue() const {
    return thread_.value() == 0 ? std::chrono::nanoseconds{0} : run_queue_time_of(thread_.value());
  }
  /// Returns the number of page faults without disk access.
  [[nodiscard]] std::uint64_t minor_faults() const noexcept { return minor_faults_.value(); }
  /// Returns the number of page faults that waited for a disk.
  [[nodiscard]] std::uint64_t major_faults() const noexcept { return major_faults_.value(); }

 private:
  static std::uint64_t nanoseconds_of(const struct ::timeval& time) noexcept {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(time.tv_usec) * 1'000;
  }

  std::uint64_t sampled_ = 0;  // time of the last sample in ticks
  tally thread_;               // thread id, or 0 before the first sample
  tally processor_;            // nanoseconds
  tally minor_faults_;
  tally major_faults_;
};

/// Returns the number of cores on which the calling thread may run. If the system does not report
/// the affinity, returns the number of cores of the machine.
[[nodiscard]] inline std::size_t cpus_of_affinity() {
  const auto mask = affinity_of_this_thread();
  if (mask && !mask->empty()) return mask->size();
  return (std::max)(1U, std::thread::hardware_concurrency());
}

/// Returns the number of whole cores permitted by the quotas of this process's cgroups (v1 and v2)
/// and their ancestors, at least 1. Returns the maximum value without a quota. Reads files. `root`
/// is for tests.
[[nodiscard]] inline std::size_t cpus_of_quota(const std::string& root = "") {
  std::uint64_t cpus = (std::numeric_limits<std::size_t>::max)();
  const auto limit = [&](std::uint64_t quota, std::uint64_t period) {
    if (period != 0) cpus = (std::min)(cpus, std::max<std::uint64_t>(1, quota / period));
  };
  for (const auto& [group, is_unified] : cgroups_of_process(root, "cpu")) {
    if (is_unified) {  // "max 100000", or two numbers, in microseconds
      std::uint64_t numbers[2] = {};
      const std::string text = text_of_file(group + "cpu.max");
      if (read_numbers(text.c_str(), numbers) == 2) limit(numbers[0], numbers[1]);
    } else {  // -1 means no quota
      const auto quota =
          static_cast<std::int64_t>(number_in(group + "cpu.cfs_quota_us").value_or(0));
      const auto period = number_in(group + "cpu.cfs_period_us");
      if (quota > 0 && period) limit(static_cast<std::uint64_t>(quota), *period);
    }
  }
  return static_cast<std::size_t>(cpus);
}

/// Returns the number of cores that this process may use concurrently, at least 1.
[[nodiscard]] inline std::size_t usable_cpus() {
  return (std::min)(cpus_of_affinity(), cpus_of_quota());
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
