// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <penstock/data/reader.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/report/diagnose.hpp>

#include "options.hpp"
#include "resident.hpp"
#include "trainer.hpp"

/// The training loops. Each trains from the initial parameters and returns the duration of its loop
/// over all epochs in seconds. Memory is allocated, threads are started and, on CUDA, graphs are
/// captured before the clock starts.
namespace mlp {

/// The order of the samples in all loops.
[[nodiscard]] inline penstock::shuffled order_of(const options& chosen) {
  return {.seed = chosen.seed};
}

template <class Loop>
[[nodiscard]] double seconds_of(const Loop& loop) {
  const auto start = std::chrono::steady_clock::now();
  loop();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

[[nodiscard]] inline penstock::loader_options loader_options_of(const options& chosen) {
  return {.batch_size = chosen.batch,
          .workers = chosen.workers,
          .prefetch = 8,
          .seed = chosen.seed,
          .last_batch = penstock::last_batch::keep};
}

/// Runs a step on a batch in device memory.
template <class Backend, class Batch>
void step_on(trainer<Backend>& trained, std::size_t slot, const Batch& batch) {
  namespace ps = penstock;
  trained.step(slot, ps::get<"image">(batch).data(), ps::get<"label">(batch).data(), batch.size());
}

/// Runs a rehearsal on a slot with a full batch.
template <class Backend, class Batch>
void rehearse_on(trainer<Backend>& trained, std::size_t slot, const Batch& batch) {
  namespace ps = penstock;
  trained.rehearse(slot, ps::get<"image">(batch).data(), ps::get<"label">(batch).data());
}

/// A single thread does everything in order: it reads a batch into pageable memory, copies the
/// batch, computes, and waits.
template <class Data, class Backend>
double train_serially(const Data& data, const typename Backend::device_type& device,
                      trainer<Backend>& trained, const options& chosen) {
  namespace ps = penstock;
  using record = typename Data::record_type;
  const ps::batch_layout<record> layout{ps::extents_of(data), chosen.batch};
  const auto stream = trained.stream();
  const auto sampler = order_of(chosen);
  std::vector<std::byte> host(layout.bytes());
  std::vector<std::uint64_t> indices(chosen.batch);
  ps::reader reader{data};
  device_array<std::byte, typename Backend::device_type> slot{device, layout.bytes()};
  const auto fetch = [&](const auto& order, std::uint64_t epoch, std::uint64_t first) {
    const auto count = std::min<std::size_t>(chosen.batch, data.size() - first);
    const std::span wanted{indices.data(), count};
    order.fill(first, wanted);
    reader.read(wanted, {host.data(), layout, 0, count}, {.seed = chosen.seed, .epoch = epoch});
    device.copy_async(slot.data(), host.data(), layout.used_bytes(count), stream);
    device.synchronize(stream);
    return ps::const_batch_view<record>{slot.data(), layout, 0, count};
  };
  trained.restart([&] { rehearse_on(trained, 0, fetch(sampler.order(data.size(), 0), 0, 0)); });
  return seconds_of([&] {
    for (std::uint64_t epoch = 0; epoch < chosen.epochs; ++epoch) {
      const auto order = sampler.order(data.size(), epoch);
      for (std::uint64_t first = 0; first < data.size(); first += chosen.batch) {
        step_on(trained, 0, fetch(order, epoch, first));
        device.synchronize(stream);
      }
    }
  });
}

/// The duration of an overlapped loop in seconds, and its bottleneck.
struct fed_run {
  double seconds = 0.0;
  penstock::diagnosis said{};
};

/// Workers read into pinned slots, and the next batches are copied during the current step.
template <class Data, class Backend>
fed_run train_overlapped(const Data& data, const typename Backend::device_type& device,
                         trainer<Backend>& trained, const options& chosen) {
  namespace ps = penstock;
  ps::loader loader{data, order_of(chosen), device, loader_options_of(chosen)};
  const ps::transfer_options copies{.depth = chosen.depth};
  ps::transfer feed{loader, trained.stream(), copies};
  trained.restart([&] {
    const std::size_t full = std::min<std::size_t>(chosen.batch, data.size());
    std::size_t rehearsed = 0;
    for (auto& batch : feed.epochs(0, chosen.epochs)) {
      if (batch.size() == full) rehearse_on(trained, batch.slot(), batch);
      if (++rehearsed == chosen.depth) break;
    }
  });
  // Measures the steps without reads and copies, so that the diagnosis can compare the loop with
  // them. The learned parameters are discarded.
  if (chosen.costs) {
    const std::uint64_t steps = (data.size() + chosen.batch - 1) / chosen.batch;
    for (auto& batch : feed.replay({0, 0}, ps::batch_count{std::min<std::uint64_t>(steps, 100)})) {
      step_on(trained, batch.slot(), batch);
    }
    trained.rewind();
  }
  const auto before = feed.stats();
  const double seconds = seconds_of([&] {
    for (auto& batch : feed.epochs(0, chosen.epochs)) {
      step_on(trained, batch.slot(), batch);
    }
    device.synchronize(trained.stream());
  });
  return {seconds, penstock::diagnose(before, feed.stats())};
}

}  // namespace mlp

/// Further loops, for comparison with the serial and the overlapped loop.
namespace mlp {

/// Workers read into pageable memory. The calling thread copies a batch, waits for the copy, and
/// computes.
template <class Data, class Backend>
double train_with_workers(const Data& data, const typename Backend::device_type& device,
                          trainer<Backend>& trained, const options& chosen) {
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
  return seconds_of([&] {
    for (auto& host : loader.epochs(0, chosen.epochs)) {
      step_on(trained, 0, copied(host));
    }
    device.synchronize(stream);
  });
}

/// The floor: all data is already on the device.
template <class Backend, class Pixel>
double train_resident(const resident_set<Backend, Pixel>& set, std::size_t samples,
                      const typename Backend::device_type& device, trainer<Backend>& trained,
                      const options& chosen) {
  trained.restart([&] {
    trained.rehearse(0, set.images(), set.labels(),
                     [&](std::size_t count) { return set.gathering(count); });
  });
  return seconds_of([&] {
    for (std::size_t epoch = 0; epoch < chosen.epochs; ++epoch) {
      for (std::size_t first = 0; first < samples; first += chosen.batch) {
        const std::size_t count = std::min(chosen.batch, samples - first);
        trained.step(0, set.images(), set.labels(), count, set.gathering(count));
      }
    }
    device.synchronize(trained.stream());
  });
}

/// Runs the same number of steps as `train_resident`, but all on the batch that it gathered last,
/// and without its two gather kernels. No feed can be faster. The learned parameters are
/// meaningless.
template <class Backend, class Pixel>
double repeat_one_batch(const resident_set<Backend, Pixel>& set, std::size_t samples,
                        const typename Backend::device_type& device, trainer<Backend>& trained,
                        const options& chosen) {
  trained.restart([&] { trained.rehearse(0, set.images(), set.labels()); });
  return seconds_of([&] {
    for (std::size_t epoch = 0; epoch < chosen.epochs; ++epoch) {
      for (std::size_t first = 0; first < samples; first += chosen.batch) {
        trained.step(0, set.images(), set.labels(), std::min(chosen.batch, samples - first));
      }
    }
    device.synchronize(trained.stream());
  });
}

}  // namespace mlp
