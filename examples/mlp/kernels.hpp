// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define EXAMPLE_KERNEL __host__ __device__
#else
#define EXAMPLE_KERNEL
#endif

/// The functions that Thrust and CUB call for each element, with the same source on every device.
/// Matrices are row-major with one row per sample, like a batch in memory.
namespace example::kernel {

/// Normalizes a pixel with the mean and deviation of MNIST.
struct normalise {
  EXAMPLE_KERNEL float operator()(std::uint8_t pixel) const {
    constexpr float scale = 1.0F / (255.0F * 0.3081F);
    constexpr float shift = 0.1307F / 0.3081F;
    return static_cast<float>(pixel) * scale - shift;
  }
};

struct relu {
  EXAMPLE_KERNEL float operator()(float x) const { return x > 0.0F ? x : 0.0F; }
};

/// Propagates the gradient back through ReLU.
struct relu_slope {
  EXAMPLE_KERNEL float operator()(float gradient, float output) const {
    return output > 0.0F ? gradient : 0.0F;
  }
};

/// A matrix with stride `Row` between rows and `Column` between columns. Both are compile-time
/// constants, so the compiler uses vector loads for one matrix and broadcasts for the other.
template <std::size_t Row, std::size_t Column = 1>
struct matrix {
  const float* data;
  EXAMPLE_KERNEL float operator()(std::size_t row, std::size_t column) const {
    return data[row * Row + column * Column];
  }
  EXAMPLE_KERNEL matrix<Column, Row> transposed() const { return {data}; }
};

/// A matrix of ones. Multiplying it by a matrix gives the sums of the columns.
struct ones {
  EXAMPLE_KERNEL float operator()(std::size_t, std::size_t) const { return 1.0F; }
};

/// Returns element i of a row-major matrix with `Columns` columns.
template <std::size_t Columns, class Matrix>
struct element {
  Matrix from;
  EXAMPLE_KERNEL float operator()(std::size_t i) const { return from(i / Columns, i % Columns); }
};

/// Computes a tile of out = bias + a * b, where `out` has `rows` rows and `Columns` columns. A CPU
/// core or a GPU thread computes one tile at a time. The sums stay in registers; on a CPU a row of
/// them is a vector. The order of the sums does not depend on the tile's size, so results have the
/// same bits.
template <std::size_t Height, std::size_t Width, std::size_t Columns, class A, class B>
struct product {
  static_assert(Columns % Width == 0);
  A a;
  B b;
  const float* bias;  // a row, or null
  float* out;
  std::size_t rows;
  std::size_t terms;

  [[nodiscard]] std::size_t tiles() const {
    return (rows + Height - 1) / Height * (Columns / Width);
  }
  EXAMPLE_KERNEL void operator()(std::size_t tile) const {
    std::size_t row = tile / (Columns / Width) * Height;
    const std::size_t column = tile % (Columns / Width) * Width;
    if (row + Height <= rows) return compute<Height>(row, column);
    for (; row < rows; ++row) compute<1>(row, column);
  }

 private:
  template <std::size_t H>
  EXAMPLE_KERNEL void compute(std::size_t row, std::size_t column) const {
    float sums[H][Width];
    for (std::size_t r = 0; r < H; ++r) {
      for (std::size_t c = 0; c < Width; ++c) {
        sums[r][c] = bias != nullptr ? bias[column + c] : 0.0F;
      }
    }
    for (std::size_t k = 0; k < terms; ++k) {
      for (std::size_t r = 0; r < H; ++r) {
        // Without the pragma, GCC 12 unrolls this loop and then fails to vectorize it.
#pragma omp simd
        for (std::size_t c = 0; c < Width; ++c) sums[r][c] += a(row + r, k) * b(k, column + c);
      }
    }
    for (std::size_t r = 0; r < H; ++r) {
      for (std::size_t c = 0; c < Width; ++c) out[(row + r) * Columns + column + c] = sums[r][c];
    }
  }
};

/// For sample i: stores the cross-entropy of its softmax, and replaces its logits with the gradient
/// of the batch's mean loss.
template <std::size_t Classes>
struct cross_entropy {
  const std::uint8_t* labels;
  float* logits;
  float* losses;
  float share;  // 1 / samples of the batch

  EXAMPLE_KERNEL void operator()(std::size_t i) const {
    float* row = logits + i * Classes;
    float largest = row[0];
    for (std::size_t c = 1; c < Classes; ++c) largest = row[c] > largest ? row[c] : largest;
    const float target = row[labels[i]] - largest;
    float sum = 0.0F;
    for (std::size_t c = 0; c < Classes; ++c) sum += row[c] = std::exp(row[c] - largest);
    losses[i] = std::log(sum) - target;
    for (std::size_t c = 0; c < Classes; ++c) row[c] *= share / sum;
    row[labels[i]] -= share;
  }
};

/// Returns the contribution of a sample to the mean loss.
struct loss_share {
  const float* losses;
  float share;
  EXAMPLE_KERNEL float operator()(std::size_t i) const { return losses[i] * share; }
};

/// Returns 1 if the largest logit of sample i belongs to its label, and otherwise 0.
template <std::size_t Classes>
struct is_right {
  const std::uint8_t* labels;
  const float* logits;
  EXAMPLE_KERNEL float operator()(std::size_t i) const {
    const float* row = logits + i * Classes;
    std::size_t best = 0;
    for (std::size_t c = 1; c < Classes; ++c) best = row[c] > row[best] ? c : best;
    return best == labels[i] ? 1.0F : 0.0F;
  }
};

/// The values that differ from step to step, in device memory, because a CUDA graph freezes the
/// arguments of its kernels. Adam's `rate` and `epsilon` are those of the next step. Both include
/// the bias correction of the moments, as described at the end of section 2 of the Adam paper.
struct step_state {
  static constexpr float beta1 = 0.9F;
  static constexpr float beta2 = 0.999F;
  int finished_steps;
  float loss;
  float rate;
  float epsilon;

  /// Returns the state after `steps` steps.
  [[nodiscard]] EXAMPLE_KERNEL static step_state after(int steps) {
    const auto next = static_cast<double>(steps + 1);
    const double first = 1.0 - std::pow(static_cast<double>(beta1), next);
    const double second = std::sqrt(1.0 - std::pow(static_cast<double>(beta2), next));
    return {steps, 0.0F, static_cast<float>(1e-3 * second / first),
            static_cast<float>(1e-8 * second)};
  }
};

/// Appends the loss of the step to `losses`, unless that is null, and advances the state. Runs for
/// a single index.
struct finish_step {
  step_state* state;
  float* losses;
  EXAMPLE_KERNEL void operator()(std::size_t) const {
    if (losses != nullptr) losses[state->finished_steps] = state->loss;
    *state = step_state::after(state->finished_steps + 1);
  }
};

/// Adam (Kingma and Ba, 2015) for parameter i.
struct adam {
  static constexpr float beta1 = step_state::beta1;
  static constexpr float beta2 = step_state::beta2;
  const step_state* state;
  const float* gradients;
  float* parameters;
  float* first_moments;
  float* second_moments;

  EXAMPLE_KERNEL void operator()(std::size_t i) const {
    const float g = gradients[i];
    const float m = beta1 * first_moments[i] + (1.0F - beta1) * g;
    const float v = beta2 * second_moments[i] + (1.0F - beta2) * (g * g);
    first_moments[i] = m;
    second_moments[i] = v;
    parameters[i] -= state->rate * m / (std::sqrt(v) + state->epsilon);
  }
};

}  // namespace example::kernel

#undef EXAMPLE_KERNEL
