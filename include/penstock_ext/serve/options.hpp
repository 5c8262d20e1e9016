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

/// A `batcher` accepts no further requests: `close` was called, or its stop was requested.
class [[gnu::visibility("default")]] batcher_closed : public error {
 public:
  using error::error;
};

/// Why accepted requests of a `batcher` are not served.
enum class unserved {
  abandoned,       ///< `batcher::abandon` was called, or the batcher destroyed, before their turn
  not_handed_out,  ///< the feed that took their batch ended first, or could not copy it
};

/// The options of a `batcher`. Bad values throw `option_error` at construction.
struct batcher_options {
  /// The maximum number of requests in a batch. Triton's `max_batch_size`, TorchServe's
  /// `batch_size`.
  std::size_t most = 32;

  /// How long the first request of a batch waits for others at most: a batch is handed out when it
  /// is full, or when a thread asks for one after this time. 0: each call gets what is there.
  /// Triton's `max_queue_delay_microseconds`, TorchServe's `max_batch_delay`.
  std::chrono::nanoseconds fill = std::chrono::milliseconds{2};

  /// How long before the end of `fill` a waiting thread starts to spin. Sleeping threads wake up
  /// late: by 50 us if the core is awake, occasionally by a millisecond if it sleeps and is
  /// virtual. 0: no spinning. One thread at a time spins; this costs as much processor time for
  /// each batch that is not full in time.
  std::chrono::nanoseconds spin{0};

  /// Slots for batches in host memory: one being filled, those that are ready, and those being
  /// copied. `submit` waits while none is free.
  std::size_t depth = 4;

  /// Called with the tags of accepted requests that are not served, on the thread that detects it:
  /// one that abandons, one whose write ends after that, or the feed's. Must not throw.
  std::function<void(std::span<const std::uint64_t>, unserved)> on_unserved = {};

  /// Closes the batcher when a stop is requested; requests submitted by then are still served.
  std::stop_token stop = {};
};

/// Statistics of a `batcher`, in requests. While no call is in progress, `accepted = handed_out +
/// returned + waiting`.
struct batcher_stats {
  /// Written, so they will be served or returned.
  std::uint64_t accepted = 0;
  std::uint64_t failed = 0;      ///< writes that threw, as their submitters know
  std::uint64_t handed_out = 0;  ///< in batches handed to consumers
  std::uint64_t returned = 0;    ///< not served, see `unserved`
  std::uint64_t waiting = 0;     ///< in batches that are being filled or ready
  std::uint64_t batches = 0;     ///< handed out, including those that a feed returned
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
