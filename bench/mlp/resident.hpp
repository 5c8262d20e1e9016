// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/data/reader.hpp>

#include "device_array.hpp"
#include "network.hpp"

namespace mlp {

/// The pixel type of a dataset's images.
template <class Data>
using pixel_of = typename Data::record_type::template field_at<0>::value_type;

/// Samples in device memory, with images and labels in separate arrays.
template <class Device, class Pixel = std::uint8_t>
struct sample_store {
  device_array<Pixel, Device> images;
  device_array<std::uint8_t, Device> labels;

  sample_store(const Device& device, std::size_t samples)
      : images(device, samples * shape::inputs), labels(device, samples) {}

  /// Stores all samples of `data`, in the order of the dataset, at the positions starting at
  /// `first`. The random bits of the samples come from `key`.
  template <class Data>
  void fill(std::size_t first, const Data& data, const penstock::random_key& key,
            typename Device::stream_ref stream) {
    using record = typename Data::record_type;
    constexpr std::size_t chunk = 1024;
    const penstock::batch_layout<record> layout{penstock::extents_of(data), chunk};
    std::vector<std::byte> memory(layout.bytes());
    std::vector<std::uint64_t> indices;
    penstock::reader reader{data};
    for (std::size_t begin = 0; begin < data.size(); begin += chunk) {
      const std::size_t end = std::min<std::size_t>(begin + chunk, data.size());
      indices.clear();
      for (std::size_t i = begin; i < end; ++i) indices.push_back(i);
      const penstock::batch_view<record> samples{memory.data(), layout, 0, indices.size()};
      reader.read(indices, samples, key);
      images.upload(penstock::get<"image">(samples).flat(), stream,
                    (first + begin) * shape::inputs);
      labels.upload(penstock::get<"label">(samples).flat(), stream, first + begin);
    }
  }
};

/// All data of a run, copied to the device before the clock starts: the samples, the order of all
/// steps, and memory for the batch that each step gathers. With random augmentation, the samples of
/// every epoch are computed in advance with the same random bits.
template <class Backend, class Pixel = std::uint8_t>
class resident_set {
  using device_type = typename Backend::device_type;

 public:
  /// Loads the data. `is_random` is true if reading `data` returns different samples in each epoch.
  template <class Data, class Sampler>
  resident_set(const device_type& device, typename Backend::stream_ref stream, const Data& data,
               bool is_random, const Sampler& sampler, std::size_t batch_size, std::size_t epochs,
               std::uint64_t seed)
      : size_(data.size()),
        store_(device, size_ * (is_random ? epochs : 1)),
        order_(device, size_ * epochs),
        images_(device, batch_size * shape::inputs),
        labels_(device, batch_size) {
    std::vector<std::uint64_t> order(size_);
    for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
      if (epoch == 0 || is_random) {
        store_.fill(epoch * size_, data, {.seed = seed, .epoch = epoch}, stream);
      }
      sampler.order(size_, epoch).fill(0, order);
      if (is_random) {
        for (std::uint64_t& place : order) place += epoch * size_;
      }
      order_.upload(order, stream, epoch * size_);
    }
  }

  /// Returns the work that begins a step with `count` samples. The work gathers the samples whose
  /// part of the order is selected by the trace position. Use it with `trainer::step` on `images()`
  /// and `labels()`.
  [[nodiscard]] auto gathering(std::size_t count) const {
    return [this, count](const auto& on, const network_view& all) {
      on.gather_rows(count, shape::inputs, order_.data(), all.state, all.capacity,
                     store_.images.data(), images_.data());
      on.gather_rows(count, 1, order_.data(), all.state, all.capacity, store_.labels.data(),
                     labels_.data());
    };
  }

  [[nodiscard]] const Pixel* images() const noexcept { return images_.data(); }
  [[nodiscard]] const std::uint8_t* labels() const noexcept { return labels_.data(); }

 private:
  std::size_t size_;
  sample_store<device_type, Pixel> store_;
  device_array<std::uint64_t, device_type> order_;
  device_array<Pixel, device_type> images_;
  device_array<std::uint8_t, device_type> labels_;
};

}  // namespace mlp
