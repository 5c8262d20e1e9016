// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/tabulate.h>
#include <thrust/transform.h>

#include <penstock/order/random.hpp>

#include "backend.hpp"
#include "kernels.hpp"

namespace example {

/// The position of a layer in the parameters: its weights, inputs x outputs, and then its bias.
template <std::size_t Inputs, std::size_t Outputs, std::size_t First>
struct layer {
  static constexpr std::size_t inputs = Inputs;
  static constexpr std::size_t outputs = Outputs;
  static constexpr std::size_t weights = First;
  static constexpr std::size_t bias = First + Inputs * Outputs;
  static constexpr std::size_t end = bias + Outputs;
};
using layer1 = layer<28 * 28, 128, 0>;
using layer2 = layer<128, 64, layer1::end>;
using layer3 = layer<64, 10, layer2::end>;

/// Returns the initial parameters. Weights and biases are uniform in +-1/sqrt(inputs).
[[nodiscard]] inline std::vector<float> initial_parameters(std::uint64_t seed) {
  std::vector<float> values;
  penstock::sample_generator random{{.seed = seed}, 0};
  const auto draw = [&](std::size_t inputs, std::size_t end) {
    const float limit = 1.0F / std::sqrt(static_cast<float>(inputs));
    while (values.size() < end) values.push_back(penstock::uniform(random, -limit, limit));
  };
  draw(layer1::inputs, layer1::end);
  draw(layer2::inputs, layer2::end);
  draw(layer3::inputs, layer3::end);
  return values;
}

/// A perceptron 784-128-64-10 with ReLU, softmax cross-entropy and Adam, computed by Thrust and CUB
/// on the device of `Backend`. `step` and `count_right` enqueue work on the backend's stream and
/// return, without a wait or an allocation. All pointers refer to device memory, which must live
/// until the stream has finished that work. Only one thread may use the object.
template <class Backend>
class network {
  using array = device_array<float, typename Backend::device_type>;

 public:
  /// `batch_size` is the maximum. `backend` must outlive the network.
  network(const Backend& backend, std::size_t batch_size, std::uint64_t seed)
      : on_(backend),
        initial_(initial_parameters(seed)),
        parameters_(on_.device(), layer3::end),
        gradients_(on_.device(), layer3::end),
        first_moments_(on_.device(), layer3::end),
        second_moments_(on_.device(), layer3::end),
        transposed_(on_.device(), layer2::inputs * layer2::outputs),
        pixels_(on_.device(), batch_size * layer1::inputs),
        hidden1_(on_.device(), batch_size * layer1::outputs),
        hidden2_(on_.device(), batch_size * layer2::outputs),
        logits_(on_.device(), batch_size * layer3::outputs),
        slopes1_(on_.device(), batch_size * layer1::outputs),
        slopes2_(on_.device(), batch_size * layer2::outputs),
        losses_(on_.device(), batch_size),
        state_(on_.device(), 1) {
    restart();
  }

  /// Restores the initial parameters. Waits for the stream.
  void restart() {
    const std::vector<float> zeros(layer3::end);
    parameters_.upload(initial_, on_.stream());
    first_moments_.upload(zeros, on_.stream());
    second_moments_.upload(zeros, on_.stream());
    const auto start = kernel::step_state::after(0);
    state_.upload({&start, 1}, on_.stream());
  }
  /// Returns a copy of the parameters. Waits for the stream.
  [[nodiscard]] std::vector<float> parameters() const {
    std::vector<float> copy(layer3::end);
    parameters_.download(copy, on_.stream());
    return copy;
  }

  /// Runs one step on `count` images and their labels. For step n since `restart`, writes the mean
  /// loss before the step to `losses[n]` in device memory. A loop that read the loss on the host
  /// would wait for the GPU in every step. `losses` may be null. The step can be captured as a CUDA
  /// graph: a replay takes n and the values that depend on it from device memory.
  void step(const std::uint8_t* images, const std::uint8_t* labels, std::size_t count,
            float* losses) const {
    const float share = 1.0F / static_cast<float>(count);
    forward(images, count);
    each(count,
         kernel::cross_entropy<layer3::outputs>{labels, logits_.data(), losses_.data(), share});
    on_.sum(count, kernel::loss_share{losses_.data(), share}, &state_.data()->loss);

    differentiate<layer3>(hidden2_, logits_, count);
    propagate<layer3>(logits_, hidden2_, slopes2_, count);
    differentiate<layer2>(hidden1_, slopes2_, count);
    propagate<layer2>(slopes2_, hidden1_, slopes1_, count);
    differentiate<layer1>(pixels_, slopes1_, count);
    each(layer3::end, kernel::adam{state_.data(), gradients_.data(), parameters_.data(),
                                   first_moments_.data(), second_moments_.data()});
    each(1, kernel::finish_step{state_.data(), losses});
  }

  /// Writes the number of correctly classified images among `count` images to `*right`.
  void count_right(const std::uint8_t* images, const std::uint8_t* labels, std::size_t count,
                   float* right) {
    forward(images, count);
    on_.sum(count, kernel::is_right<layer3::outputs>{labels, logits_.data()}, right);
  }

 private:
  template <class Kernel>
  void each(std::size_t count, const Kernel& kernel) const {
    thrust::for_each_n(on_.policy(), thrust::counting_iterator<std::size_t>{0}, count, kernel);
  }

  /// Computes out = bias + a * b for `rows` rows and `Columns` columns.
  template <std::size_t Columns, class A, class B>
  void multiply(const A& a, const B& b, const float* bias, float* out, std::size_t rows,
                std::size_t terms) const {
    constexpr std::size_t width =
        Columns % Backend::tile_width == 0 ? Backend::tile_width : Columns;
    const kernel::product<Backend::tile_height, width, Columns, A, B> tiled{a,   b,    bias,
                                                                            out, rows, terms};
    each(tiled.tiles(), tiled);
  }

  void forward(const std::uint8_t* images, std::size_t count) const {
    thrust::transform(on_.policy(), images, images + count * layer1::inputs, pixels_.data(),
                      kernel::normalise{});
    apply<layer1>(pixels_, hidden1_, count);
    rectify(hidden1_, count * layer1::outputs);
    apply<layer2>(hidden1_, hidden2_, count);
    rectify(hidden2_, count * layer2::outputs);
    apply<layer3>(hidden2_, logits_, count);
  }
  template <class Layer>
  void apply(const array& in, const array& out, std::size_t count) const {
    multiply<Layer::outputs>(kernel::matrix<Layer::inputs>{in.data()}, weights<Layer>(),
                             parameters_.data() + Layer::bias, out.data(), count, Layer::inputs);
  }
  void rectify(const array& outputs, std::size_t count) const {
    thrust::transform(on_.policy(), outputs.data(), outputs.data() + count, outputs.data(),
                      kernel::relu{});
  }

  /// Computes the gradients of a layer's weights and bias from its inputs and the slopes of its
  /// outputs.
  template <class Layer>
  void differentiate(const array& in, const array& slopes, std::size_t count) const {
    const kernel::matrix<Layer::outputs> b{slopes.data()};
    float* to = gradients_.data();
    multiply<Layer::outputs>(kernel::matrix<Layer::inputs>{in.data()}.transposed(), b, nullptr,
                             to + Layer::weights, Layer::inputs, count);
    multiply<Layer::outputs>(kernel::ones{}, b, nullptr, to + Layer::bias, 1, count);
  }
  /// Computes the slopes of a layer's inputs, which are the outputs of a ReLU.
  template <class Layer>
  void propagate(const array& slopes, const array& in, const array& to, std::size_t count) const {
    // The product needs its right operand stored by rows, for vector loads.
    const auto turned = weights<Layer>().transposed();
    thrust::tabulate(on_.policy(), transposed_.data(),
                     transposed_.data() + Layer::inputs * Layer::outputs,
                     kernel::element<Layer::inputs, decltype(turned)>{turned});
    multiply<Layer::inputs>(kernel::matrix<Layer::outputs>{slopes.data()},
                            kernel::matrix<Layer::inputs>{transposed_.data()}, nullptr, to.data(),
                            count, Layer::outputs);
    thrust::transform(on_.policy(), to.data(), to.data() + count * Layer::inputs, in.data(),
                      to.data(), kernel::relu_slope{});
  }

  template <class Layer>
  [[nodiscard]] kernel::matrix<Layer::outputs> weights() const {
    return {parameters_.data() + Layer::weights};
  }

  const Backend& on_;
  std::vector<float> initial_;
  array parameters_;
  array gradients_;
  array first_moments_;
  array second_moments_;
  array transposed_;  // the weights for the backward pass
  array pixels_;
  array hidden1_;
  array hidden2_;
  array logits_;   // later, the slopes of the logits
  array slopes1_;  // slopes of the input of hidden1_
  array slopes2_;
  array losses_;  // one per sample of the batch
  device_array<kernel::step_state, typename Backend::device_type> state_;
};

}  // namespace example
