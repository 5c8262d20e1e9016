// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>

#include <penstock/core/error.hpp>
#include <penstock/load/options.hpp>
#include <penstock/observe/trace_target.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

struct depth_tuning;

}  // namespace detail

/// Specifies if the device works on a batch in its host slot.
enum class zero_copy_use {
  by_device,  ///< if the device reads host memory as fast as its own (`host_access::as_own`)
  never,      ///< each batch is copied
  always,     ///< always, if the device can; else `option_error`
};

/// `transfer_options::instrumentation`: measurements and records of the batches.
struct transfer_instrumentation_options {
  /// Enables the timing of copy, transform and step by the device, for at most one batch in 32, see
  /// `device_stats`. Takes seven events on the device's streams. An error of the measurement ends
  /// the measurement, but not the loop. Requires a device that can time its work (`times_work`):
  /// the CPU device and CUDA.
  bool time_device = false;

  /// Records the way of each batch, see `trace_recorder`. The same recorder in the source's options
  /// shows both in one trace. Null: nothing is recorded. The program owns the recorder, which
  /// should outlive the loop.
  trace_target trace = nullptr;
};

/// `transfer_options::tuning`: how the copies are queued. Has no effect on the contents or order of
/// batches.
struct transfer_tuning_options {
  /// The maximum number of slots with `depth = automatic`, at least 2. `automatic`: 8.
  count_or_automatic max_depth = automatic;

  /// The maximum number of batches that share the calls that order them, at least 1. The copies of
  /// up to `group` ready batches are queued at once. The number is limited to (`depth` + 1) / 2.
  /// `automatic`: as many small batches as the device prefers, at most 16. The number is 1 if the
  /// loop's body is the step, and for sources that share no mark (`batch_source`). See docs/gpu.md.
  count_or_automatic group = automatic;

  /// Specifies if a device slot is the host slot of its batch, so that the batch is not copied.
  /// Requires a loader as the source. The host slot is refilled after the work on the batch. So the
  /// `prefetch` + 1 host slots bound the batches that are read or in use, and they bound `depth`.
  /// The feed takes no device memory, and a batch costs its stream one record. A transform reads
  /// the host slot and fills a device slot. Kernels and all other users of a batch's addresses must
  /// accept host memory.
  zero_copy_use zero_copy = zero_copy_use::by_device;
};

/// The options of a `transfer`. Invalid values throw `option_error` at construction. The error
/// names the option by its path: `depth`, `tuning.group`.
struct transfer_options {
  /// Number of device slots: the batch that the consumer works on, and the batches that are copied
  /// ahead. At least 1, which overlaps nothing. `automatic` starts with 2 slots and adds one
  /// whenever leases hold all slots. It also adds slots while they make batches arrive sooner, up
  /// to `tuning.max_depth`. A new slot takes device memory while the loop runs. If there is no
  /// memory, the feed continues without it.
  tunable_count<detail::depth_tuning> depth = 3;

  /// Behavior if the consumer requests a batch while leases hold every device slot. The leases
  /// belong to the consumer or to threads that it has moved them to. The feed takes nothing from
  /// the source before there is a slot for it. `wait` is for leases that end on other threads. A
  /// stop request of the source ends the wait.
  exhausted_action on_slots_exhausted = exhausted_action::fail;

  /// Measurements and records of the batches.
  transfer_instrumentation_options instrumentation = {};
  /// Parameters of the copies.
  transfer_tuning_options tuning = {};
};

namespace detail {

/// The number of device slots at the start of a feed, and the maximum number.
struct depth_range {
  std::size_t first = 0;
  std::size_t max = 0;
};

/// Returns the range that the options specify. Throws `option_error`.
inline depth_range checked_depth(const transfer_options& options) {
  constexpr std::size_t max = 1024;
  const auto refuse = [](const char* name, const auto& count, int min) {
    refuse_option(name, {count.written(), " is not in ", min, "..", max});
  };
  const std::size_t depth = options.depth.value();
  if (options.depth.is_automatic()) {
    if (options.tuning.max_depth == automatic) return {2, 8};
    const std::size_t cap = options.tuning.max_depth.value();
    if (cap < 2 || cap > max) refuse("tuning.max_depth", options.tuning.max_depth, 2);
    return {2, cap};
  }
  if (depth == 0 || depth > max) refuse("depth", options.depth, 1);
  if (options.tuning.max_depth != automatic) {
    refuse_option("tuning.max_depth", {"is the limit of depth = automatic, but depth is ", depth});
  }
  return {depth, depth};
}

/// Returns the maximum number of batches of `batch_bytes` that share calls, from the options, or
/// from the device if the option is `automatic`. Throws `option_error`.
template <class Device>
[[nodiscard]] std::size_t checked_group(const transfer_options& options, std::size_t batch_bytes) {
  constexpr std::size_t max = 16;
  if (options.tuning.group != automatic) {
    const std::size_t group = options.tuning.group.value();
    if (group == 0 || group > max) {
      refuse_option("tuning.group", {options.tuning.group.written(), " is not in 1..", max});
    }
    return group;
  }
  if constexpr (requires { Device::grouped_bytes; }) {
    return (std::max)(std::size_t{1}, (std::min)(max, Device::grouped_bytes / batch_bytes));
  } else {
    return 1;
  }
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
