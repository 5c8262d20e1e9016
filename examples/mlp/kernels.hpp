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
/// counting iterator. The same source runs on any Thrust system. Matrices are column-major with a
/// column a sample, as BLAS has them, so that a batch of images is a matrix as it lies.
namespace mlp::kernel {

/// A pixel as the network sees it: (x / 255 - 0.1307) / 0.3081, mean and deviation of MNIST, with
/// the two divisions folded into constants. The only such expression: all modes go through it.
MLP_KERNEL inline float normalised(std::uint8_t pixel) {
  constexpr double mean = 0.1307;
  constexpr double deviation = 0.3081;
  constexpr auto scale = static_cast<float>(1.0 / (255.0 * deviation));
  constexpr auto shift = static_cast<float>(-mean / deviation);
  return static_cast<float>(pixel) * scale + shift;
}
/// The pixels of the wide workload have been normalised by the workers.
MLP_KERNEL inline float normalised(float pixel) { return pixel; }

/// What changes in Adam from step to step.
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

/// All that changes from step to step. It lies in device memory, so that a step which was captured
/// as a CUDA graph can be replayed as it is.
struct step_state {
  std::uint64_t first = 0;  // where this step's losses stand in the trace
  std::uint64_t next = 0;   // where the next step's will, if there is room
  double first_power = 1.0;
  double second_power = 1.0;
  adam_rates rates{};
};

/// Where a step of `count` samples that has not begun puts its losses, in a trace of `capacity`.
MLP_KERNEL inline std::uint64_t coming_place(const step_state& state, std::uint64_t count,
                                             std::uint64_t capacity) {
  return state.next + count > capacity ? 0 : state.next;
}

/// The place in the trace of a batch that begins.
MLP_KERNEL inline void begin_trace(step_state& state, std::uint64_t count, std::uint64_t capacity) {
  state.first = coming_place(state, count, capacity);
  state.next = state.first + count;
}

/// Adam's factors for one more step, which correct its moments for their start at zero. The order
/// of operations is that of the paper's section 2, last note.
MLP_KERNEL inline void advance_rates(step_state& state) {
  state.first_power *= static_cast<double>(adam::beta1);
  state.second_power *= static_cast<double>(adam::beta2);
  const double correction = std::sqrt(1.0 - state.second_power);
  state.rates = {static_cast<float>(adam::learning_rate * correction / (1.0 - state.first_power)),
                 static_cast<float>(adam::epsilon * correction)};
}

/// The start of a step of one batch.
MLP_KERNEL inline void begin_step(step_state& state, std::uint64_t count, std::uint64_t capacity) {
  begin_trace(state, count, capacity);
  advance_rates(state);
}

/// A place for losses that are no part of the trace, which goes on where it was.
struct begin_apart {
  step_state* state;
  MLP_KERNEL void operator()(std::size_t) const { state->first = 0; }
};

/// The end of a step whose batches were begun apart.
struct advance {
  step_state* state;
  MLP_KERNEL void operator()(std::size_t) const { advance_rates(*state); }
};

struct begin {
  step_state* state;
  std::uint64_t count;
  std::uint64_t capacity;
  MLP_KERNEL void operator()(std::size_t) const { begin_step(*state, count, capacity); }
};

struct normalise {
  const std::uint8_t* pixels;
  float* out;
  MLP_KERNEL void operator()(std::size_t i) const { out[i] = normalised(pixels[i]); }
};

/// Both at once.
struct begin_and_normalise {
  begin begins;
  normalise normalises;
  MLP_KERNEL void operator()(std::size_t i) const {
    if (i == 0) begins(0);
    normalises(i);
  }
};

/// An element of c (m x n) = a (m x k) * b (k x n), for where a library's product is not worth
/// having.
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

/// The gradient through ReLU: that of the output where the output is positive, else 0.
MLP_KERNEL inline float relu_slope(float output, float gradient) {
  return output > 0.0F ? gradient : 0.0F;
}

/// For sample i: adds the bias to its logits, notes its cross-entropy after softmax, and turns the
/// logits into the gradient of the batch's mean loss.
template <std::size_t Classes>
struct softmax_cross_entropy {
  const float* bias;
  const std::uint8_t* labels;
  float* logits;
  float* losses;            // the trace of all steps
  const step_state* state;  // says where this one's stand in it
  float scale;              // 1 / samples of the batch

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

/// 1 where the largest logit of sample i, bias added, is that of its label.
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

/// A loss in double, for sums.
struct loss_at {
  const float* losses;
  MLP_KERNEL double operator()(std::size_t i) const { return static_cast<double>(losses[i]); }
};

/// Parameters with their moments, all in one order.
struct adam_arrays {
  float* parameter;
  float* first_moment;
  float* second_moment;

  /// The update of parameter i by its gradient.
  MLP_KERNEL void update(std::size_t i, float gradient, adam_rates rates) const {
    const float m = adam::beta1 * first_moment[i] + (1.0F - adam::beta1) * gradient;
    const float v = adam::beta2 * second_moment[i] + (1.0F - adam::beta2) * (gradient * gradient);
    first_moment[i] = m;
    second_moment[i] = v;
    parameter[i] -= rates.rate * m / (std::sqrt(v) + rates.epsilon);
  }
};

/// Rates that are read where they lie, each time.
struct rates_of_state {
  const step_state* state;
  MLP_KERNEL operator adam_rates() const { return state->rates; }
};

/// One pass over all parameters, moments and gradients. `Rates`: what converts to `adam_rates`.
template <class Rates>
struct adam_update {
  const float* gradient;
  adam_arrays arrays;
  Rates rates;
  MLP_KERNEL void operator()(std::size_t i) const { arrays.update(i, gradient[i], rates); }
};

/// to[i] = the sum over the rows of from[row * length + i], in the order of the rows.
struct sum_rows {
  const float* from;
  std::size_t rows;
  std::size_t length;
  float* to;
  MLP_KERNEL void operator()(std::size_t i) const {
    float sum = from[i];
    for (std::size_t row = 1; row < rows; ++row) sum += from[row * length + i];
    to[i] = sum;
  }
};

}  // namespace mlp::kernel

#undef MLP_KERNEL
