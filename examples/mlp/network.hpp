// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <penstock/data/narrow/bfloat16.hpp>
#include <penstock/data/narrow/half.hpp>

#include "device_array.hpp"
#include "kernels.hpp"
#include "mixed.hpp"
#include "shape.hpp"
#include "step_options.hpp"
#include "transpose.hpp"

namespace mlp {

/// The work before a step that needs none.
struct nothing_before {
  template <class Context>
  void operator()(const Context&, const network_view&) const {}
};

/// All that a training goes on from: the parameters, and what Adam remembers of the steps before.
struct network_state {
  std::vector<float> parameters;
  std::vector<float> first_moments;
  std::vector<float> second_moments;
  kernel::step_state steps;
};

/// A perceptron 784-128-64-10 with ReLU, softmax cross-entropy and Adam, on the device of
/// `Backend`.
///
/// Takes images in device memory, `count` x 784: bytes, which it normalises itself, or floats that
/// are normalised. `train` and `evaluate` enqueue and return; nothing is allocated after
/// construction. Not thread-safe.
template <class Backend>
class network {
 public:
  using device_type = typename Backend::device_type;
  using stream_ref = typename Backend::stream_ref;

  /// For batches of up to `batch_size` samples. All parameters are 0 until `assign`.
  network(const device_type& device, const Backend& backend, std::size_t batch_size,
          const step_options& how = {})
      : backend_(backend),
        parameters_(device, shape::parameters),
        gradients_(device, shape::parameters),
        first_moments_(device, shape::parameters),
        second_moments_(device, shape::parameters),
        pixels_(device, batch_size * shape::inputs),
        hidden1_(device, batch_size * shape::hidden1),
        hidden2_(device, batch_size * shape::hidden2),
        logits_(device, batch_size * shape::classes),
        gradient1_(device, batch_size * shape::hidden1),
        gradient2_(device, batch_size * shape::hidden2),
        state_(device, 1) {
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

  /// Starts anew from these `shape::parameters` values: moments, step count and place in the trace
  /// are 0 again.
  void assign(std::span<const float> parameters, stream_ref stream) {
    const std::vector<float> zeros(shape::parameters);
    const kernel::step_state start{};
    parameters_.upload(parameters, 0, stream);
    first_moments_.upload(zeros, 0, stream);
    second_moments_.upload(zeros, 0, stream);
    state_.upload({&start, 1}, 0, stream);
    with_mixed([&](auto& mixed) { mixed.assign(stream); });
    round_weights(stream);
  }

  /// What `restore` goes on from, on this device or another one. Waits for the stream.
  [[nodiscard]] network_state saved(stream_ref stream) const {
    network_state copy;
    for (const auto& [from, to] : {std::pair{&parameters_, &copy.parameters},
                                   std::pair{&first_moments_, &copy.first_moments},
                                   std::pair{&second_moments_, &copy.second_moments}}) {
      to->resize(shape::parameters);
      from->download(*to, 0, stream);
    }
    state_.download({&copy.steps, 1}, 0, stream);
    return copy;
  }
  /// Goes on from there. Waits for the stream.
  void restore(const network_state& from, stream_ref stream) {
    parameters_.upload(from.parameters, 0, stream);
    first_moments_.upload(from.first_moments, 0, stream);
    second_moments_.upload(from.second_moments, 0, stream);
    state_.upload({&from.steps, 1}, 0, stream);
    round_weights(stream);
  }

  [[nodiscard]] const device_array<float, device_type>& parameters() const { return parameters_; }
  /// The gradients of the last step's mean loss, in the parameters' order; not with kernels that
  /// keep them to themselves.
  [[nodiscard]] const device_array<float, device_type>& gradients() const { return gradients_; }

  /// Where the gradient scaler stands; of a plain network, as at the start. Waits for the stream.
  [[nodiscard]] kernel::scaler_state scaler(stream_ref stream) const {
    kernel::scaler_state found{};
    with_mixed([&](const auto& mixed) { found = mixed.scaler(stream); });
    return found;
  }

  /// One step on `count` samples: forward, backward, Adam. Each sample's loss before the step goes
  /// to `trace`, after those of the previous step, or to its start where they do not fit. All
  /// pointers are to device memory that lives until the stream is past it. `before(context, view)`
  /// enqueues what is to go before, as part of the step. Where several batches make a step, only the
  /// one that `ends` it changes parameters.
  template <class Pixel, class Before = nothing_before>
  void train(const Pixel* images, const std::uint8_t* labels, std::size_t count,
             std::span<float> trace, stream_ref stream, const Before& before = {},
             bool ends = true) {
    const bool is_mixed = with_mixed([&](const auto& mixed) {
      backend_.enqueue(stream,
                       [this, &mixed, images, labels, count, ends, trace, before](const auto& on) {
                         const network_view all = view(trace);
                         before(on, all);
                         mixed.train(on, all, images, labels, count, ends);
                       });
    });
    if (is_mixed) return;
    backend_.enqueue(stream, [this, images, labels, count, trace, before](const auto& on) {
      const network_view all = view(trace);
      before(on, all);
      if constexpr (requires { on.train_fused(all, images, labels, count); }) {
        if (on.train_fused(all, images, labels, count)) return;
      }
      on.each(1, kernel::begin{all.state, count, all.capacity});
      const float* inputs = forward(on, images, count);
      backward(on, all, inputs, labels, count, 1.0F / static_cast<float>(count));
      using rates = decltype(on.rates_of(all.state));
      on.each(shape::parameters,
              kernel::adam_update<rates>{all.gradients, all.adam(), on.rates_of(all.state)});
    });
  }

  /// A part of a step that others have parts of too: `gradients` become those of `scale` times the
  /// sum of the losses of `count` samples, which go to `losses`. Nothing is learnt until `update`,
  /// and no step of `train` may come in between. All pointers as above.
  template <class Pixel>
  void differentiate(const Pixel* images, const std::uint8_t* labels, std::size_t count,
                     float scale, float* gradients, float* losses, stream_ref stream) {
    backend_.enqueue(stream, [=, this](const auto& on) {
      network_view all = view({losses, count});
      all.gradients = gradients;
      const float* inputs = forward(on, images, count);
      backward(on, all, inputs, labels, count, scale);
    });
  }
  /// Ends such a step: Adam by the sum of all parts' gradients.
  void update(const float* gradients, stream_ref stream) {
    backend_.enqueue(stream, [this, gradients](const auto& on) {
      const network_view all = view({});
      on.each(1, kernel::begin{all.state, 0, 0});
      using rates = decltype(on.rates_of(all.state));
      on.each(shape::parameters,
              kernel::adam_update<rates>{gradients, all.adam(), on.rates_of(all.state)});
    });
  }

  /// How many of `count` samples are classified rightly, into `*right`. All pointers are to device
  /// memory that lives until the stream is past it.
  template <class Pixel>
  void evaluate(const Pixel* images, const std::uint8_t* labels, std::size_t count,
                std::uint64_t* right, stream_ref stream) {
    backend_.enqueue(stream, [this, images, labels, count, right](const auto& on) {
      const bool is_mixed =
          with_mixed([&](const auto& mixed) { mixed.forward(on, view({}), images, count); });
      if (!is_mixed) forward(on, images, count);
      on.sum(count, kernel::is_right<shape::classes>{at(shape::bias3), labels, logits_.data()},
             right);
    });
  }

 private:
  using array = device_array<float, device_type>;

  /// Calls `function` with the mixed steps, if that is what this network does.
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

  /// Makes the narrow weights of a mixed network anew from the masters.
  void round_weights(stream_ref stream) {
    with_mixed([&](auto& mixed) {
      backend_.enqueue(stream,
                       [this, &mixed](const auto& on) { mixed.round_weights(on, view({})); });
    });
  }

  [[nodiscard]] network_view view(std::span<float> trace) const {
    return {parameters_.data(), gradients_.data(), first_moments_.data(), second_moments_.data(),
            pixels_.data(),     hidden1_.data(),   hidden2_.data(),       logits_.data(),
            gradient1_.data(),  gradient2_.data(), state_.data(),         trace.data(),
            trace.size()};
  }
  [[nodiscard]] const float* at(std::size_t parameter) const {
    return parameters_.data() + parameter;
  }

  /// Up to the logits, without their bias. Returns the normalised images.
  template <class Context, class Pixel>
  const float* forward(const Context& on, const Pixel* images, std::size_t count) {
    const float* inputs = nullptr;
    if constexpr (std::is_same_v<Pixel, float>) {
      inputs = images;
    } else {
      on.each(count * shape::inputs, kernel::normalise{images, pixels_.data()});
      inputs = pixels_.data();
    }
    on.template multiply<transpose::no, transpose::no>(shape::hidden1, count, shape::inputs,
                                                       at(shape::weight1), inputs, hidden1_.data());
    on.each(count * shape::hidden1,
            kernel::add_bias_relu<shape::hidden1>{at(shape::bias1), hidden1_.data()});

    on.template multiply<transpose::no, transpose::no>(shape::hidden2, count, shape::hidden1,
                                                       at(shape::weight2), hidden1_.data(),
                                                       hidden2_.data());
    on.each(count * shape::hidden2,
            kernel::add_bias_relu<shape::hidden2>{at(shape::bias2), hidden2_.data()});

    on.template multiply<transpose::no, transpose::no>(
        shape::classes, count, shape::hidden2, at(shape::weight3), hidden2_.data(), logits_.data());
    return inputs;
  }

  /// From the logits to all gradients, of `scale` times the sum of the losses. The logits become
  /// their own gradient.
  template <class Context>
  void backward(const Context& on, const network_view& all, const float* inputs,
                const std::uint8_t* labels, std::size_t count, float scale) {
    on.each(count, kernel::softmax_cross_entropy<shape::classes>{
                       at(shape::bias3), labels, all.logits, all.losses, all.state, scale});
    layer_gradients(on, shape::classes, shape::hidden2, count, all.logits, all.hidden2,
                    all.gradients + shape::weight3, all.gradients + shape::bias3);

    on.template multiply<transpose::yes, transpose::no>(
        shape::hidden2, count, shape::classes, at(shape::weight3), all.logits, all.gradient2);
    on.each(count * shape::hidden2, kernel::relu_gradient{all.hidden2, all.gradient2});
    layer_gradients(on, shape::hidden2, shape::hidden1, count, all.gradient2, all.hidden1,
                    all.gradients + shape::weight2, all.gradients + shape::bias2);

    on.template multiply<transpose::yes, transpose::no>(
        shape::hidden1, count, shape::hidden2, at(shape::weight2), all.gradient2, all.gradient1);
    on.each(count * shape::hidden1, kernel::relu_gradient{all.hidden1, all.gradient1});
    layer_gradients(on, shape::hidden1, shape::inputs, count, all.gradient1, inputs,
                    all.gradients + shape::weight1, all.gradients + shape::bias1);
  }

  /// The gradients of a layer's weights and bias from those of its outputs and from its inputs.
  template <class Context>
  static void layer_gradients(const Context& on, std::size_t outputs, std::size_t inputs,
                              std::size_t count, const float* gradient, const float* input,
                              float* weight, float* bias) {
    on.template multiply<transpose::no, transpose::yes>(outputs, inputs, count, gradient, input,
                                                        weight);
    on.sum_columns(outputs, count, gradient, bias);
  }

  Backend backend_;
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
  device_array<kernel::step_state, device_type> state_;
  std::variant<std::monostate, mixed_steps<Backend, float>, mixed_steps<Backend, penstock::half>,
               mixed_steps<Backend, penstock::bfloat16>>
      mixed_;
};

}  // namespace mlp
