// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define MLP_KERNEL __host__ __device__
#else
#define MLP_KERNEL
#endif

/// The elementwise work of the network: functions of one index, for `thrust::for_each_n` over a
/// counting iterator. The same source runs on any Thrust system. Matrices are column-major with one
/// column per sample, as in BLAS, so a batch of images is a matrix without conversion.
namespace mlp::kernel {

/// Normalizes a pixel: (x / 255 - 0.1307) / 0.3081, with the mean and deviation of MNIST, and with
/// the two divisions folded into constants. All modes use this expression.
MLP_KERNEL inline float normalised(std::uint8_t pixel) {
  constexpr double mean = 0.1307;
  constexpr double deviation = 0.3081;
  constexpr auto scale = static_cast<float>(1.0 / (255.0 * deviation));
  constexpr auto shift = static_cast<float>(-mean / deviation);
  return static_cast<float>(pixel) * scale + shift;
}
/// Returns the pixel unchanged, because the workers have already normalized the wide workload.
MLP_KERNEL inline float normalised(float pixel) { return pixel; }

/// The factors of Adam that change from step to step.
struct adam_rates {
  float rate;     // lr * sqrt(1 - beta2^t) / (1 - beta1^t)
  float epsilon;  // eps * sqrt(1 - beta2^t)
};

/// Adam's constants (Kingma and Ba, 2015).
struct adam {
  static constexpr double learning_rate = 1e-3;
  static constexpr float beta1 = 0.9F;
  static constexpr float beta2 = 0.999F;
  static constexpr double epsilon = 1e-8;
};

/// The state that changes from step to step. It is stored in device memory, so that a step captured
/// as a CUDA graph can be replayed unchanged.
struct step_state {
  std::uint64_t first = 0;  // position of this step's losses in the trace
  std::uint64_t next = 0;   // position of the next step's losses, if there is space
  double first_power = 1.0;
  double second_power = 1.0;
  adam_rates rates{};
};

/// Returns the position for the losses of the next step with `count` samples, in a trace of
/// `capacity` losses.
MLP_KERNEL inline std::uint64_t coming_place(const step_state& state, std::uint64_t count,
                                             std::uint64_t capacity) {
  return state.next + count > capacity ? 0 : state.next;
}

/// Sets the trace position of a new batch.
MLP_KERNEL inline void begin_trace(step_state& state, std::uint64_t count, std::uint64_t capacity) {
  state.first = coming_place(state, count, capacity);
  state.next = state.first + count;
}

/// Computes the factors of Adam for the next step, which correct the bias of the moments. The order
/// of operations follows the last note in section 2 of the Adam paper.
MLP_KERNEL inline void advance_rates(step_state& state) {
  state.first_power *= static_cast<double>(adam::beta1);
  state.second_power *= static_cast<double>(adam::beta2);
  const double correction = std::sqrt(1.0 - state.second_power);
  state.rates = {static_cast<float>(adam::learning_rate * correction / (1.0 - state.first_power)),
                 static_cast<float>(adam::epsilon * correction)};
}

/// Begins a step that consists of a single batch.
MLP_KERNEL inline void begin_step(step_state& state, std::uint64_t count, std::uint64_t capacity) {
  begin_trace(state, count, capacity);
  advance_rates(state);
}

struct begin {
  step_state* state;
  std::uint64_t count;
  std::uint64_t capacity;
  MLP_KERNEL void operator()(std::size_t) const { begin_step(*state, count, capacity); }
};

template <class Pixel>
struct normalise {
  const Pixel* pixels;
  float* out;
  MLP_KERNEL void operator()(std::size_t i) const { out[i] = normalised(pixels[i]); }
};

/// Begins a step and normalizes the pixels.
struct begin_and_normalise {
  begin begins;
  normalise<std::uint8_t> normalises;
  MLP_KERNEL void operator()(std::size_t i) const {
    if (i == 0) begins(0);
    normalises(i);
  }
};

/// Computes one element of c (m x n) = a (m x k) * b (k x n), for products too small for a library.
struct product {
  std::size_t m;
  std::size_t k;
  const float* a;
  const float* b;
  float* c;
  MLP_KERNEL void operator()(std::size_t i) const {
    const float* row = a + i % m;
    const float* column = b + i / m * k;
    float sum = 0.0F;
    for (std::size_t p = 0; p < k; ++p) sum += row[p * m] * column[p];
    c[i] = sum;
  }
};

MLP_KERNEL inline float relu(float x) { return x > 0.0F ? x : 0.0F; }

/// Propagates the gradient through ReLU: returns the gradient if the output is positive, and
/// otherwise 0.
MLP_KERNEL inline float relu_slope(float output, float gradient) {
  return output > 0.0F ? gradient : 0.0F;
}

/// For sample i, adds the bias to the logits, stores the cross-entropy after softmax, and replaces
/// the logits with the gradient of the batch's mean loss.
template <std::size_t Classes>
struct softmax_cross_entropy {
  const float* bias;
  const std::uint8_t* labels;
  float* logits;
  float* losses;            // the losses of all steps
  const step_state* state;  // contains the position of this step's losses in the trace
  float scale;              // 1 divided by the number of samples in the batch

  MLP_KERNEL void operator()(std::size_t i) const {
    float* row = logits + i * Classes;
    float largest = row[0] += bias[0];
    for (std::size_t c = 1; c < Classes; ++c) {
      row[c] += bias[c];
      largest = row[c] > largest ? row[c] : largest;
    }
    float sum = 0.0F;
    const std::size_t label = labels[i];
    const float target = row[label] - largest;
    for (std::size_t c = 0; c < Classes; ++c) {
      row[c] = std::exp(row[c] - largest);
      sum += row[c];
    }
    losses[state->first + i] = std::log(sum) - target;
    const float factor = scale / sum;
    for (std::size_t c = 0; c < Classes; ++c) row[c] *= factor;
    row[label] -= scale;
  }
};

/// Returns 1 if the largest logit of sample i, including bias, belongs to its label, and otherwise
/// 0.
template <std::size_t Classes>
struct is_right {
  const float* bias;
  const std::uint8_t* labels;
  const float* logits;

  MLP_KERNEL std::uint64_t operator()(std::size_t i) const {
    const float* row = logits + i * Classes;
    std::size_t best = 0;
    for (std::size_t c = 1; c < Classes; ++c) {
      if (row[c] + bias[c] > row[best] + bias[best]) best = c;
    }
    return best == labels[i] ? 1U : 0U;
  }
};

/// Converts a loss to double, so that many losses can be summed accurately.
struct loss_at {
  const float* losses;
  MLP_KERNEL double operator()(std::size_t i) const { return static_cast<double>(losses[i]); }
};

/// The parameters and their moments. All arrays have the same order.
struct adam_arrays {
  float* parameter;
  float* first_moment;
  float* second_moment;

  /// Updates parameter i with its gradient.
  MLP_KERNEL void update(std::size_t i, float gradient, adam_rates rates) const {
    const float m = adam::beta1 * first_moment[i] + (1.0F - adam::beta1) * gradient;
    const float v = adam::beta2 * second_moment[i] + (1.0F - adam::beta2) * (gradient * gradient);
    first_moment[i] = m;
    second_moment[i] = v;
    parameter[i] -= rates.rate * m / (std::sqrt(v) + rates.epsilon);
  }
};

/// Adam's update, one pass over all parameters, moments and gradients.
struct adam_update {
  const float* gradient;
  adam_arrays arrays;
  adam_rates rates;
  MLP_KERNEL void operator()(std::size_t i) const { arrays.update(i, gradient[i], rates); }
};

/// Computes the outputs of a layer from its products, max(x + bias, 0), for a matrix of `Width`
/// rows.
template <std::size_t Width>
struct activate {
  const float* bias;
  float* x;
  MLP_KERNEL void operator()(std::size_t i) const { x[i] = relu(x[i] + bias[i % Width]); }
};

/// Propagates the gradient through ReLU in place.
struct slope {
  const float* output;
  float* gradient;
  MLP_KERNEL void operator()(std::size_t i) const {
    gradient[i] = relu_slope(output[i], gradient[i]);
  }
};

}  // namespace mlp::kernel

#undef MLP_KERNEL
