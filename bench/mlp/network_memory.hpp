// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "device_array.hpp"
#include "kernels.hpp"
#include "network_state.hpp"
#include "shape.hpp"

namespace mlp {

/// The arrays of a network in float on one device, taken once.
template <class Device>
class network_memory {
 public:
  using stream_ref = typename Device::stream_ref;
  using array = device_array<float, Device>;

  /// For batches of up to `batch_size` samples.
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

  /// All of it, for steps whose losses go to `trace`.
  [[nodiscard]] network_view view(std::span<float> trace = {}) const {
    return {parameters_.data(), gradients_.data(), first_moments_.data(), second_moments_.data(),
            pixels_.data(),     hidden1_.data(),   hidden2_.data(),       logits_.data(),
            gradient1_.data(),  gradient2_.data(), state_.data(),         trace.data(),
            trace.size()};
  }

  /// These parameters, before any step. Waits for the stream.
  void assign(std::span<const float> parameters, stream_ref stream) {
    const std::vector<float> zeros(shape::parameters);
    const kernel::step_state start{};
    parameters_.upload(parameters, 0, stream);
    first_moments_.upload(zeros, 0, stream);
    second_moments_.upload(zeros, 0, stream);
    state_.upload({&start, 1}, 0, stream);
  }
  /// Its part of what a training goes on from. Waits for the stream.
  void save(network_state& to, stream_ref stream) const {
    for (const auto& [from, values] :
         {std::pair{&parameters_, &to.parameters}, std::pair{&first_moments_, &to.first_moments},
          std::pair{&second_moments_, &to.second_moments}}) {
      values->resize(shape::parameters);
      from->download(*values, 0, stream);
    }
    state_.download({&to.steps, 1}, 0, stream);
  }
  /// Goes on from there. Waits for the stream.
  void restore(const network_state& from, stream_ref stream) {
    parameters_.upload(from.parameters, 0, stream);
    first_moments_.upload(from.first_moments, 0, stream);
    second_moments_.upload(from.second_moments, 0, stream);
    state_.upload({&from.steps, 1}, 0, stream);
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

}  // namespace mlp
