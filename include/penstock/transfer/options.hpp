// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>

#include <penstock/core/error.hpp>
#include <penstock/load/options.hpp>
#include <penstock/observe/trace_recorder.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Whether the device works on a batch in its host slot.
enum class zero_copy_use {
  by_device,  ///< where the host's memory is as near as the device's own (`host_access::as_own`)
  never,      ///< each batch is copied
  always,     ///< wherever the device can; `option_error` where it can't
};

/// `transfer_options::observe`: what is measured and recorded about the batches.
struct transfer_observe_options {
  /// Whether the device times the copy, the transform and the step of a batch now and then, of one
  /// in 32 at most, see `device_stats`: seven events more on its streams. What fails in it ends it,
  /// and not the loop. For devices that can tell (`times_work`): the CPU device and CUDA.
  bool time_device = false;

  /// Records what each batch goes through, see `trace_recorder`; that of the source's options makes
  /// one picture of both. Null: nothing is recorded. It is the program's, and should outlive the
  /// loop.
  trace_recorder* trace = nullptr;
};

/// `transfer_options::tuning`: how the copies are queued. No batch depends on it.
struct transfer_tuning_options {
  /// The most slots that `depth = automatic` takes, at least 2. `automatic`: 8.
  std::size_t most_depth = automatic;

  /// How many batches at most share the calls that order them, at least 1: the copies of so many
  /// are queued at once, where they are ready. No more than (`depth` + 1) / 2. `automatic`: small
  /// batches, as many as the device says, 16 at most. It is 1 where the loop's body is the step,
  /// and for sources that share no mark (`batch_source`). See docs/gpu.md.
  std::size_t group = automatic;

  /// Whether a device slot is the host slot of its batch, which is not copied then, for a source
  /// that is a loader. The host slot is refilled after the work on the batch, so the `prefetch` + 1
  /// host slots bound what is read and in use together, and `depth`; no device memory is taken, and
  /// a batch costs its stream one record. A transform reads the host slot, and fills a device slot.
  /// Kernels, and what else is given a batch's addresses, have to accept memory of the host.
  zero_copy_use zero_copy = zero_copy_use::by_device;
};

/// The options of a `transfer`. Bad values throw `option_error` at construction, which names the
/// option by its path: `depth`, `tuning.group`.
struct transfer_options {
  /// Device slots: the batch that the consumer works on, and those whose copies run ahead under it.
  /// At least 1, which overlaps nothing. `automatic`: 2 at first; one more whenever leases hold all
  /// of them, and as many as bring the batches sooner, at most `tuning.most_depth`. A new slot
  /// takes device memory while the loop runs, or is done without where there is none.
  std::size_t depth = 3;

  /// What happens when the consumer asks for a batch while it, or threads that it has moved leases
  /// to, hold every device slot. Nothing is taken from the source before there is a slot for it.
  /// `wait` is for leases that end on other threads; a stop request of the source's ends the wait.
  held_action when_held = held_action::fail;

  /// What is measured and recorded about the batches.
  transfer_observe_options observe = {};
  /// How the copies are queued.
  transfer_tuning_options tuning = {};
};

namespace detail {

/// With how many device slots a feed begins, and how many it may take.
struct depth_range {
  std::size_t first = 0;
  std::size_t most = 0;
};

/// Those that the options ask for. Throws `option_error`.
inline depth_range checked_depth(const transfer_options& options) {
  constexpr std::size_t most = 1024;
  const auto refuse = [](const char* name, std::size_t value, int least) {
    refuse_option(name, {value, " is not in ", least, "..", most});
  };
  if (options.depth == automatic) {
    if (options.tuning.most_depth == automatic) return {2, 8};
    if (options.tuning.most_depth < 2 || options.tuning.most_depth > most) {
      refuse("tuning.most_depth", options.tuning.most_depth, 2);
    }
    return {2, options.tuning.most_depth};
  }
  if (options.depth == 0 || options.depth > most) refuse("depth", options.depth, 1);
  if (options.tuning.most_depth != automatic) {
    refuse_option("tuning.most_depth",
                  {"is the cap of depth = automatic, but depth is ", options.depth});
  }
  return {options.depth, options.depth};
}

/// How many batches of `batch_bytes` share calls at most, as the options say it and, where they
/// don't, the device. Throws `option_error`.
template <class Device>
[[nodiscard]] std::size_t checked_group(const transfer_options& options, std::size_t batch_bytes) {
  constexpr std::size_t most = 16;
  if (options.tuning.group != automatic) {
    if (options.tuning.group == 0 || options.tuning.group > most) {
      refuse_option("tuning.group", {options.tuning.group, " is not in 1..", most});
    }
    return options.tuning.group;
  }
  if constexpr (requires { Device::grouped_bytes; }) {
    return (std::max)(std::size_t{1}, (std::min)(most, Device::grouped_bytes / batch_bytes));
  } else {
    return 1;
  }
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
