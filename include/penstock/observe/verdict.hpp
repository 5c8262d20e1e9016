// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What limits a loop.
enum class loop_limit {
  step,          ///< the loop's body: it never waits
  device,        ///< the device: the body waits for steps or copies that it has queued before
  launches,      ///< the body: the device has too little to do while it prepares the next work
  workers,       ///< reading: more workers would read faster
  storage,       ///< reading, which waits for a disk or a network
  processors,    ///< reading and the body need more processor time than there are cores for
  quota,         ///< the container's quota of processor time
  copy,          ///< the bus
  depth,         ///< the copy of a batch, which does not run under the step of the one before
  slow_samples,  ///< single reads that hold up their batch while workers are idle
  leases,        ///< the program, which holds the batches that it waits for
  mixed,         ///< no part alone: several are about equally slow
  nothing,       ///< no batch came: there is nothing to judge
};

/// The answer to "why is my GPU idle?", see `diagnose`. Shares are of the time of the loop.
struct verdict {
  loop_limit limit = loop_limit::nothing;  ///< what limits most
  double waiting = 0;                      ///< the share in which the loop waited at all
  double for_batches = 0;                  ///< for a batch to be read; of no workers, reading it
  double for_copies = 0;                   ///< for a batch to be copied
  double for_leases = 0;                   ///< for a lease to end
  double throttled = 0;                    ///< in which the container was throttled
  double busy_workers = 0;                 ///< the mean number of workers that read
  double busy_cores = 0;           ///< the mean number of cores that read or run the loop's body
  std::size_t cores = 0;           ///< as many as the process may use
  std::size_t workers = 0;         ///< as many as there are
  std::size_t wanted_workers = 0;  ///< as many as are expected to be enough
  /// The bytes of `loader_options::read_ahead` that are worth a try where reads wait for a disk or
  /// a network; 0: none, or those it has. What they gain is not known, and not in `gain`.
  std::uint64_t wanted_read_ahead = 0;
  /// A batch's time on the device alone, see `transfer::replay`, in seconds; 0: not known.
  double floor = 0;
  double above_floor = 0;  ///< 0.32: a batch takes 1.32 times the floor
  /// What the device's own clock says, see `transfer_options::time_device`; 0: not known. Of a
  /// batch, in seconds.
  double device_copy = 0;
  double device_step = 0;  ///< the work of the body
  double device_idle = 0;  ///< in which the stream of the step had nothing to do
  double gain = 0;         ///< expected of the remedy: 0.44 is 44 % more batches in the same time
  std::string sentence;    ///< what limits, with figures
  std::string remedy;      ///< what to change, in terms of the options

  /// The sentence and the remedy.
  [[nodiscard]] std::string str() const { return sentence + ". " + remedy; }
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
