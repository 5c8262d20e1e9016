#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <thrust/functional.h>
#include <thrust/reduce.h>

#include <penstock/order/random.hpp>

#include "device_array.hpp"
#include "network.hpp"

namespace mlp {

/// The parameters before the first step: uniform in +-1/sqrt(fan_in), weights and biases alike.
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

/// What a run leaves behind: equal for equal seeds, however the batches came.
struct run_trace {
  std::vector<float> losses;  ///< of every sample in the order of training, before its step
  std::vector<float> parameters;
  friend bool operator==(const run_trace&, const run_trace&) = default;
};

/// Runs of a network from its first parameters on, with the losses of all samples kept on the device.
/// `step` enqueues and returns.
template <class Backend>
class trainer {
 public:
  using device_type = typename Backend::device_type;
  using stream_ref = typename Backend::stream_ref;

  /// For runs of `epochs` epochs of `samples` samples, all work on `stream`.
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
  [[nodiscard]] const Backend& backend() const noexcept { return backend_; }

  /// Back to the first parameters.
  void restart() {
    network_.assign(initial_, stream_);
    done_ = 0;
  }
  /// The next step's losses go to the begin of the trace again; the parameters stay.
  void restart_trace() noexcept { done_ = 0; }

  /// Trains on `count` samples in device memory.
  void step(const std::uint8_t* images, const std::uint8_t* labels, std::size_t count) {
    network_.train(images, labels, count, losses_.data() + done_, stream_);
    done_ += count;
  }

  /// For each epoch the mean over its batches of their mean losses. Waits for the stream.
  [[nodiscard]] std::vector<double> epoch_losses() const {
    const std::size_t full = samples_ / batch_size_ * batch_size_;
    const std::size_t rest = samples_ - full;
    const std::size_t batches = full / batch_size_ + (rest != 0 ? 1 : 0);
    std::vector<double> means;
    for (std::size_t e = 0; e < epochs_; ++e) {
      double mean = sum(e * samples_, full) / static_cast<double>(batch_size_);
      if (rest != 0) mean += sum(e * samples_ + full, rest) / static_cast<double>(rest);
      means.push_back(mean / static_cast<double>(batches));
    }
    return means;
  }

  [[nodiscard]] run_trace trace() const {
    run_trace copy{std::vector<float>(losses_.size()), std::vector<float>(shape::parameters)};
    losses_.download(copy.losses, 0, stream_);
    network_.parameters().download(copy.parameters, 0, stream_);
    return copy;
  }

  /// The share of `count` samples in device memory that are classified rightly, by the same forward
  /// code as in training.
  [[nodiscard]] double accuracy(const std::uint8_t* images, const std::uint8_t* labels,
                                std::size_t count) {
    std::size_t all = 0;
    for (std::size_t i = 0; i < count; i += batch_size_) {
      std::size_t right = 0;
      network_.evaluate(images + i * shape::inputs, labels + i, std::min(batch_size_, count - i),
                        &right, stream_);
      device_.synchronize(stream_);
      all += right;
    }
    return static_cast<double>(all) / static_cast<double>(count);
  }

 private:
  [[nodiscard]] double sum(std::size_t first, std::size_t count) const {
    double result = 0.0;
    backend_.enqueue(stream_, [this, first, count, to = &result] {
      const float* from = losses_.data() + first;
      *to = thrust::reduce(backend_.policy(), from, from + count, 0.0, thrust::plus<double>{});
    });
    device_.synchronize(stream_);
    return result;
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
  std::size_t done_ = 0;
};

}  // namespace mlp
