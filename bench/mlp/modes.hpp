// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>

#include <penstock/penstock.hpp>

#include "options.hpp"
#include "resident.hpp"
#include "train.hpp"
#include "trainer.hpp"

/// The other loops, that the two of train.hpp are held against.
namespace mlp {

/// Workers read into ordinary memory; this thread copies a batch, waits for the copy, computes.
template <class Data, class Backend>
double train_with_workers(const Data& data, const typename Backend::device_type& device,
                          trainer<Backend>& trained, const options& chosen, observer& progress) {
  namespace ps = penstock;
  using record = typename Data::record_type;
  auto how = loader_options_of(chosen);
  how.pinned = false;
  ps::loader loader{data, order_of(chosen), device, how};
  const auto& layout = loader.layout();
  const auto stream = trained.stream();
  device_array<std::byte, typename Backend::device_type> slot{device, layout.bytes()};
  const auto copied = [&](const auto& host) {
    device.copy_async(slot.data(), host.data(), layout.used_bytes(host.size()), stream);
    device.synchronize(stream);
    return ps::const_batch_view<record>{slot.data(), layout, 0, host.size()};
  };
  trained.restart([&] {
    for (auto& host : loader.epoch(0)) {
      rehearse_on(trained, 0, copied(host));
      break;
    }
  });
  return seconds_of(progress, [&] {
    for (auto& host : loader.epochs(0, chosen.epochs)) {
      step_on(trained, 0, copied(host));
      progress.advance();
    }
    device.synchronize(stream);
  });
}

/// Everything is on the device already: the floor.
template <class Backend, class Pixel>
double train_resident(const resident_set<Backend, Pixel>& set, std::size_t samples,
                      const typename Backend::device_type& device, trainer<Backend>& trained,
                      const options& chosen, observer& progress) {
  trained.restart([&] {
    trained.rehearse(0, set.images(), set.labels(),
                     [&](std::size_t count) { return set.gathering(count); });
  });
  return seconds_of(progress, [&] {
    for (std::size_t epoch = 0; epoch < chosen.epochs; ++epoch) {
      for (std::size_t first = 0; first < samples; first += chosen.batch) {
        const std::size_t count = std::min(chosen.batch, samples - first);
        trained.step(0, set.images(), set.labels(), count, set.gathering(count));
        progress.advance();
      }
    }
    device.synchronize(trained.stream());
  });
}

/// As many steps on the batch that `train_resident` has gathered last, so without its two kernels
/// that gather: no feed is faster. What is learnt by it means nothing.
template <class Backend, class Pixel>
double repeat_one_batch(const resident_set<Backend, Pixel>& set, std::size_t samples,
                        const typename Backend::device_type& device, trainer<Backend>& trained,
                        const options& chosen, observer& progress) {
  trained.restart([&] { trained.rehearse(0, set.images(), set.labels()); });
  return seconds_of(progress, [&] {
    for (std::size_t epoch = 0; epoch < chosen.epochs; ++epoch) {
      for (std::size_t first = 0; first < samples; first += chosen.batch) {
        trained.step(0, set.images(), set.labels(), std::min(chosen.batch, samples - first));
        progress.advance();
      }
    }
    device.synchronize(trained.stream());
  });
}

}  // namespace mlp
