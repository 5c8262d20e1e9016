// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/resource.h>
#include <sys/time.h>

#include <chrono>
#include <cstdint>

#include <penstock/core/version.hpp>
#include <penstock/threads/support/tally.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

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
  tally processor_;  // nanoseconds
  tally minor_faults_;
  tally major_faults_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
