// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A `batcher` takes no request any more: `close` was called, or its stop was requested.
class [[gnu::visibility("default")]] batcher_closed : public error {
 public:
  using error::error;
};

/// Why requests that a `batcher` had taken are not served.
enum class unserved {
  abandoned,       ///< `batcher::abandon` was called, or the batcher destroyed, before their turn
  not_handed_out,  ///< the feed that took their batch ended before, or could not copy it
};

/// The options of a `batcher`. Bad values throw `option_error` at construction.
struct batcher_options {
  /// Requests in a batch at most. Triton's `max_batch_size`, TorchServe's `batch_size`.
  std::size_t most = 32;

  /// How long the first request of a batch waits for others, at most: a batch goes out when it is
  /// full, or when a thread asks for one after this time. 0: each call gets what there is.
  /// Triton's `max_queue_delay_microseconds`, TorchServe's `max_batch_delay`.
  std::chrono::nanoseconds fill = std::chrono::milliseconds{2};

  /// How long before the end of `fill` a thread that waits for a batch is awake and looks at the
  /// clock. A sleep ends late: by 50 us where the core is awake, now and then by a millisecond
  /// where it sleeps and belongs to a virtual machine. 0: the thread sleeps to the end. One thread
  /// at a time spins, and so much processor time goes into each batch that is not full in time.
  std::chrono::nanoseconds spin{0};

  /// Slots for batches in host memory: one that fills up, those that are ready, and those that are
  /// copied from. While none is free, `submit` waits.
  std::size_t depth = 4;

  /// Gets the tags of requests that were taken and are not served, on the thread that finds out:
  /// one that abandons, one whose write ends after that, or the feed's. It must not throw.
  std::function<void(std::span<const std::uint64_t>, unserved)> on_unserved = {};

  /// Closes the batcher once its stop is requested: what was submitted by then is still served.
  std::stop_token stop = {};
};

/// What a `batcher` has done so far, in requests. Whenever nobody is inside a call,
/// `accepted = handed_out + returned + waiting`.
struct batcher_stats {
  /// Written, and so to be served or given back.
  std::uint64_t accepted = 0;
  std::uint64_t failed = 0;      ///< writes that threw: their submitters know
  std::uint64_t handed_out = 0;  ///< in batches that consumers got
  std::uint64_t returned = 0;    ///< not served, see `unserved`
  std::uint64_t waiting = 0;     ///< in the batches that fill up or are ready
  std::uint64_t batches = 0;     ///< handed out, those included that a feed took and gave back
};

namespace detail {

inline const batcher_options& checked_batcher(const batcher_options& options) {
  const auto require_in = [](const char* option, std::size_t value, std::size_t most) {
    if (value >= 1 && value <= most) return;
    throw option_error(option, std::to_string(value) + " is not in 1.." + std::to_string(most));
  };
  require_in("most", options.most, std::size_t{1} << 20);
  require_in("depth", options.depth, 1024);
  const auto require_time = [](const char* option, std::chrono::nanoseconds value) {
    if (value.count() >= 0) return;
    throw option_error(option, "must not be below 0, is " + std::to_string(value.count()) + " ns");
  };
  require_time("fill", options.fill);
  require_time("spin", options.spin);
  return options;
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
