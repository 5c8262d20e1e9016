// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include <penstock/observe/trace_recorder.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The number that links the events of a batch; no other batch has it.
[[nodiscard]] inline std::uint64_t flow_of(const trace_track& track,
                                           const batch_position& batch) noexcept {
  // Epochs and batches of 28 bits, and loaders of 8, are told apart without doubt.
  return ((track.flow << 56) ^ (batch.epoch << 28) ^ batch.batch) + 1;
}

/// Goes through a track as viewers want it: slices begin in the order of time, and each one ends
/// before the one that it began in. `begins(event)` and `ends(time)` are called in that order.
template <class Begins, class Ends>
void walk_nested(const trace_track& track, Begins begins, Ends ends) {
  std::vector<const trace_event*> order;
  order.reserve(track.events.size());
  for (const trace_event& event : track.events) order.push_back(&event);
  std::stable_sort(order.begin(), order.end(), [](const trace_event* a, const trace_event* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end > b->end;
  });
  std::vector<std::chrono::nanoseconds> open;
  const auto end_until = [&](std::chrono::nanoseconds now) {
    while (!open.empty() && open.back() <= now) {
      ends(open.back());
      open.pop_back();
    }
  };
  for (const trace_event* event : order) {
    end_until(event->begin);
    begins(*event);
    open.push_back(open.empty() ? event->end : (std::min)(event->end, open.back()));
  }
  end_until((std::chrono::nanoseconds::max)());
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
