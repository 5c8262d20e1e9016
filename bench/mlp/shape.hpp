// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.hpp"

#if defined(__CUDACC__)
#define MLP_KERNEL __host__ __device__
#else
#define MLP_KERNEL
#endif

namespace mlp {

/// Selects if a product transposes a matrix.
enum class transpose { no, yes };

/// The offsets of the parameters. All parameters are in one array, so that Adam is a single pass.
/// Weights are outputs x inputs, column-major. All offsets are multiples of 16 floats.
struct shape {
  static constexpr std::size_t inputs = 28 * 28;
  static constexpr std::size_t hidden1 = 128;
  static constexpr std::size_t hidden2 = 64;
  static constexpr std::size_t classes = 10;

  static constexpr std::size_t weight1 = 0;
  static constexpr std::size_t bias1 = weight1 + hidden1 * inputs;
  static constexpr std::size_t weight2 = bias1 + hidden1;
  static constexpr std::size_t bias2 = weight2 + hidden2 * hidden1;
  static constexpr std::size_t weight3 = bias2 + hidden2;
  static constexpr std::size_t bias3 = weight3 + classes * hidden2;
  static constexpr std::size_t parameters = bias3 + classes;
};

/// The device addresses of all arrays of a training step. Matrices have one column per sample.
struct network_view {
  float* parameters;
  float* gradients;
  float* first_moments;
  float* second_moments;
  float* pixels;     ///< normalized, for images that arrive as bytes
  float* hidden1;    ///< outputs of the first layer
  float* hidden2;    ///< outputs of the second layer
  float* logits;     ///< outputs of the third layer, and later their gradients
  float* gradient1;  ///< gradients of the sums of hidden1
  float* gradient2;  ///< gradients of the sums of hidden2
  kernel::step_state* state;
  float* losses;           ///< the trace of all losses
  std::uint64_t capacity;  ///< capacity of the trace

  [[nodiscard]] MLP_KERNEL kernel::adam_arrays adam() const {
    return {parameters, first_moments, second_moments};
  }
};

}  // namespace mlp

#undef MLP_KERNEL
