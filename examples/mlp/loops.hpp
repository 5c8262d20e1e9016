// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <penstock/data/reader.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/report/diagnose.hpp>

#include "training.hpp"

/// The training loops. In the serial loop, one thread does everything in order. In the overlapped
/// loop, workers read samples and copies run while the step computes. In the resident loop, all
/// data is on the device before the clock starts. All loops start from the same initial parameters
/// and run the same step on the same batches. On a GPU, every loop runs its step as a CUDA graph.
namespace example {

template <class Loop>
[[nodiscard]] double seconds_of(const Loop& loop) {
  const auto start = std::chrono::steady_clock::now();
  loop();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// A single thread does everything in order: it reads a batch into ordinary memory, copies it,
/// computes, and waits. Returns the duration of the loop in seconds.
template <class Data, class Backend>
double train_serially(const Data& data, training<Backend>& trained, const loop_options& how,
                      stage_clock& stages) {
  using record = typename Data::record_type;
  const auto& device = trained.device;
  const ps::batch_layout<record> layout{ps::extents_of(data), how.batch};
  std::vector<std::byte> host(layout.bytes());
  device_array<std::byte, typename Backend::device_type> slot{device, layout.bytes()};
  std::vector<std::uint64_t> indices(how.batch);
  ps::reader reader{data};
  trained.restart();
  stages.begin(3 * how.epochs * (data.size() / how.batch + 1));

  return seconds_of([&] {
    for (std::uint64_t epoch = 0; epoch < how.epochs; ++epoch) {
      const auto order = ps::shuffled{.seed = how.seed}.order(data.size(), epoch);
      for (std::uint64_t batch = 0; batch * how.batch < data.size(); ++batch) {
        const std::uint64_t first = batch * how.batch;
        const std::size_t count = std::min<std::size_t>(how.batch, data.size() - first);
        const std::span wanted{indices.data(), count};
        order.fill(first, wanted);
        reader.read(wanted, {host.data(), layout, 0, count}, {.seed = how.seed, .epoch = epoch});
        stages.end(ps::trace_stage::read, epoch, batch);

        device.copy_async(slot.data(), host.data(), layout.used_bytes(count), trained.stream);
        device.synchronize(trained.stream);
        stages.end(ps::trace_stage::copy, epoch, batch);

        trained.step(ps::const_batch_view<record>{slot.data(), layout, 0, count});
        device.synchronize(trained.stream);
        stages.end(ps::trace_stage::step, epoch, batch);
      }
    }
  });
}

/// Workers read into pinned slots, and the next batches are copied during the current step. Returns
/// the duration of the loop in seconds. Sets `diagnosis` to a text that names the bottleneck of the
/// loop.
template <class Data, class Backend>
double train_overlapped(const Data& data, training<Backend>& trained, const loop_options& how,
                        ps::trace_recorder* trace, std::string& diagnosis) {
  ps::loader loader{data,
                    ps::shuffled{.seed = how.seed},
                    trained.device,
                    {.batch_size = how.batch,
                     .workers = how.workers,
                     .seed = how.seed,
                     .instrumentation = {.trace = trace}}};
  ps::transfer feed{loader, trained.stream, {.instrumentation = {.trace = trace}}};
  trained.restart();
  const auto before = feed.stats();

  const double seconds = seconds_of([&] {
    for (auto& batch : feed.epochs(0, how.epochs)) trained.step(batch);
    trained.device.synchronize(trained.stream);
  });
  diagnosis = ps::diagnose(before, feed.stats()).str();
  return seconds;
}

/// All training batches are on the device, in training order, before the clock starts, so this loop
/// is roughly a lower bound for any feed. Each batch is copied within the device to the input
/// buffer of the captured step. Returns the duration of the loop in seconds.
template <class Data, class Backend>
double train_resident(const Data& data, training<Backend>& trained, const loop_options& how) {
  using record = typename Data::record_type;
  ps::loader loader{data,
                    ps::shuffled{.seed = how.seed},
                    trained.device,
                    {.batch_size = how.batch, .workers = how.workers, .seed = how.seed}};
  const auto& layout = loader.layout();
  const std::size_t count = how.epochs * loader.batches_per_epoch();
  device_array<std::byte, typename Backend::device_type> all{trained.device,
                                                             count * layout.bytes()};
  device_array<std::byte, typename Backend::device_type> slot{trained.device, layout.bytes()};
  std::vector<std::size_t> sizes;
  for (auto& batch : loader.epochs(0, how.epochs)) {
    std::byte* const place = all.data() + sizes.size() * layout.bytes();
    trained.device.copy_async(place, batch.data(), layout.used_bytes(batch.size()), trained.stream);
    trained.device.synchronize(trained.stream);
    sizes.push_back(batch.size());
  }
  trained.restart();

  return seconds_of([&] {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      trained.device.copy_async(slot.data(), all.data() + i * layout.bytes(),
                                layout.used_bytes(sizes[i]), trained.stream);
      trained.step(ps::const_batch_view<record>{slot.data(), layout, 0, sizes[i]});
    }
    trained.device.synchronize(trained.stream);
  });
}

}  // namespace example
