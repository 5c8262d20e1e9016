// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What a CPU device pretends to be. Zero means: as fast as the machine is. A modelled delay waits
/// and does not burn the core, so overlap can be shown and tested on few cores.
struct cpu_device_options {
  /// The time a copy takes is at least its bytes divided by this.
  double copy_bytes_per_second = 0.0;
  /// The time from a launch or a copy reaching the head of its stream to its start.
  std::chrono::nanoseconds launch_latency{0};
};

namespace detail {

using host_clock = std::chrono::steady_clock;

[[nodiscard]] constexpr bool is_modelled(const cpu_device_options& options) noexcept {
  return options.copy_bytes_per_second > 0.0 || options.launch_latency.count() > 0;
}

/// The begins and ends of one stream's operations, as modelled. An operation begins when it has
/// been queued, the one before has ended, and so has what the stream was made to wait for. A thread
/// that wakes up late does not move these moments: hardware goes on by itself. Of the stream's
/// thread, but for `end_of`.
class stream_time {
 public:
  static constexpr std::size_t remembered = 256;

  /// The earliest moment at which an operation queued at `queued` may begin, its latency before it.
  [[nodiscard]] host_clock::time_point start_of(host_clock::time_point queued) const noexcept {
    return (std::max)(queued, busy_until_);
  }
  /// What follows begins at `moment` or later.
  void busy_until(host_clock::time_point moment) noexcept {
    busy_until_ = (std::max)(busy_until_, moment);
  }
  [[nodiscard]] host_clock::time_point busy_until() const noexcept { return busy_until_; }

  /// The operation at `position` has run, and is told to be complete next.
  void note_end(std::uint64_t position) noexcept {
    ends_[position % remembered].store(busy_until_.time_since_epoch().count(),
                                       std::memory_order_relaxed);
  }
  /// When the operation at `position` ended, which the caller has seen complete; or a later one,
  /// which has ended too, if 256 have run since. On any thread.
  [[nodiscard]] host_clock::time_point end_of(std::uint64_t position) const noexcept {
    return host_clock::time_point{
        host_clock::duration{ends_[position % remembered].load(std::memory_order_relaxed)}};
  }

 private:
  host_clock::time_point busy_until_{};
  // Written before the release by which the operation is told to be complete.
  std::array<std::atomic<host_clock::rep>, remembered> ends_{};
};

/// Runs `work` at `start`, or later where the thread wakes late. Returns the modelled end: `start`
/// and the time of the work, without the lateness.
template <class Work>
host_clock::time_point modelled_run(host_clock::time_point start, Work&& work) {
  std::this_thread::sleep_until(start);
  const auto begin = host_clock::now();
  work();
  return start + (host_clock::now() - begin);
}

/// Copies like memcpy, and takes as long as the modelled bus would. Returns the modelled end.
inline host_clock::time_point modelled_copy(void* to, const void* from, std::size_t bytes,
                                            const cpu_device_options& options,
                                            host_clock::time_point start) {
  const auto own_end =
      modelled_run(start, [to, from, bytes]() noexcept { std::memcpy(to, from, bytes); });
  if (options.copy_bytes_per_second <= 0.0) return own_end;
  const std::chrono::duration<double> span{static_cast<double>(bytes) /
                                           options.copy_bytes_per_second};
  const auto bus_end = start + std::chrono::duration_cast<std::chrono::nanoseconds>(span);
  std::this_thread::sleep_until(bus_end);
  return (std::max)(own_end, bus_end);
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
