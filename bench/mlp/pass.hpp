// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels.hpp"
#include "shape.hpp"

namespace mlp {

/// The forward pass of a batch through the network and the backward pass to the gradients of all
/// parameters, for all precisions. Contains the device addresses of the products' operands; see
/// `kernels.hpp` for `Narrow` and `Stored`. Sums are floats in the `network_view`.
template <class Narrow, class Stored>
struct pass {
  const Stored* weights;  ///< in parameter order
  Stored* inputs;
  Stored* outputs1;
  Stored* outputs2;
  Stored* slopes1;
  Stored* slopes2;
  Stored* slopes3;

  /// Computes the logits without their bias. Returns the input of the first layer.
  template <class Context, class Pixel>
  const Stored* forward(const Context& on, const network_view& net, const Pixel* images,
                        std::size_t count) const {
    const Stored* first = inputs;
    if constexpr (std::is_same_v<Pixel, Narrow>) {
      first = images;  // normalized floats
    } else {
      on.each(count * shape::inputs, kernel::prepare<Pixel, Narrow, Stored>{images, inputs});
    }
    on.template multiply<transpose::no, transpose::no>(
        shape::hidden1, count, shape::inputs, weights + shape::weight1, first, net.hidden1);
    on.each(count * shape::hidden1, kernel::activate<shape::hidden1, Narrow, Stored>{
                                        net.parameters + shape::bias1, net.hidden1, outputs1});
    on.template multiply<transpose::no, transpose::no>(shape::hidden2, count, shape::hidden1,
                                                       weights + shape::weight2,
                                                       as_operand(outputs1), net.hidden2);
    on.each(count * shape::hidden2, kernel::activate<shape::hidden2, Narrow, Stored>{
                                        net.parameters + shape::bias2, net.hidden2, outputs2});
    on.template multiply<transpose::no, transpose::no>(shape::classes, count, shape::hidden2,
                                                       weights + shape::weight3,
                                                       as_operand(outputs2), net.logits);
    return first;
  }

  /// Computes all gradients from the logits, for `scale` times the sum of the losses and, with
  /// rounding, times `*loss_scale`. `first` is the result of `forward`. The logits are replaced by
  /// their gradient.
  template <class Context>
  void backward(const Context& on, const network_view& net, const Stored* first,
                const std::uint8_t* labels, std::size_t count, float scale,
                const float* loss_scale) const {
    on.each(count,
            kernel::cross_entropy<shape::classes, Narrow, Stored>{
                {net.parameters + shape::bias3, labels, net.logits, net.losses, net.state, scale},
                loss_scale,
                slopes3});
    sum<shape::classes, shape::hidden2>(on, count, slopes3, outputs2, net.logits,
                                        net.gradients + shape::weight3);
    on.template multiply<transpose::yes, transpose::no>(shape::hidden2, count, shape::classes,
                                                        weights + shape::weight3,
                                                        as_operand(slopes3), net.gradient2);
    on.each(count * shape::hidden2,
            kernel::slope<Narrow, Stored>{outputs2, net.gradient2, slopes2});
    sum<shape::hidden2, shape::hidden1>(on, count, slopes2, outputs1, net.gradient2,
                                        net.gradients + shape::weight2);
    on.template multiply<transpose::yes, transpose::no>(shape::hidden1, count, shape::hidden2,
                                                        weights + shape::weight2,
                                                        as_operand(slopes2), net.gradient1);
    on.each(count * shape::hidden1,
            kernel::slope<Narrow, Stored>{outputs1, net.gradient1, slopes1});
    sum<shape::hidden1, shape::inputs>(on, count, slopes1, first, net.gradient1,
                                       net.gradients + shape::weight1);
  }

 private:
  static const Stored* as_operand(const Stored* operand) { return operand; }

  /// Computes the gradients of a layer's weights from its operands, and the gradients of its bias
  /// from the unrounded slopes. The bias follows the weights in memory.
  template <std::size_t Outputs, std::size_t Inputs, class Context>
  static void sum(const Context& on, std::size_t count, const Stored* slopes, const Stored* input,
                  const float* slope, float* gradients) {
    on.template multiply<transpose::no, transpose::yes>(Outputs, Inputs, count, slopes, input,
                                                        gradients);
    on.sum_columns(Outputs, count, slope, gradients + Outputs * Inputs);
  }
};

static_assert(shape::bias1 - shape::weight1 == shape::hidden1 * shape::inputs &&
              shape::bias2 - shape::weight2 == shape::hidden2 * shape::hidden1 &&
              shape::bias3 - shape::weight3 == shape::classes * shape::hidden2);

/// Returns the pass in float, whose operands are the float sums themselves.
[[nodiscard]] inline pass<float, float> plain_pass(const network_view& net) {
  return {net.parameters, net.pixels,    net.hidden1, net.hidden2,
          net.gradient1,  net.gradient2, net.logits};
}

}  // namespace mlp
