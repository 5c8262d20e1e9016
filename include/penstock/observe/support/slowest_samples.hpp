// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <penstock/core/version.hpp>
#include <penstock/threads/support/shared_value.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A sample by its index in the loader's dataset, and how long reading it took. Of 0 ticks: none.
struct timed_sample {
  std::uint64_t index = 0;
  std::uint64_t ticks = 0;
};

/// The ten samples that took longest, each once, the longest first.
struct slowest_list {
  std::array<timed_sample, 10> samples{};

  /// Takes a sample in, if it is among the ten; whether it was.
  bool offer(const timed_sample& sample) noexcept {
    if (sample.ticks <= samples.back().ticks) return false;
    auto place = std::find_if(samples.begin(), samples.end(), [&](const timed_sample& one) {
      return one.ticks != 0 && one.index == sample.index;
    });
    if (place == samples.end()) --place;
    if (place->ticks >= sample.ticks) return false;
    *place = sample;
    for (; place != samples.begin() && (place - 1)->ticks < place->ticks; --place)
      std::swap(*place, *(place - 1));
    return true;
  }
};

/// The slowest samples of a reader: one thread offers them, any thread reads them.
class slowest_samples {
 public:
  /// The reading thread.
  void offer(const timed_sample& sample) noexcept {
    if (kept_.offer(sample)) shown_.store(kept_);
  }
  /// Offers them to `all`. From any thread.
  void add_to(slowest_list& all) const noexcept {
    const slowest_list seen = shown_.load();
    for (const timed_sample& sample : seen.samples) all.offer(sample);
  }

 private:
  slowest_list kept_;  // of the reading thread
  shared_value<slowest_list> shown_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
