// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "results.hpp"
#include "train.hpp"

namespace mlp {

/// Measurements of the cost of a batch in each stage in microseconds, each alone on one thread.
struct stage_samples {
  std::vector<double> load;
  std::vector<double> copy;
  std::vector<double> compute;

  [[nodiscard]] stage_costs medians() const {
    return {median(load), median(copy), median(compute)};
  }
};

/// Adds several measurements, each the mean over tens of full batches. `load` is the time to read a
/// shuffled batch, `copy` the time to copy it from pinned memory, and `compute` the time of a
/// training step on resident data. Copies and steps follow each other without a wait.
template <class Data, class Backend>
void measure_stages(stage_samples& samples, const Data& data,
                    const typename Backend::device_type& device, trainer<Backend>& trained,
                    const options& chosen) {
  namespace ps = penstock;
  using record = typename Data::record_type;
  constexpr std::size_t rounds = 8;
  constexpr std::size_t batches = 32;

  const ps::batch_layout<record> layout{ps::extents_of(data), chosen.batch};
  const std::size_t count = std::min<std::size_t>(chosen.batch, data.size());
  const auto stream = trained.stream();
  const auto order = order_of(chosen).order(data.size(), 0);
  using device_type = typename Backend::device_type;
  using pinned = ps::pinned_allocator<std::byte, device_type>;
  std::vector<std::byte, pinned> host{layout.bytes(), pinned{device}};
  std::vector<std::uint64_t> indices(count);
  ps::reader reader{data};
  device_array<std::byte, device_type> slot{device, layout.bytes()};
  const ps::const_batch_view<record> batch{slot.data(), layout, 0, count};

  std::uint64_t first = 0;
  const auto load = [&] {
    order.fill(first, indices);
    reader.read(indices, {host.data(), layout, 0, count}, {.seed = chosen.seed});
    first += count;
    if (first + count > data.size()) first = 0;
  };
  const auto copy = [&] {
    device.copy_async(slot.data(), host.data(), layout.used_bytes(count), stream);
  };
  const auto compute = [&] { step_on(trained, 0, batch); };
  const auto each = [&](const auto& work) {
    return seconds_of([&] {
             for (std::size_t i = 0; i < batches; ++i) work();
             device.synchronize(stream);
           }) *
           1e6 / static_cast<double>(batches);
  };
  trained.restart([&] {
    load();
    copy();
    rehearse_on(trained, 0, batch);
  });
  for (std::size_t round = 0; round < rounds; ++round) {
    samples.load.push_back(each(load));
    samples.copy.push_back(each(copy));
    samples.compute.push_back(each(compute));
  }
}

}  // namespace mlp
