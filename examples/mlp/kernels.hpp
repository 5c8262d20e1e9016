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

/// A pixel as the network sees it: (x / 255 - 0.1307) / 0.3081, mean and deviation of MNIST, with the
/// two divisions folded into constants. The only such expression: all modes go through it.
MLP_KERNEL inline float normalised(std::uint8_t pixel) {
  constexpr double mean = 0.1307;
  constexpr double deviation = 0.3081;
  constexpr auto scale = static_cast<float>(1.0 / (255.0 * deviation));
  constexpr auto shift = static_cast<float>(-mean / deviation);
  return static_cast<float>(pixel) * scale + shift;
}

struct normalise {
  const std::uint8_t* pixels;
  float* out;
  MLP_KERNEL void operator()(std::size_t i) const { out[i] = normalised(pixels[i]); }
};

/// x = max(x + bias, 0) for a matrix of `Width` rows.
template <std::size_t Width>
struct add_bias_relu {
  const float* bias;
  float* x;
  MLP_KERNEL void operator()(std::size_t i) const {
    const float sum = x[i] + bias[i % Width];
    x[i] = sum > 0.0F ? sum : 0.0F;
  }
};

/// The gradient through ReLU: that of the output where the output is positive, else 0.
struct relu_gradient {
  const float* output;
  float* gradient;
  MLP_KERNEL void operator()(std::size_t i) const {
    gradient[i] = output[i] > 0.0F ? gradient[i] : 0.0F;
  }
};

/// For sample i: adds the bias to its logits, notes its cross-entropy after softmax, and turns the
/// logits into the gradient of the batch's mean loss.
template <std::size_t Classes>
struct softmax_cross_entropy {
  const float* bias;
  const std::uint8_t* labels;
  float* logits;
  float* loss;
  float scale;  // 1 / samples of the batch

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
    loss[i] = std::log(sum) - target;
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

  MLP_KERNEL std::size_t operator()(std::size_t i) const {
    const float* row = logits + i * Classes;
    std::size_t best = 0;
    for (std::size_t c = 1; c < Classes; ++c) {
      if (row[c] + bias[c] > row[best] + bias[best]) best = c;
    }
    return best == labels[i] ? 1U : 0U;
  }
};

/// What changes in Adam from step to step.
struct adam_rates {
  float rate;     // lr * sqrt(1 - beta2^t) / (1 - beta1^t)
  float epsilon;  // eps * sqrt(1 - beta2^t)
};

/// The Adam update (Kingma and Ba, 2015, in the order of operations of its section 2's last note):
/// one pass over all parameters, moments and gradients.
struct adam_update {
  const float* gradient;
  float* parameter;
  float* first_moment;
  float* second_moment;
  adam_rates rates;

  static constexpr float beta1 = 0.9F;
  static constexpr float beta2 = 0.999F;

  MLP_KERNEL void operator()(std::size_t i) const {
    const float g = gradient[i];
    const float m = beta1 * first_moment[i] + (1.0F - beta1) * g;
    const float v = beta2 * second_moment[i] + (1.0F - beta2) * (g * g);
    first_moment[i] = m;
    second_moment[i] = v;
    parameter[i] -= rates.rate * m / (std::sqrt(v) + rates.epsilon);
  }
};

}  // namespace mlp::kernel

#undef MLP_KERNEL
