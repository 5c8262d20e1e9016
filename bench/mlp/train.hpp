// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <penstock/penstock.hpp>

#include "options.hpp"
#include "trainer.hpp"

/// The two training loops: one thread does everything in turn; or workers read, and copies run
/// under the step. Each trains from the first parameters on, and returns the seconds that its loop
/// over all epochs took; memory is taken, threads are started and, on CUDA, graphs are captured
/// before the clock starts.
namespace mlp {

/// Is told when the clock starts, of every step under way, and what fed the loop, and may have a
/// trace recorded. This one takes no notice.
class observer {
 public:
  observer() = default;
  observer(observer&&) = delete;
  virtual ~observer() = default;
  virtual void begin() {}
  virtual void advance() {}
  /// Before the clock starts: what tells statistics of the feed until `has_run`, and its host
  /// slots.
  virtual void fed_by(const std::function<penstock::transfer_stats()>&, std::size_t) {}
  /// The statistics of the feed before the loop and after it.
  virtual void has_run(const penstock::transfer_stats&, const penstock::transfer_stats&) {}
  [[nodiscard]] virtual penstock::trace_recorder* trace() { return nullptr; }
};

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

template <class Loop>
[[nodiscard]] double seconds_of(observer& progress, const Loop& loop) {
  progress.begin();
  return seconds_of(loop);
}

[[nodiscard]] inline penstock::loader_options loader_options_of(const options& chosen) {
  return {.batch_size = chosen.batch,
          .workers = chosen.workers,
          .prefetch = chosen.prefetch,
          .seed = chosen.seed,
          .last_batch = penstock::partial_batch::keep,
          .run = chosen.run};
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

/// One thread does everything in turn: reads a batch into ordinary memory, copies it, computes,
/// waits.
template <class Data, class Backend>
double train_serially(const Data& data, const typename Backend::device_type& device,
                      trainer<Backend>& trained, const options& chosen, observer& progress) {
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

/// Workers read into pinned slots, and the copies of the next batches run under this one's step.
/// `transforms` change a batch after its copy.
template <class Data, class Backend, class... Transforms>
double train_overlapped(const Data& data, const typename Backend::device_type& device,
                        trainer<Backend>& trained, const options& chosen, observer& progress,
                        const Transforms&... transforms) {
  namespace ps = penstock;
  auto how = loader_options_of(chosen);
  how.trace = progress.trace();
  ps::loader loader{data, order_of(chosen), device, how};
  const ps::transfer_options copies{.depth = chosen.depth, .trace = how.trace};
  ps::transfer feed{loader, trained.stream(), transforms..., copies};
  trained.restart([&] {
    const std::size_t full = std::min<std::size_t>(chosen.batch, data.size());
    std::size_t rehearsed = 0;
    for (auto& batch : feed.epochs(0, chosen.epochs)) {
      if (batch.size() == full) rehearse_on(trained, batch.slot(), batch);
      if (++rehearsed == chosen.depth) break;
    }
  });
  // What the steps take alone, for the verdict; what they learn is thrown away.
  if (chosen.costs) {
    const std::uint64_t steps = (data.size() + chosen.batch - 1) / chosen.batch;
    for (auto& batch : feed.replay({0, 0}, std::min<std::uint64_t>(steps, 100))) {
      step_on(trained, batch.slot(), batch);
    }
    trained.rewind();
  }
  progress.fed_by([&feed] { return feed.stats(); }, loader.footprint().slot_count);
  const auto before = feed.stats();
  const double seconds = seconds_of(progress, [&] {
    for (auto& batch : feed.epochs(0, chosen.epochs)) {
      step_on(trained, batch.slot(), batch);
      progress.advance();
    }
    device.synchronize(trained.stream());
  });
  progress.has_run(before, feed.stats());
  return seconds;
}

}  // namespace mlp
