// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <penstock_ext/narrow/half.hpp>

#include "device_array.hpp"
#include "kernels.hpp"
#include "mixed.hpp"
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
    parameters_.upload(parameters, 0, stream);
    first_moments_.upload(zeros, 0, stream);
    second_moments_.upload(zeros, 0, stream);
    state_.upload({&start, 1}, 0, stream);
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
  network(const device_type& device, const Backend& backend, std::size_t batch_size,
          const step_options& how = {})
      : backend_(backend), memory_(device, batch_size) {
    if (how.is_plain()) return;
    if (how.precision == precision_choice::fp16) {
      mixed_.template emplace<mixed_steps<Backend, penstock::half>>(device, batch_size,
                                                                    how.accumulate);
    } else if (how.precision == precision_choice::bf16) {
      mixed_.template emplace<mixed_steps<Backend, penstock::bfloat16>>(device, batch_size,
                                                                        how.accumulate);
    } else {
      mixed_.template emplace<mixed_steps<Backend, float>>(device, batch_size, how.accumulate);
    }
  }

  /// Restarts with these `shape::parameters` values. The moments, the step count and the trace
  /// position are reset to 0.
  void assign(std::span<const float> parameters, stream_ref stream) {
    memory_.assign(parameters, stream);
    with_mixed([&](auto& mixed) { mixed.assign(stream); });
    round_weights(stream);
  }

  [[nodiscard]] const device_array<float, device_type>& parameters() const {
    return memory_.parameters();
  }
  /// Returns the gradients of the last step's mean loss, in parameter order. Some kernels do not
  /// store them.
  [[nodiscard]] const device_array<float, device_type>& gradients() const {
    return memory_.gradients();
  }

  /// Waits for the stream and returns the state of the gradient scaler. A plain network returns the
  /// initial state.
  [[nodiscard]] kernel::scaler_state scaler(stream_ref stream) const {
    kernel::scaler_state found{};
    with_mixed([&](const auto& mixed) { found = mixed.scaler(stream); });
    return found;
  }

  /// Runs a step on `count` samples: forward, backward, Adam. The losses of all samples before the
  /// step are written to `trace`, after the losses of the previous step, or at its start if they do
  /// not fit. All pointers refer to device memory that must remain valid until the stream has
  /// finished the step. `before(context, view)` queues work that precedes the step and belongs to
  /// it. If a step consists of several batches, only the batch for which `ends` is true changes
  /// parameters.
  template <class Pixel, class Before = nothing_before>
  void train(const Pixel* images, const std::uint8_t* labels, std::size_t count,
             std::span<float> trace, stream_ref stream, const Before& before = {},
             bool ends = true) {
    const bool is_mixed = with_mixed([&](const auto& mixed) {
      backend_.enqueue(stream,
                       [this, &mixed, images, labels, count, ends, trace, before](const auto& on) {
                         const network_view all = memory_.view(trace);
                         before(on, all);
                         mixed.train(on, all, images, labels, count, ends);
                       });
    });
    if (is_mixed) return;
    backend_.enqueue(stream, [this, images, labels, count, trace, before](const auto& on) {
      const network_view all = memory_.view(trace);
      before(on, all);
      if constexpr (requires { on.train_fused(all, images, labels, count); }) {
        if (on.train_fused(all, images, labels, count)) return;
      }
      on.each(1, kernel::begin{all.state, count, all.capacity});
      const auto way = plain_pass(all);
      const float* inputs = way.forward(on, all, images, count);
      way.backward(on, all, inputs, labels, count, 1.0F / static_cast<float>(count), nullptr);
      using rates = decltype(on.rates_of(all.state));
      on.each(shape::parameters,
              kernel::adam_update<rates>{all.gradients, all.adam(), on.rates_of(all.state)});
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
      const bool is_mixed =
          with_mixed([&](const auto& mixed) { mixed.forward(on, all, images, count); });
      if (!is_mixed) plain_pass(all).forward(on, all, images, count);
      on.sum(count,
             kernel::is_right<shape::classes>{all.parameters + shape::bias3, labels, all.logits},
             right);
    });
  }

 private:
  /// Calls `function` with the mixed steps if this network uses them.
  template <class Function>
  bool with_mixed(const Function& function) {
    return visit_mixed(mixed_, function);
  }
  template <class Function>
  bool with_mixed(const Function& function) const {
    return visit_mixed(mixed_, function);
  }
  template <class Steps, class Function>
  static bool visit_mixed(Steps& mixed, const Function& function) {
    return std::visit(
        [&](auto& steps) {
          constexpr bool is_mixed =
              !std::is_same_v<std::remove_cvref_t<decltype(steps)>, std::monostate>;
          if constexpr (is_mixed) function(steps);
          return is_mixed;
        },
        mixed);
  }

  /// Recomputes the narrow weights of a mixed-precision network from the master weights.
  void round_weights(stream_ref stream) {
    with_mixed([&](auto& mixed) {
      backend_.enqueue(stream,
                       [this, &mixed](const auto& on) { mixed.round_weights(on, memory_.view()); });
    });
  }

  Backend backend_;
  network_memory<device_type> memory_;
  std::variant<std::monostate, mixed_steps<Backend, float>, mixed_steps<Backend, penstock::half>,
               mixed_steps<Backend, penstock::bfloat16>>
      mixed_;
};

}  // namespace mlp
