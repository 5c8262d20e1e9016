// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>

#include "fake_cuda/fake_cuda.hpp"

/// A complete flow of MNIST-like training data on the fake CUDA runtime. The tests of ordering,
/// call counts and failures use it.
namespace digits_flow {

namespace ps = penstock;

using record =
    ps::record<ps::field<"image", std::uint8_t, 28, 28>, ps::field<"label", std::uint8_t>>;

/// A dataset of images in which every byte identifies its sample and position.
struct digits {
  using record_type = record;
  std::uint64_t count = 96;
  [[nodiscard]] std::uint64_t size() const { return count; }
  static std::uint8_t pixel(std::uint64_t index, std::size_t i) {
    return static_cast<std::uint8_t>(index * 31 + i * 7 + i / 28);
  }
  void read(std::uint64_t index, ps::sample<record> out) const {
    const auto image = ps::get<"image">(out).flat();
    for (std::size_t i = 0; i < image.size(); ++i) image[i] = pixel(index, i);
    ps::get<"label">(out) = static_cast<std::uint8_t>(index);
  }
};

/// The parts of a batch that are passed to a kernel: views that contain only addresses and extents.
struct seen_batch {
  decltype(ps::get<"image">(std::declval<const ps::const_batch_view<record>&>())) images;
  decltype(ps::get<"label">(std::declval<const ps::const_batch_view<record>&>())) labels;

  /// Returns true if the memory contains these samples.
  [[nodiscard]] bool holds(const std::vector<std::uint64_t>& samples) const {
    for (std::size_t n = 0; n < samples.size(); ++n) {
      if (labels.flat()[n] != static_cast<std::uint8_t>(samples[n])) return false;
      for (std::size_t i = 0; i < 784; ++i) {
        if (images.flat()[n * 784 + i] != digits::pixel(samples[n], i)) return false;
      }
    }
    return true;
  }
};

struct settings {
  std::uint64_t samples = 96;
  std::size_t batch_size = 16;
  std::size_t workers = 2;
  std::size_t prefetch = 2;
  std::size_t depth = 3;
  std::uint64_t epochs = 1;
  std::uint64_t stop_after = ~std::uint64_t{0};  ///< number of batches after which the loop stops
  ps::zero_copy_use zero_copy = ps::zero_copy_use::by_device;
};

struct outcome {
  std::atomic<std::uint64_t> right{0};
  std::atomic<std::uint64_t> wrong{0};
};

/// Queues work on `stream` that checks the labels of a batch when it runs, and counts correct
/// batches.
template <class Batch>
void look_at(const Batch& batch, ps::cuda_stream_ref stream, outcome& found) {
  const auto look = [labels = ps::get<"label">(batch).flat(), first = batch.number() * 16, &found] {
    bool same = true;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      same = same && labels[i] == static_cast<std::uint8_t>(first + i);
    }
    ++(same ? found.right : found.wrong);
  };
  fake_cuda::launch(stream.get(), look, {batch.data()});
}

/// Runs all epochs in order. Work on the consumer's stream checks each batch. Propagates errors
/// from the flow.
inline void run(const ps::cuda_device& device, const settings& how, outcome& found) {
  const ps::shuffled order{.seed = 9};
  const auto stream = device.make_stream();
  ps::loader loader{
      digits{how.samples},
      order,
      device,
      {.batch_size = how.batch_size, .workers = how.workers, .prefetch = how.prefetch}};
  ps::transfer feed{loader, stream, {.depth = how.depth, .tuning = {.zero_copy = how.zero_copy}}};
  std::uint64_t count = 0;
  for (auto& batch : feed.epochs(0, how.epochs)) {
    std::vector<std::uint64_t> samples(batch.size());
    order.order(how.samples, batch.epoch()).fill(batch.number() * how.batch_size, samples);
    const auto& lease = std::as_const(batch);
    const auto look = [seen = seen_batch{ps::get<"image">(lease), ps::get<"label">(lease)}, samples,
                       &found] { ++(seen.holds(samples) ? found.right : found.wrong); };
    // Launching a kernel requires a stream of the current device.
    const auto current = device.enter_scope();
    fake_cuda::launch(stream.get(), look, {batch.data()});
    // Overwrites the batch just before its lease ends. No later work may depend on the contents of
    // the slot.
    const auto spoil = [pixels = ps::get<"image">(batch).flat()] {
      std::memset(pixels.data(), fake_cuda::poison, pixels.size());
    };
    fake_cuda::launch(stream.get(), spoil, {batch.data()});
    if (++count == how.stop_after) break;
  }
  device.synchronize(ps::cuda_stream_ref{stream});
}

}  // namespace digits_flow
