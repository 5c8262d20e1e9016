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

/// Selects whether the device works on a batch in its host slot.
enum class zero_copy_use {
  by_device,  ///< if the device reads host memory as fast as its own (`host_access::as_own`)
  never,      ///< each batch is copied
  always,     ///< always; `option_error` if the device cannot
};

/// The options in `transfer_options::instrumentation`: the information that is recorded about
/// batches.
struct transfer_instrumentation_options {
  /// Makes the device time copy, transform and step, for at most one batch in 32, see
  /// `device_stats`. Uses seven events on the device's streams. An error of the measurement ends
  /// the measurement, but not the loop. Requires a device that can time its work (`times_work`):
  /// the CPU device and CUDA.
  bool time_device = false;

  /// Records the stages of each batch, see `trace_recorder`. Set the same recorder in the source's
  /// options to see both in one trace. If null, nothing is recorded. The program owns the recorder,
  /// which should outlive the loop.
  trace_target trace = nullptr;
};

/// The options in `transfer_options::tuning`: the way in which batches reach the device. Tuning has
/// no effect on the contents or order of batches.
struct transfer_tuning_options {
  /// Selects whether a device slot is the host slot of its batch, in which case the batch is not
  /// copied. Requires a source whose batches may outlive it: a loader, an intake or a batcher. The
  /// host slot is refilled after the work on the batch. So the host slots of the source limit
  /// `depth`, and the number of batches that are written or in use. A loader has `prefetch` + 1
  /// host slots. The feed allocates no device memory, and a batch costs its stream one record. A
  /// transform reads the host slot and fills a device slot. Kernels and all other users of a
  /// batch's addresses must accept host memory.
  zero_copy_use zero_copy = zero_copy_use::by_device;
};

/// The options of a `transfer`. Invalid values throw `option_error` at construction. The error
/// names the option by its path: `depth`, `tuning.zero_copy`.
struct transfer_options {
  /// Number of device slots: the batch that the consumer works on, and the batches that are copied
  /// ahead. At least 1, in which case nothing overlaps. `automatic` starts with 2 slots and adds a
  /// slot whenever leases hold all slots. It also adds slots while they make batches arrive sooner,
  /// up to 8. A new slot takes device memory while the loop runs. If the device has no memory, the
  /// feed continues without it.
  tunable_count<detail::depth_tuning> depth = 3;

  /// Selects what happens if the consumer requests a batch while leases hold every device slot. The
  /// consumer holds the leases, or has moved them to other threads. The feed takes a batch from the
  /// source only if it has a slot for the batch. `wait` is for leases that end on other threads. A
  /// stop request of the source ends the wait.
  exhausted_action on_slots_exhausted = exhausted_action::fail;

  /// Hands out only the newest batch, for a source of live data such as a camera. `++` waits until
  /// all work that is queued on the consumer's stream has ended. So a loop that only launches work
  /// never queues a step behind another step, and the device idles while the host launches the next
  /// step. After the wait, `++` takes all batches that are ready, copies the newest batch, and
  /// drops the others. If a newer batch is ready, a batch that was copied ahead is dropped too.
  /// `skipped()` of the batch counts the batches that were dropped immediately before it. The
  /// source gets each dropped batch through `take_back`. Throws `option_error` if the source is a
  /// loader, because its batches do not become outdated.
  bool newest = false;

  /// Keeps the host slot of each batch until its device lease ends: `batch.host()` returns a view
  /// of the host slot, which the host can read while the device works. Requires a source whose
  /// batches may outlive it: a loader, an intake or a batcher. The depth is at most the number of
  /// host slots of the source, so that the feed never waits for a host slot that it keeps itself. A
  /// loader has `prefetch` + 1 host slots: raise `prefetch` by `depth` to read ahead as far as
  /// without the option.
  bool keep_host = false;

  /// The information that is recorded about batches.
  transfer_instrumentation_options instrumentation = {};
  /// The way in which batches reach the device.
  transfer_tuning_options tuning = {};
};

namespace detail {

/// The maximum number of device slots with `depth = automatic`.
inline constexpr std::size_t max_automatic_depth = 8;
/// The maximum number of batches that share one set of synchronization calls.
inline constexpr std::size_t max_in_group = 16;

/// The number of device slots at the start of a feed, and the maximum number.
struct depth_range {
  std::size_t first = 0;
  std::size_t max = 0;
};

/// Returns the range that the options specify. An automatic depth may have a lower maximum
/// (`tunable_count::up_to`). Throws `option_error`.
inline depth_range checked_depth(const transfer_options& options) {
  constexpr std::size_t max = 1024;
  const std::size_t depth = options.depth.value();
  if (options.depth.is_automatic()) return {2, (std::min)(depth, max_automatic_depth)};
  if (depth == 0 || depth > max) {
    refuse_option("depth", {options.depth.written(), " is not in 1..", max});
  }
  return {depth, depth};
}

/// Returns the maximum number of batches of `batch_bytes` bytes that share calls on `Device`.
template <class Device>
[[nodiscard]] std::size_t preferred_group(std::size_t batch_bytes) {
  if constexpr (requires { Device::grouped_bytes; }) {
    return (std::max)(std::size_t{1},
                      (std::min)(max_in_group, Device::grouped_bytes / batch_bytes));
  } else {
    return 1;
  }
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
