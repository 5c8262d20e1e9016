// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <penstock/device/device.hpp>

#include "collective.hpp"

namespace mlp {

/// Sums of a step's gradients under its backward pass: each layer's on a stream of their own, as
/// soon as that layer's are made. The network's stream waits for all of them at the end alone. A
/// layer is a bucket.
///
///     the stream   | layer 3 | layer 2 | layer 1      |          | update
///     the sums     |         | 3       | 2            | 1        |
///
/// The device and the ranks outlive it. For one thread.
template <class Device, streamed_collective Collective>
class bucketed_sums {
 public:
  using stream_ref = typename Device::stream_ref;

  bucketed_sums(const Device& device, Collective& ranks)
      : device_(device),
        ranks_(ranks),
        stream_(device.make_stream()),
        made_(device.make_event(penstock::event_wait::by_streams)),
        summed_(device.make_event(penstock::event_wait::by_streams)),
        ends_{device.make_event(), device.make_event()} {}

  /// Sums what has just been put on `stream`, the bucket's gradients, over all ranks.
  void add(std::span<float> bucket, stream_ref stream) {
    // A wait binds to the record that the event has at the call: one event is enough for all.
    device_.record(made_, stream);
    device_.wait(stream_, made_);
    ranks_.enqueue_sum(bucket, stream_);
  }
  /// What comes on `stream` after this comes after all sums.
  void join(stream_ref stream) {
    device_.record(summed_, stream_);
    device_.wait(stream, summed_);
  }
  /// A step that ends on `stream`: returns when the one before it is done, so that the host is one
  /// step ahead and no further. Else it would wait for a free slot, for as long as a rank that is
  /// gone does not come.
  void end_step(stream_ref stream) {
    device_.record(ends_[step_ % 2], stream);
    if (step_++ != 0) ranks_.wait(ends_[step_ % 2]);
  }
  /// Returns when the stream is past all sums that it was to wait for.
  void wait(stream_ref stream) { ranks_.wait(stream); }

 private:
  const Device& device_;
  Collective& ranks_;
  typename Device::stream_type stream_;
  typename Device::event_type made_;
  typename Device::event_type summed_;
  std::array<typename Device::event_type, 2> ends_;
  std::size_t step_ = 0;
};

/// In the place of those, for ranks that sum when they are called.
template <class Device, collective Collective>
struct no_buckets {
  no_buckets(const Device&, Collective&) {}
};

}  // namespace mlp
