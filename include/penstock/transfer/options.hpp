// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include <penstock/core/error.hpp>
#include <penstock/load/options.hpp>
#include <penstock/observe/trace_target.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

struct depth_tuning;

}  // namespace detail

/// Specifies if the device reads each batch directly from the host slot that holds it, instead of
/// from a copy in device memory.
enum class zero_copy_use {
  by_device,  ///< if the device accesses host memory as fast as its own (`host_access::as_own`)
  never,      ///< each batch is copied
  always,     ///< always; throws `option_error` if the device does not support it
};

/// The options in `transfer_options::instrumentation`, which specify the information recorded about
/// batches.
struct transfer_instrumentation_options {
  /// Makes the device time the copy, transform and step of at most one batch in 32 (see
  /// `device_stats`). Uses seven events on the device's streams. An error ends the measurement, but
  /// not the loop. Requires a device that can time its work (`times_work`), such as the CPU device
  /// and CUDA.
  bool time_device = false;

  /// The recorder for the stages of each batch (see `trace_recorder`). Set the same recorder in the
  /// source options to see both in one trace. Null records nothing. The program owns the recorder,
  /// which should outlive the loop.
  trace_target trace = nullptr;
};

/// The options in `transfer_options::tuning`, which specify how batches are transferred to the
/// device. Tuning has no effect on the contents or order of batches.
struct transfer_tuning_options {
  /// Specifies whether a device slot is the host slot of its batch, in which case the batch is not
  /// copied. Requires a source whose batches may outlive it: a loader, an intake or a batcher. The
  /// host slot is refilled after the work on the batch, so the number of host slots limits `depth`
  /// and the number of batches that are written or in use. A loader has `prefetch` + 1 host slots.
  /// The feed does not allocate device memory, and a batch costs its stream one event record. A
  /// transform reads the host slot and fills a device slot. Kernels and all other users of batch
  /// addresses must accept host memory.
  zero_copy_use zero_copy = zero_copy_use::by_device;

  /// Maximum time for which the consumer thread polls a copy that is not complete when its batch is
  /// handed out. If the copy completes in this time, the consumer's stream does not wait for it.
  /// Otherwise, the stream waits. If 0, the thread checks the copy once. A few microseconds pay off
  /// only for steps of some tens of microseconds that begin with a CUDA graph, because a graph that
  /// follows a stream wait starts late. Not negative. Ignored if batches are not copied.
  std::chrono::nanoseconds spin{0};
};

/// The options of a `transfer`. Invalid values throw `option_error` at construction. The error
/// identifies the option by its path, such as `depth` or `tuning.zero_copy`.
struct transfer_options {
  /// Number of device slots, which hold the current batch of the consumer and the batches copied
  /// ahead. At least 1, in which case nothing overlaps. `automatic` starts with 2 slots and adds a
  /// slot whenever leases hold all slots. `automatic` also adds slots, up to a total of 8, while
  /// they make batches arrive sooner. A new slot allocates device memory while the loop runs. If
  /// the device is out of memory, the feed continues without the new slot.
  tunable_count<detail::depth_tuning> depth = 3;

  /// The action if the consumer requests a batch while leases, on any thread, hold every device
  /// slot. The feed takes a batch from the source only if it has a slot for the batch. `wait` is
  /// for leases that end on other threads. A stop request of the source ends the wait.
  exhausted_action on_slots_exhausted = exhausted_action::fail;

  /// Delivers only the newest batch, for a source of live data such as a camera. `++` waits until
  /// all work queued on the consumer stream has ended. Therefore a loop that only launches work
  /// never queues a step behind another step, and the device idles while the host launches the next
  /// step. After the wait, `++` takes all batches that are ready, copies the newest batch, and
  /// drops the others. If a newer batch is ready, a batch that was copied ahead is also dropped.
  /// `skipped()` of a batch returns the number of batches dropped immediately before it. Dropped
  /// batches are returned to the source through `take_back`. Throws `option_error` if the source is
  /// a loader, because its batches do not become outdated.
  bool newest = false;

  /// Retains the host slot of each batch until its device lease ends, so that the host can read the
  /// batch through `batch.host()` while the device works. Requires a source whose batches may
  /// outlive it: a loader, an intake or a batcher. The depth is limited to the number of host slots
  /// in the source, so that the feed never waits for a host slot that it retains. A loader has
  /// `prefetch` + 1 host slots. To read ahead as far as without this option, increase `prefetch` by
  /// `depth`.
  bool keep_host = false;

  /// Options that specify which information about batches is recorded.
  transfer_instrumentation_options instrumentation = {};
  /// The way in which batches are transferred to the device.
  transfer_tuning_options tuning = {};
};

namespace detail {

/// The maximum number of device slots with `depth = automatic`.
inline constexpr std::size_t max_automatic_depth = 8;
/// The maximum number of batches that share one set of synchronization calls.
inline constexpr std::size_t max_in_group = 16;

/// The initial and the maximum number of device slots in a feed.
struct depth_range {
  std::size_t first = 0;
  std::size_t max = 0;
};

/// Returns the range specified by the options. An automatic depth may have a lower maximum
/// (`tunable_count::up_to`). Throws `option_error` if the depth is out of range.
inline depth_range checked_depth(const transfer_options& options) {
  constexpr std::size_t max = 1024;
  const std::size_t depth = options.depth.value();
  if (options.depth.is_automatic()) return {2, (std::min)(depth, max_automatic_depth)};
  if (depth == 0 || depth > max) {
    throw_option_error("depth", {options.depth.written(), " is not in 1..", max});
  }
  return {depth, depth};
}

/// Returns the maximum number of batches of `batch_bytes` bytes that share synchronization calls on
/// `Device`.
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
