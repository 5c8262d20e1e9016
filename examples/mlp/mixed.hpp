// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <penstock/data/narrow/half.hpp>

#include "device_array.hpp"
#include "kernels.hpp"
#include "mixed_kernels.hpp"
#include "shape.hpp"
#include "transpose.hpp"

namespace mlp {

/// The steps of a network whose products take operands of type `Narrow` and sum in float: half,
/// bfloat16, or float, where several batches make a step. Parameters, moments and gradients are
/// float; of weights, pixels, outputs and slopes there are rounded copies. With half, losses are
/// scaled, and a step whose gradients overflow changes nothing but the scale.
///
/// Everything that a step decides is decided on the device: the host never waits for it.
template <class Backend, class Narrow>
class mixed_steps {
 public:
  using device_type = typename Backend::device_type;
  using stream_ref = typename Backend::stream_ref;
  /// What an operand lies in memory as.
  using stored = typename Backend::template stored_type<Narrow>;

  /// For batches of up to `batch_size` samples, `accumulate` of which make a step.
  mixed_steps(const device_type& device, std::size_t batch_size, std::size_t accumulate)
      : planned_(batch_size * accumulate),
        weights_(device, shape::parameters),
        inputs_(device, batch_size * shape::inputs),
        outputs1_(device, batch_size * shape::hidden1),
        outputs2_(device, batch_size * shape::hidden2),
        slopes1_(device, batch_size * shape::hidden1),
        slopes2_(device, batch_size * shape::hidden2),
        slopes3_(device, batch_size * shape::classes),
        sums_(device, shape::parameters),
        scaler_(device, 1) {}

  /// Starts anew, with no step under way.
  void assign(stream_ref stream) {
    const std::vector<float> zeros(shape::parameters);
    kernel::scaler_state start{};
    if (scales) start.scale = kernel::scaler_state::first_scale;
    sums_.upload(zeros, 0, stream);
    scaler_.upload({&start, 1}, 0, stream);
  }
  /// Rounds the parameters, for the first products.
  template <class Context>
  void round_weights(const Context& on, const network_view& net) const {
    on.each(shape::parameters,
            kernel::round_values<Narrow, stored>{net.parameters, weights_.data()});
  }

  /// Where the scaler stands. Waits for the stream.
  [[nodiscard]] kernel::scaler_state scaler(stream_ref stream) const {
    kernel::scaler_state copy{};
    scaler_.download({&copy, 1}, 0, stream);
    return copy;
  }

  /// Forward and backward over a batch; with `ends`, the update by all batches since the last one.
  template <class Context, class Pixel>
  void train(const Context& on, const network_view& net, const Pixel* images,
             const std::uint8_t* labels, std::size_t count, bool ends) const {
    on.each(1, kernel::begin_part{net.state, scaler_.data(), count, net.capacity});
    forward(on, net, images, count);
    backward(on, net, labels, count);
    on.each(shape::parameters, kernel::add_gradients{net.gradients, sums_.data(), scaler_.data()});
    if (!ends) return;
    on.each(1, kernel::settle{net.state, scaler_.data(), static_cast<float>(planned_), scales});
    const auto rates = on.rates_of(net.state);
    const auto scaler = on.settled(scaler_.data());
    on.each(shape::parameters,
            kernel::scaled_update<Narrow, stored, std::remove_const_t<decltype(rates)>,
                                  std::remove_const_t<decltype(scaler)>>{
                sums_.data(), net.adam(), weights_.data(), rates, scaler});
  }

  /// Up to the logits, without their bias.
  template <class Context, class Pixel>
  void forward(const Context& on, const network_view& net, const Pixel* images,
               std::size_t count) const {
    on.each(count * shape::inputs,
            kernel::normalise_rounded<Pixel, Narrow, stored>{images, inputs_.data()});
    on.template multiply<transpose::no, transpose::no>(
        shape::hidden1, count, shape::inputs, at(shape::weight1), in(inputs_), net.hidden1);
    on.each(count * shape::hidden1,
            kernel::activate_rounded<shape::hidden1, Narrow, stored>{
                net.parameters + shape::bias1, net.hidden1, outputs1_.data()});
    on.template multiply<transpose::no, transpose::no>(
        shape::hidden2, count, shape::hidden1, at(shape::weight2), in(outputs1_), net.hidden2);
    on.each(count * shape::hidden2,
            kernel::activate_rounded<shape::hidden2, Narrow, stored>{
                net.parameters + shape::bias2, net.hidden2, outputs2_.data()});
    on.template multiply<transpose::no, transpose::no>(
        shape::classes, count, shape::hidden2, at(shape::weight3), in(outputs2_), net.logits);
  }

 private:
  using array = device_array<stored, device_type>;
  /// Only half has so few exponents that gradients vanish without a scale.
  static constexpr bool scales = std::is_same_v<Narrow, penstock::half>;

  [[nodiscard]] const stored* at(std::size_t parameter) const {
    return weights_.data() + parameter;
  }
  [[nodiscard]] static const stored* in(const array& operand) { return operand.data(); }

  template <class Context>
  void backward(const Context& on, const network_view& net, const std::uint8_t* labels,
                std::size_t count) const {
    on.each(count, kernel::cross_entropy_rounded<shape::classes, Narrow, stored>{
                       {net.parameters + shape::bias3, labels, net.logits, net.losses, net.state,
                        1.0F / static_cast<float>(planned_)},
                       scaler_.data(),
                       slopes3_.data()});
    layer_gradients(on, shape::classes, shape::hidden2, count, slopes3_, outputs2_, net.logits,
                    net.gradients + shape::weight3, net.gradients + shape::bias3);
    on.template multiply<transpose::yes, transpose::no>(
        shape::hidden2, count, shape::classes, at(shape::weight3), in(slopes3_), net.gradient2);
    on.each(count * shape::hidden2, kernel::relu_gradient_rounded<Narrow, stored>{
                                        outputs2_.data(), net.gradient2, slopes2_.data()});
    layer_gradients(on, shape::hidden2, shape::hidden1, count, slopes2_, outputs1_, net.gradient2,
                    net.gradients + shape::weight2, net.gradients + shape::bias2);
    on.template multiply<transpose::yes, transpose::no>(
        shape::hidden1, count, shape::hidden2, at(shape::weight2), in(slopes2_), net.gradient1);
    on.each(count * shape::hidden1, kernel::relu_gradient_rounded<Narrow, stored>{
                                        outputs1_.data(), net.gradient1, slopes1_.data()});
    layer_gradients(on, shape::hidden1, shape::inputs, count, slopes1_, inputs_, net.gradient1,
                    net.gradients + shape::weight1, net.gradients + shape::bias1);
  }

  /// The gradients of a layer's weights from the rounded slopes and inputs, those of its bias from
  /// the slopes as they are.
  template <class Context>
  static void layer_gradients(const Context& on, std::size_t outputs, std::size_t inputs,
                              std::size_t count, const array& slopes, const array& input,
                              const float* slope, float* weight, float* bias) {
    on.template multiply<transpose::no, transpose::yes>(outputs, inputs, count, in(slopes),
                                                        in(input), weight);
    on.sum_columns(outputs, count, slope, bias);
  }

  std::size_t planned_;  // samples of a step
  array weights_;
  array inputs_;
  array outputs1_;
  array outputs2_;
  array slopes1_;
  array slopes2_;
  array slopes3_;
  device_array<float, device_type> sums_;
  device_array<kernel::scaler_state, device_type> scaler_;
};

}  // namespace mlp
