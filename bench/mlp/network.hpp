// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device_array.hpp"
#include "kernels.hpp"
#include "pass.hpp"
#include "shape.hpp"

namespace mlp {

/// The float arrays of a network on a device, allocated once.
template <class Device>
class network_memory {
 public:
  using stream_ref = typename Device::stream_ref;
  using array = device_array<float, Device>;

  /// Allocates the arrays. `batch_size` is the maximum number of samples in a batch.
  network_memory(const Device& device, std::size_t batch_size)
      : parameters_(device, shape::parameters),
        gradients_(device, shape::parameters),
        first_moments_(device, shape::parameters),
        second_moments_(device, shape::parameters),
        pixels_(device, batch_size * shape::inputs),
        hidden1_(device, batch_size * shape::hidden1),
        hidden2_(device, batch_size * shape::hidden2),
        logits_(device, batch_size * shape::classes),
        gradient1_(device, batch_size * shape::hidden1),
        gradient2_(device, batch_size * shape::hidden2),
        state_(device, 1) {}

  [[nodiscard]] const array& parameters() const { return parameters_; }
  [[nodiscard]] const array& gradients() const { return gradients_; }

  /// Returns the addresses of all arrays, for steps that write their losses to `trace`.
  [[nodiscard]] network_view view(std::span<float> trace = {}) const {
    return {parameters_.data(), gradients_.data(), first_moments_.data(), second_moments_.data(),
            pixels_.data(),     hidden1_.data(),   hidden2_.data(),       logits_.data(),
            gradient1_.data(),  gradient2_.data(), state_.data(),         trace.data(),
            trace.size()};
  }

  /// Sets the initial parameters. Waits for the stream.
  void assign(std::span<const float> parameters, stream_ref stream) {
    const std::vector<float> zeros(shape::parameters);
    const kernel::step_state start{};
    parameters_.upload(parameters, stream);
    first_moments_.upload(zeros, stream);
    second_moments_.upload(zeros, stream);
    state_.upload({&start, 1}, stream);
  }

 private:
  array parameters_;
  array gradients_;
  array first_moments_;
  array second_moments_;
  array pixels_;
  array hidden1_;
  array hidden2_;
  array logits_;
  array gradient1_;
  array gradient2_;
  device_array<kernel::step_state, Device> state_;
};

/// The default for `before`, if no work precedes a step.
struct nothing_before {
  template <class Context>
  void operator()(const Context&, const network_view&) const {}
};

/// A 784-128-64-10 perceptron with ReLU, softmax cross-entropy and Adam, on the device of
/// `Backend`.
///
/// The images are in device memory, `count` x 784, either as bytes, which the network normalizes,
/// or as normalized floats. `train` and `evaluate` queue work and return. Nothing is allocated
/// after construction. Not thread-safe.
template <class Backend>
class network {
 public:
  using device_type = typename Backend::device_type;
  using stream_ref = typename Backend::stream_ref;

  /// Constructs a network. `batch_size` is the maximum number of samples in a batch. All parameters
  /// are 0 until `assign` is called.
  network(const device_type& device, const Backend& backend, std::size_t batch_size)
      : backend_(backend), memory_(device, batch_size) {}

  /// Restarts with these `shape::parameters` values. The moments, the step count and the trace
  /// position are reset to 0.
  void assign(std::span<const float> parameters, stream_ref stream) {
    memory_.assign(parameters, stream);
  }

  [[nodiscard]] const device_array<float, device_type>& parameters() const {
    return memory_.parameters();
  }
  /// Returns the gradients of the last step's mean loss, in parameter order. Some kernels do not
  /// store them.
  [[nodiscard]] const device_array<float, device_type>& gradients() const {
    return memory_.gradients();
  }

  /// Runs a step on `count` samples: forward, backward, Adam. The losses of all samples before the
  /// step are written to `trace`, after the losses of the previous step, or at its start if they do
  /// not fit. All pointers refer to device memory that must remain valid until the stream has
  /// finished the step. `before(context, view)` queues work that precedes the step and belongs to
  /// it.
  template <class Pixel, class Before = nothing_before>
  void train(const Pixel* images, const std::uint8_t* labels, std::size_t count,
             std::span<float> trace, stream_ref stream, const Before& before = {}) {
    backend_.enqueue(stream, [this, images, labels, count, trace, before](const auto& on) {
      const network_view all = memory_.view(trace);
      before(on, all);
      if constexpr (requires { on.train_fused(all, images, labels, count); }) {
        on.train_fused(all, images, labels, count);
      } else {
        on.each(1, kernel::begin{all.state, count, all.capacity});
        const float* inputs = forward(on, all, images, count);
        backward(on, all, inputs, labels, count);
        on.each(shape::parameters,
                kernel::adam_update{all.gradients, all.adam(), on.rates_of(all.state)});
      }
    });
  }

  /// Writes the number of correctly classified samples among `count` samples to `*right`. All
  /// pointers refer to device memory that must remain valid until the stream has finished this
  /// work.
  template <class Pixel>
  void evaluate(const Pixel* images, const std::uint8_t* labels, std::size_t count,
                std::uint64_t* right, stream_ref stream) {
    backend_.enqueue(stream, [this, images, labels, count, right](const auto& on) {
      const network_view all = memory_.view();
      forward(on, all, images, count);
      on.sum(count,
             kernel::is_right<shape::classes>{all.parameters + shape::bias3, labels, all.logits},
             right);
    });
  }

 private:
  Backend backend_;
  network_memory<device_type> memory_;
};

}  // namespace mlp
