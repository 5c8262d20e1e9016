// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <penstock_ext/narrow/half.hpp>

#include "device_array.hpp"
#include "kernels.hpp"
#include "pass.hpp"
#include "shape.hpp"

namespace mlp {

/// Rounded copies of all operands of products: weights, pixels, outputs and slopes.
template <class Backend, class Narrow>
class rounded_copies {
 public:
  using device_type = typename Backend::device_type;
  /// The type of an operand in memory.
  using stored = typename Backend::template stored_type<Narrow>;

  rounded_copies(const device_type& device, std::size_t batch_size)
      : weights_(device, shape::parameters),
        inputs_(device, batch_size * shape::inputs),
        outputs1_(device, batch_size * shape::hidden1),
        outputs2_(device, batch_size * shape::hidden2),
        slopes1_(device, batch_size * shape::hidden1),
        slopes2_(device, batch_size * shape::hidden2),
        slopes3_(device, batch_size * shape::classes) {}

  [[nodiscard]] stored* weights() const { return weights_.data(); }
  [[nodiscard]] pass<Narrow, stored> pass_of(const network_view&) const {
    return {weights_.data(), inputs_.data(),  outputs1_.data(), outputs2_.data(),
            slopes1_.data(), slopes2_.data(), slopes3_.data()};
  }

 private:
  using array = device_array<stored, device_type>;
  array weights_;
  array inputs_;
  array outputs1_;
  array outputs2_;
  array slopes1_;
  array slopes2_;
  array slopes3_;
};

/// Operands of type float need no rounded copies.
template <class Backend>
class rounded_copies<Backend, float> {
 public:
  using stored = float;
  rounded_copies(const typename Backend::device_type&, std::size_t) {}
  [[nodiscard]] static float* weights() { return nullptr; }
  [[nodiscard]] static pass<float, float> pass_of(const network_view& net) {
    return plain_pass(net);
  }
};

/// The steps of a network whose products have operands of type `Narrow` and float sums. `Narrow` is
/// half, bfloat16, or float if a step consists of several batches. Parameters, moments and
/// gradients are float. With half, losses are scaled, and a step whose gradients overflow changes
/// only the scale.
///
/// The device makes all decisions of a step, so the host never waits for them.
template <class Backend, class Narrow>
class mixed_steps {
 public:
  using device_type = typename Backend::device_type;
  using stream_ref = typename Backend::stream_ref;
  using stored = typename rounded_copies<Backend, Narrow>::stored;

  /// Allocates memory. `batch_size` is the maximum number of samples in a batch, and a step
  /// consists of `accumulate` batches.
  mixed_steps(const device_type& device, std::size_t batch_size, std::size_t accumulate)
      : planned_(batch_size * accumulate),
        copies_(device, batch_size),
        sums_(device, shape::parameters),
        scaler_(device, 1) {}

  /// Resets the state. Afterwards, no step is in progress.
  void assign(stream_ref stream) {
    const std::vector<float> zeros(shape::parameters);
    kernel::scaler_state start{};
    if (scales) start.scale = kernel::scaler_state::first_scale;
    sums_.upload(zeros, 0, stream);
    scaler_.upload({&start, 1}, 0, stream);
  }
  /// Rounds the parameters for the first products.
  template <class Context>
  void round_weights(const Context& on, const network_view& net) const {
    if constexpr (kernel::is_rounded<Narrow>) {
      on.each(shape::parameters,
              kernel::round_values<Narrow, stored>{net.parameters, copies_.weights()});
    }
  }

  /// Waits for the stream and returns the scaler state.
  [[nodiscard]] kernel::scaler_state scaler(stream_ref stream) const {
    kernel::scaler_state copy{};
    scaler_.download({&copy, 1}, 0, stream);
    return copy;
  }

  /// Runs the forward and backward pass over a batch. If `ends` is true, then updates the
  /// parameters with the gradients of all batches since the last update.
  template <class Context, class Pixel>
  void train(const Context& on, const network_view& net, const Pixel* images,
             const std::uint8_t* labels, std::size_t count, bool ends) const {
    on.each(1, kernel::begin_part{net.state, scaler_.data(), count, net.capacity});
    const auto way = copies_.pass_of(net);
    const stored* first = way.forward(on, net, images, count);
    way.backward(on, net, first, labels, count, 1.0F / static_cast<float>(planned_),
                 &scaler_.data()->scale);
    on.each(shape::parameters, kernel::add_gradients{net.gradients, sums_.data(), scaler_.data()});
    if (!ends) return;
    on.each(1, kernel::settle{net.state, scaler_.data(), static_cast<float>(planned_), scales});
    const auto rates = on.rates_of(net.state);
    const auto scaler = on.settled(scaler_.data());
    on.each(shape::parameters,
            kernel::scaled_update<Narrow, stored, std::remove_const_t<decltype(rates)>,
                                  std::remove_const_t<decltype(scaler)>>{
                sums_.data(), net.adam(), copies_.weights(), rates, scaler});
  }

  /// Computes the logits without their bias.
  template <class Context, class Pixel>
  void forward(const Context& on, const network_view& net, const Pixel* images,
               std::size_t count) const {
    copies_.pass_of(net).forward(on, net, images, count);
  }

 private:
  /// Only half has an exponent range so small that gradients vanish unless they are scaled.
  static constexpr bool scales = std::is_same_v<Narrow, penstock::half>;

  std::size_t planned_;  // number of samples in a step
  rounded_copies<Backend, Narrow> copies_;
  device_array<float, device_type> sums_;
  device_array<kernel::scaler_state, device_type> scaler_;
};

}  // namespace mlp
