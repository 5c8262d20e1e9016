// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/order/random.hpp>

#include "device_array.hpp"
#include "network.hpp"
#include "results.hpp"
#include "shape.hpp"

namespace mlp {

/// Returns the initial parameters. Weights and biases are uniformly distributed in
/// +-1/sqrt(fan_in).
[[nodiscard]] inline std::vector<float> initial_parameters(std::uint64_t seed) {
  struct layer {
    std::size_t first, end, inputs;
  };
  constexpr layer layers[] = {{shape::weight1, shape::weight2, shape::inputs},
                              {shape::weight2, shape::weight3, shape::hidden1},
                              {shape::weight3, shape::parameters, shape::hidden2}};
  std::vector<float> values(shape::parameters);
  penstock::sample_generator random{penstock::random_key{.seed = seed}, 0};
  for (const layer& l : layers) {
    const float limit = 1.0F / std::sqrt(static_cast<float>(l.inputs));
    for (std::size_t i = l.first; i < l.end; ++i) {
      values[i] = penstock::uniform(random, -limit, limit);
    }
  }
  return values;
}

/// The results of a run. Equal seeds give equal results, no matter how the network is fed.
struct run_trace {
  std::vector<float> losses;  ///< loss of every sample before its step, in training order
  std::vector<float> parameters;
  friend bool operator==(const run_trace&, const run_trace&) = default;
};

/// Throws an exception if the trace of a run differs from the first trace.
inline void require_same(const run_trace& first, technique first_mode, const run_trace& other,
                         technique other_mode) {
  if (other == first) return;
  const std::string modes{std::string{name_of(other_mode)} + " and " +
                          std::string{name_of(first_mode)}};
  for (std::size_t i = 0; i < first.losses.size(); ++i) {
    if (other.losses[i] == first.losses[i]) continue;
    throw std::runtime_error(modes + " differ: the loss of sample " + std::to_string(i) +
                             " of the run is " + std::to_string(other.losses[i]) + " and " +
                             std::to_string(first.losses[i]));
  }
  throw std::runtime_error(modes + " differ: equal losses, but not the same parameters");
}

/// Trains a network from its initial parameters and stores the losses of all samples on the device.
/// `step` queues work and returns.
template <class Backend>
class trainer {
 public:
  using device_type = typename Backend::device_type;
  using stream_ref = typename Backend::stream_ref;

  /// Constructs a trainer for runs of `epochs` epochs with `samples` samples, with all work on
  /// `stream`.
  trainer(const device_type& device, const Backend& backend, stream_ref stream,
          std::size_t batch_size, std::size_t epochs, std::size_t samples, std::uint64_t seed)
      : device_(device),
        backend_(backend),
        stream_(stream),
        batch_size_(batch_size),
        epochs_(epochs),
        samples_(samples),
        initial_(initial_parameters(seed)),
        network_(device, backend, batch_size),
        losses_(device, epochs * samples) {
    restart();
  }

  [[nodiscard]] stream_ref stream() const noexcept { return stream_; }

  /// Restores the initial parameters. Later steps may use batches at new addresses.
  void restart() {
    restart([] {});
  }
  /// Restarts the training. If the first steps of a backend cost more than later steps, the
  /// function first calls `rehearsal`, which must call `rehearse` for every slot that will be used.
  template <class Rehearsal>
  void restart(const Rehearsal& rehearsal) {
    device_.synchronize(stream_);
    backend_.forget();
    rewind();
    if (!backend_.rehearses()) return;
    rehearsal();
    rewind();
  }
  /// Restores the initial parameters. Later steps must use the same slots.
  void rewind() { network_.assign(initial_, stream_); }

  /// Trains on `count` samples in device memory. Until `restart` is called, each combination of
  /// slot and count must always refer to the same addresses. See `network::train` for `before`.
  template <class Pixel, class Before = nothing_before>
  void step(std::size_t slot, const Pixel* images, const std::uint8_t* labels, std::size_t count,
            const Before& before = {}) {
    backend_.replay(slot, count, stream_,
                    [&](stream_ref on) { enqueue(images, labels, count, on, before); });
  }

  /// Runs steps of all occurring sizes on a slot with a full batch. `before_of(count)` returns the
  /// work that precedes a step of `count` samples.
  template <class Pixel, class BeforeOf>
  void rehearse(std::size_t slot, const Pixel* images, const std::uint8_t* labels,
                const BeforeOf& before_of) {
    for (const std::size_t count : {std::min(batch_size_, samples_), samples_ % batch_size_}) {
      if (count == 0) continue;
      const auto before = before_of(count);
      // Runs once without a graph, because modules that are loaded on first use cannot be loaded
      // during a capture.
      enqueue(images, labels, count, stream_, before);
      step(slot, images, labels, count, before);
    }
    device_.synchronize(stream_);
  }

  template <class Pixel>
  void rehearse(std::size_t slot, const Pixel* images, const std::uint8_t* labels) {
    rehearse(slot, images, labels, [](std::size_t) { return nothing_before{}; });
  }

  /// Waits for the stream. Returns one value for each epoch: the mean of the mean losses of its
  /// batches.
  [[nodiscard]] std::vector<double> epoch_losses() const {
    const std::size_t full = samples_ / batch_size_ * batch_size_;
    const std::size_t rest = samples_ - full;
    const std::size_t batches = full / batch_size_ + (rest != 0 ? 1 : 0);
    device_array<double, device_type> sums{device_, 2 * epochs_};
    for (std::size_t e = 0; e < epochs_; ++e) {
      sum(e * samples_, full, sums.data() + 2 * e);
      sum(e * samples_ + full, rest, sums.data() + 2 * e + 1);
    }
    std::vector<double> found(2 * epochs_);
    sums.download(found, stream_);
    std::vector<double> means;
    for (std::size_t e = 0; e < epochs_; ++e) {
      double mean = full != 0 ? found[2 * e] / static_cast<double>(batch_size_) : 0.0;
      if (rest != 0) mean += found[2 * e + 1] / static_cast<double>(rest);
      means.push_back(mean / static_cast<double>(batches));
    }
    return means;
  }

  [[nodiscard]] run_trace trace() const {
    run_trace copy{std::vector<float>(losses_.size()), std::vector<float>(shape::parameters)};
    losses_.download(copy.losses, stream_);
    network_.parameters().download(copy.parameters, stream_);
    return copy;
  }

  /// Waits for the stream. Returns the fraction of correctly classified samples among `count`
  /// samples in device memory.
  template <class Pixel>
  [[nodiscard]] double accuracy(const Pixel* images, const std::uint8_t* labels,
                                std::size_t count) {
    const std::size_t batches = (count + batch_size_ - 1) / batch_size_;
    device_array<std::uint64_t, device_type> right{device_, batches};
    for (std::size_t b = 0; b < batches; ++b) {
      const std::size_t first = b * batch_size_;
      network_.evaluate(images + first * shape::inputs, labels + first,
                        std::min(batch_size_, count - first), right.data() + b, stream_);
    }
    std::vector<std::uint64_t> found(batches);
    right.download(found, stream_);
    std::uint64_t all = 0;
    for (const std::uint64_t batch : found) all += batch;
    return static_cast<double>(all) / static_cast<double>(count);
  }

 private:
  template <class Pixel, class Before>
  void enqueue(const Pixel* images, const std::uint8_t* labels, std::size_t count, stream_ref on,
               const Before& before) {
    network_.train(images, labels, count, std::span{losses_.data(), losses_.size()}, on, before);
  }

  void sum(std::size_t first, std::size_t count, double* to) const {
    backend_.enqueue(stream_, [from = losses_.data() + first, count, to](const auto& on) {
      on.sum(count, kernel::loss_at{from}, to);
    });
  }

  device_type device_;
  Backend backend_;
  stream_ref stream_;
  std::size_t batch_size_;
  std::size_t epochs_;
  std::size_t samples_;
  std::vector<float> initial_;
  network<Backend> network_;
  device_array<float, device_type> losses_;
};

}  // namespace mlp
