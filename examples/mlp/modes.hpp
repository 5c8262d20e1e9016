#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <penstock/penstock.hpp>

#include "options.hpp"
#include "resident.hpp"
#include "trainer.hpp"

/// The four training loops. Each trains from the first parameters on, and returns the seconds that its
/// loop over all epochs took; memory is taken, threads are started and, on CUDA, graphs are captured
/// before the clock starts. `progress` is told when that is, and every step: a `progress_bar`, say.
namespace mlp {

/// The order of the samples, in all loops.
[[nodiscard]] inline penstock::shuffled order_of(const options& chosen) {
  return {.seed = chosen.seed};
}

template <class Loop>
[[nodiscard]] double seconds_of(const Loop& loop) {
  const auto start = std::chrono::steady_clock::now();
  loop();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The same of a training loop.
template <class Progress, class Loop>
[[nodiscard]] double seconds_of(Progress& progress, const Loop& loop) {
  progress.begin();
  return seconds_of(loop);
}

/// A step on a batch in device memory.
template <class Backend, class Batch>
void step_on(trainer<Backend>& trained, std::size_t slot, const Batch& batch) {
  namespace ps = penstock;
  trained.step(slot, ps::get<"image">(batch).data(), ps::get<"label">(batch).data(), batch.size());
}

/// Rehearses on a slot that holds a full batch.
template <class Backend, class Batch>
void rehearse_on(trainer<Backend>& trained, std::size_t slot, const Batch& batch) {
  namespace ps = penstock;
  trained.rehearse(slot, ps::get<"image">(batch).data(), ps::get<"label">(batch).data());
}

/// One thread does everything in turn: reads a batch into ordinary memory, copies it, computes, waits.
template <class Data, class Backend, class Progress>
double train_serially(const Data& data, const typename Backend::device_type& device,
                      trainer<Backend>& trained, const options& chosen, Progress& progress) {
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
  return seconds_of(progress, [&] {
    for (std::uint64_t epoch = 0; epoch < chosen.epochs; ++epoch) {
      const auto order = sampler.order(data.size(), epoch);
      for (std::uint64_t first = 0; first < data.size(); first += chosen.batch) {
        step_on(trained, 0, fetch(order, epoch, first));
        device.synchronize(stream);
        progress.advance();
      }
    }
  });
}

[[nodiscard]] inline penstock::loader_options loader_options_of(const options& chosen) {
  return {.batch_size = chosen.batch,
          .workers = chosen.workers,
          .prefetch = chosen.prefetch,
          .seed = chosen.seed,
          .last_batch = penstock::partial_batch::keep};
}

/// Workers read into ordinary memory; this thread copies a batch, waits for the copy, computes.
template <class Data, class Backend, class Progress>
double train_with_workers(const Data& data, const typename Backend::device_type& device,
                          trainer<Backend>& trained, const options& chosen, Progress& progress) {
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

/// Workers read into pinned slots, and the copies of the next batches run under this one's step.
template <class Data, class Backend, class Progress>
double train_overlapped(const Data& data, const typename Backend::device_type& device,
                        trainer<Backend>& trained, const options& chosen, Progress& progress) {
  namespace ps = penstock;
  ps::loader loader{data, order_of(chosen), device, loader_options_of(chosen)};
  ps::transfer feed{loader, trained.stream(), {.depth = chosen.depth}};
  trained.restart([&] {
    const std::size_t full = std::min<std::size_t>(chosen.batch, data.size());
    std::size_t rehearsed = 0;
    for (auto& batch : feed.epochs(0, chosen.epochs)) {
      if (batch.size() == full) rehearse_on(trained, batch.slot(), batch);
      if (++rehearsed == chosen.depth) break;
    }
  });
  return seconds_of(progress, [&] {
    for (auto& batch : feed.epochs(0, chosen.epochs)) {
      step_on(trained, batch.slot(), batch);
      progress.advance();
    }
    device.synchronize(trained.stream());
  });
}

/// Everything is on the device already: the floor.
template <class Backend, class Pixel, class Progress>
double train_resident(const resident_set<Backend, Pixel>& set, std::size_t samples,
                      const typename Backend::device_type& device, trainer<Backend>& trained,
                      const options& chosen, Progress& progress) {
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

/// As many steps on the batch that `train_resident` has gathered last, so without its two kernels that
/// gather: no feed is faster. What is learnt by it means nothing.
template <class Backend, class Pixel, class Progress>
double repeat_one_batch(const resident_set<Backend, Pixel>& set, std::size_t samples,
                        const typename Backend::device_type& device, trainer<Backend>& trained,
                        const options& chosen, Progress& progress) {
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
