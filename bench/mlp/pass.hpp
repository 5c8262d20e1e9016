// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels.hpp"
#include "shape.hpp"

/// The forward pass of a batch through the network, and the backward pass to the gradients of all
/// parameters, one operation per launch.
namespace mlp {

static_assert(shape::bias1 - shape::weight1 == shape::hidden1 * shape::inputs &&
              shape::bias2 - shape::weight2 == shape::hidden2 * shape::hidden1 &&
              shape::bias3 - shape::weight3 == shape::classes * shape::hidden2);

/// Computes the logits without their bias. Returns the input of the first layer.
template <class Context, class Pixel>
const float* forward(const Context& on, const network_view& net, const Pixel* images,
                     std::size_t count) {
  const float* first = net.pixels;
  if constexpr (std::is_same_v<Pixel, float>) {
    first = images;  // normalized floats
  } else {
    on.each(count * shape::inputs, kernel::normalise<Pixel>{images, net.pixels});
  }
  const float* parameters = net.parameters;
  on.template multiply<transpose::no, transpose::no>(
      shape::hidden1, count, shape::inputs, parameters + shape::weight1, first, net.hidden1);
  on.each(count * shape::hidden1,
          kernel::activate<shape::hidden1>{parameters + shape::bias1, net.hidden1});
  on.template multiply<transpose::no, transpose::no>(
      shape::hidden2, count, shape::hidden1, parameters + shape::weight2,
      static_cast<const float*>(net.hidden1), net.hidden2);
  on.each(count * shape::hidden2,
          kernel::activate<shape::hidden2>{parameters + shape::bias2, net.hidden2});
  on.template multiply<transpose::no, transpose::no>(
      shape::classes, count, shape::hidden2, parameters + shape::weight3,
      static_cast<const float*>(net.hidden2), net.logits);
  return first;
}

/// Computes the gradients of a layer's weights from the slopes and the input of the layer, and the
/// gradients of its bias. The bias follows the weights in memory.
template <std::size_t Outputs, std::size_t Inputs, class Context>
void sum_gradients(const Context& on, std::size_t count, const float* slopes, const float* input,
                   float* gradients) {
  on.template multiply<transpose::no, transpose::yes>(Outputs, Inputs, count, slopes, input,
                                                      gradients);
  on.sum_columns(Outputs, count, slopes, gradients + Outputs * Inputs);
}

/// Computes all gradients of the mean loss from the logits. `first` is the result of `forward`. The
/// logits are replaced by their gradient.
template <class Context>
void backward(const Context& on, const network_view& net, const float* first,
              const std::uint8_t* labels, std::size_t count) {
  on.each(count, kernel::softmax_cross_entropy<shape::classes>{
                     net.parameters + shape::bias3, labels, net.logits, net.losses, net.state,
                     1.0F / static_cast<float>(count)});
  sum_gradients<shape::classes, shape::hidden2>(on, count, net.logits, net.hidden2,
                                                net.gradients + shape::weight3);
  on.template multiply<transpose::yes, transpose::no>(
      shape::hidden2, count, shape::classes, net.parameters + shape::weight3,
      static_cast<const float*>(net.logits), net.gradient2);
  on.each(count * shape::hidden2, kernel::slope{net.hidden2, net.gradient2});
  sum_gradients<shape::hidden2, shape::hidden1>(on, count, net.gradient2, net.hidden1,
                                                net.gradients + shape::weight2);
  on.template multiply<transpose::yes, transpose::no>(
      shape::hidden1, count, shape::hidden2, net.parameters + shape::weight2,
      static_cast<const float*>(net.gradient2), net.gradient1);
  on.each(count * shape::hidden1, kernel::slope{net.hidden1, net.gradient1});
  sum_gradients<shape::hidden1, shape::inputs>(on, count, net.gradient1, first,
                                               net.gradients + shape::weight1);
}

}  // namespace mlp
