// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels.hpp"
#include "shape.hpp"

#if defined(__CUDACC__)
#define MLP_KERNEL __host__ __device__
#else
#define MLP_KERNEL
#endif

/// A whole training step in three launches: the first layer; the work of each sample up to its
/// gradients; and the sums over the batch with Adam. Every sum has a fixed order on every device.
///
/// Each launch is a kernel in phases. `phase(p, block, thread, shared, local)` is the work of a
/// thread between two barriers, so no thread may read a value that another thread of its block
/// writes in the same phase. `cuda_context::run` runs the phases on a GPU, and the tests run the
/// same source on the host, thread by thread.
namespace mlp::fused {

/// Computes hidden1 = relu(weight1 * normalized images + bias1), and begins the step. A block
/// computes 16 outputs of `Samples` samples: each of 16 groups of threads sums every 16th input,
/// and then the group sums are added.
template <class Pixel, unsigned Samples>
struct first_layer {
  static constexpr unsigned threads = 256;
  static constexpr unsigned rows = 16;
  static constexpr unsigned groups = threads / rows;
  static constexpr unsigned inputs = shape::inputs;
  static constexpr unsigned row_blocks = shape::hidden1 / rows;
  static constexpr unsigned terms = inputs / groups;
  static_assert(inputs % groups == 0 && shape::hidden1 % rows == 0 && rows * Samples <= threads);

  struct shared {
    // Each thread writes the pixels of one position, and reads pixels as 16-byte vectors.
    alignas(16) float pixels[inputs][Samples];
    // Room for one additional sample, so that the two groups of a warp write to different memory
    // banks.
    float sums[groups][Samples + 1][rows];
    static_assert((Samples + 1) * rows % 32 == rows);
  };
  struct local {
    float weights[terms];  // all loads are issued together, so that their latencies overlap
  };

  const Pixel* images;
  network_view net;
  unsigned count;

  MLP_KERNEL unsigned blocks() const { return row_blocks * ((count + Samples - 1) / Samples); }
  MLP_KERNEL static unsigned phases(unsigned) { return 3; }

  MLP_KERNEL void phase(unsigned p, unsigned block, unsigned thread, shared& s, local& own) const {
    const unsigned first_row = block % row_blocks * rows;
    const unsigned first = block / row_blocks * Samples;
    const unsigned here = count - first < Samples ? count - first : Samples;
    const unsigned row = thread % rows;
    const unsigned group = thread / rows;
    if (p == 0) {
      // Writing the state here is safe, because no thread of this kernel reads it.
      if (block == 0 && thread == 0) kernel::begin_step(*net.state, count, net.capacity);
      const float* weight = net.parameters + shape::weight1 + first_row + row;
      for (unsigned i = 0; i < terms; ++i) {
        own.weights[i] = weight[std::size_t{i * groups + group} * shape::hidden1];
      }
      const Pixel* from = images + std::size_t{first} * inputs;
      for (unsigned i = thread; i < inputs; i += threads) {
        float of_place[Samples];
        for (unsigned n = 0; n < Samples; ++n) {
          of_place[n] = n < here ? kernel::normalised(from[n * inputs + i]) : 0.0F;
        }
        for (unsigned n = 0; n < Samples; ++n) s.pixels[i][n] = of_place[n];
      }
    } else if (p == 1) {
      float sums[Samples] = {};
      for (unsigned i = 0; i < terms; ++i) {
        for (unsigned n = 0; n < Samples; ++n) {
          sums[n] += own.weights[i] * s.pixels[i * groups + group][n];
        }
      }
      for (unsigned n = 0; n < Samples; ++n) s.sums[group][n][row] = sums[n];
    } else if (group < here) {  // one group per sample from this phase
      float sum = net.parameters[shape::bias1 + first_row + row];
      for (unsigned g = 0; g < groups; ++g) sum += s.sums[g][group][row];
      net.hidden1[std::size_t{first + group} * shape::hidden1 + first_row + row] =
          kernel::relu(sum);
    }
  }
};

/// For each sample, computes the second and third layers, softmax, the loss, and the gradients down
/// to the sums of the first layer. A block keeps the weights in shared memory and processes one
/// sample after another.
struct sample_gradients {
  static constexpr unsigned threads = 256;
  static constexpr unsigned max_blocks = 512;
  static constexpr unsigned hidden1 = shape::hidden1;
  static constexpr unsigned hidden2 = shape::hidden2;
  static constexpr unsigned classes = shape::classes;
  static constexpr unsigned parts2 = threads / hidden2;  // partial sums over hidden1
  static constexpr unsigned parts3 = 16;                 // partial sums over hidden2
  // Partial sums over hidden2 in the backward pass.
  static constexpr unsigned parts1 = threads / hidden1;
  static constexpr unsigned phases_a_sample = 10;
  static_assert(hidden1 % parts2 == 0 && hidden2 % parts3 == 0 && hidden2 % parts1 == 0 &&
                parts3 * classes <= threads);

  struct shared {
    // An additional column, so that rows and columns do not share memory banks.
    float weight2[hidden1][hidden2 + 1];
    float weight3[hidden2][classes + 1];
    float outputs1[hidden1];
    float outputs2[hidden2];
    float parts[threads];
    float logits[classes];
    float powers[classes];
    float slopes3[classes];
    float slopes2[hidden2];
  };
  struct local {};

  const std::uint8_t* labels;
  network_view net;
  unsigned count;
  bool activates;  // true if hidden1 contains sums without bias and ReLU

  MLP_KERNEL unsigned blocks() const { return count < max_blocks ? count : max_blocks; }
  MLP_KERNEL unsigned phases(unsigned block) const {
    return phases_a_sample * ((count - block + blocks() - 1) / blocks());
  }

  MLP_KERNEL void phase(unsigned p, unsigned block, unsigned t, shared& s, local&) const {
    const std::size_t sample = block + std::size_t{p / phases_a_sample} * blocks();
    switch (p % phases_a_sample) {
      case 0:
        if (p == 0) load_weights(t, s);
        if (t < hidden1) load_outputs1(sample, t, s);
        break;
      case 1: {
        const unsigned row = t % hidden2;
        const unsigned first = t / hidden2 * (hidden1 / parts2);
        float sum = 0.0F;
        for (unsigned k = first; k < first + hidden1 / parts2; ++k) {
          sum += s.weight2[k][row] * s.outputs1[k];
        }
        s.parts[t] = sum;
        break;
      }
      case 2:
        if (t < hidden2) {
          float sum = net.parameters[shape::bias2 + t];
          for (unsigned part = 0; part < parts2; ++part) sum += s.parts[part * hidden2 + t];
          s.outputs2[t] = kernel::relu(sum);
          net.hidden2[sample * hidden2 + t] = s.outputs2[t];
        }
        break;
      case 3:
        if (t < parts3 * classes) {
          const unsigned first = t / classes * (hidden2 / parts3);
          float sum = 0.0F;
          for (unsigned k = first; k < first + hidden2 / parts3; ++k) {
            sum += s.weight3[k][t % classes] * s.outputs2[k];
          }
          s.parts[t] = sum;
        }
        break;
      case 4:
        if (t < classes) {
          float sum = net.parameters[shape::bias3 + t];
          for (unsigned part = 0; part < parts3; ++part) sum += s.parts[part * classes + t];
          s.logits[t] = sum;
        }
        break;
      case 5:
        if (t < classes) s.powers[t] = std::exp(s.logits[t] - largest(s));
        break;
      case 6:
        if (t < classes) lose(sample, t, s);
        break;
      case 7:
        if (t < hidden2) {
          float sum = 0.0F;
          for (unsigned c = 0; c < classes; ++c) sum += s.weight3[t][c] * s.slopes3[c];
          s.slopes2[t] = kernel::relu_slope(s.outputs2[t], sum);
          net.gradient2[sample * hidden2 + t] = s.slopes2[t];
        }
        break;
      case 8: {
        const unsigned first = t / hidden1 * (hidden2 / parts1);
        float sum = 0.0F;
        for (unsigned k = first; k < first + hidden2 / parts1; ++k) {
          sum += s.weight2[t % hidden1][k] * s.slopes2[k];
        }
        s.parts[t] = sum;
        break;
      }
      default:
        if (t < hidden1) {
          float sum = 0.0F;
          for (unsigned part = 0; part < parts1; ++part) sum += s.parts[part * hidden1 + t];
          net.gradient1[sample * hidden1 + t] = kernel::relu_slope(s.outputs1[t], sum);
        }
    }
  }

 private:
  MLP_KERNEL void load_weights(unsigned t, shared& s) const {
    const float* weight2 = net.parameters + shape::weight2;
    const float* weight3 = net.parameters + shape::weight3;
    for (unsigned i = t; i < hidden1 * hidden2; i += threads) {
      s.weight2[i / hidden2][i % hidden2] = weight2[i];
    }
    for (unsigned i = t; i < hidden2 * classes; i += threads) {
      s.weight3[i / classes][i % classes] = weight3[i];
    }
  }

  MLP_KERNEL void load_outputs1(std::size_t sample, unsigned t, shared& s) const {
    float& output = net.hidden1[sample * hidden1 + t];
    if (activates) output = kernel::relu(output + net.parameters[shape::bias1 + t]);
    s.outputs1[t] = output;
  }

  MLP_KERNEL static float largest(const shared& s) {
    float found = s.logits[0];
    for (unsigned c = 1; c < classes; ++c) found = s.logits[c] > found ? s.logits[c] : found;
    return found;
  }

  /// Computes `kernel::softmax_cross_entropy` with one thread per class.
  MLP_KERNEL void lose(std::size_t sample, unsigned t, shared& s) const {
    float sum = 0.0F;
    for (unsigned c = 0; c < classes; ++c) sum += s.powers[c];
    const float scale = 1.0F / static_cast<float>(count);
    const unsigned label = labels[sample];
    s.slopes3[t] = s.powers[t] * (scale / sum) - (t == label ? scale : 0.0F);
    net.logits[sample * classes + t] = s.slopes3[t];
    if (t == label) {
      net.losses[net.state->first + sample] = std::log(sum) - (s.logits[t] - largest(s));
    }
  }
};

/// Sums the gradients of all parameters over the batch and applies Adam in a single launch. A block
/// handles 64 outputs x 16 inputs of a layer's weights, and the first block of a layer also handles
/// the bias.
template <class Pixel>
struct update {
  static constexpr unsigned threads = 256;
  static constexpr unsigned rows = 64;
  static constexpr unsigned columns = 16;
  static constexpr unsigned chunk = 64;  // number of samples in shared memory at a time
  static constexpr unsigned columns_a_thread = rows * columns / threads;
  static constexpr unsigned column_blocks1 = shape::inputs / columns;
  static constexpr unsigned blocks1 = shape::hidden1 / rows * column_blocks1;
  static constexpr unsigned blocks2 = shape::hidden1 / columns;
  static constexpr unsigned blocks3 = shape::hidden2 / columns;
  static_assert(shape::inputs % columns == 0 && shape::hidden1 % rows == 0 &&
                shape::hidden2 <= rows && shape::classes <= rows);

  struct shared {
    float slopes[chunk][rows];
    float inputs[chunk][columns];
  };
  struct local {
    float sums[columns_a_thread];
    float bias;
  };

  const Pixel* images;
  network_view net;
  unsigned count;
  bool has_gradients1;  // true if the gradients of weight1 are already in net.gradients

  MLP_KERNEL static unsigned blocks() { return blocks1 + blocks2 + blocks3; }
  MLP_KERNEL unsigned phases(unsigned block) const { return 2 * chunks(tile_of(block)) + 1; }

  MLP_KERNEL void phase(unsigned p, unsigned block, unsigned t, shared& s, local& own) const {
    const tile at = tile_of(block);
    const unsigned row = t % rows;
    const unsigned first_column = t / rows * columns_a_thread;
    const bool has_bias = at.first_column + first_column == 0;
    if (p == 0) own = {};
    if (p == 2 * chunks(at)) {
      if (at.first_row + row >= at.outputs) return;
      const std::size_t output = at.first_row + row;
      for (unsigned c = 0; c < columns_a_thread; ++c) {
        const std::size_t i =
            at.weight + output + std::size_t{at.first_column + first_column + c} * at.outputs;
        const bool is_given = at.layer == 1 && has_gradients1;
        net.adam().update(i, is_given ? net.gradients[i] : own.sums[c], net.state->rates);
      }
      if (has_bias) net.adam().update(at.bias + output, own.bias, net.state->rates);
      return;
    }
    const unsigned first = p / 2 * chunk;
    const unsigned here = count - first < chunk ? count - first : chunk;
    if (p % 2 == 0) {
      load(at, first, here, t, s);
      return;
    }
    for (unsigned n = 0; n < chunk; ++n) {
      const float slope = s.slopes[n][row];
      for (unsigned c = 0; c < columns_a_thread; ++c) {
        own.sums[c] += slope * s.inputs[n][first_column + c];
      }
      if (has_bias) own.bias += slope;
    }
  }

 private:
  struct tile {
    unsigned layer;  // from 1 to 3
    unsigned outputs, first_row, first_column;
    std::size_t weight, bias;
    const float* slopes;
  };

  MLP_KERNEL tile tile_of(unsigned block) const {
    if (block < blocks1) {
      return {1,
              shape::hidden1,
              block / column_blocks1 * rows,
              block % column_blocks1 * columns,
              shape::weight1,
              shape::bias1,
              net.gradient1};
    }
    block -= blocks1;
    if (block < blocks2) {
      return {2, shape::hidden2, 0, block * columns, shape::weight2, shape::bias2, net.gradient2};
    }
    block -= blocks2;
    return {3, shape::classes, 0, block * columns, shape::weight3, shape::bias3, net.logits};
  }

  /// Returns the number of rounds in which a tile loads samples, or 0 if nothing is left to sum.
  MLP_KERNEL unsigned chunks(const tile& at) const {
    if (at.layer == 1 && has_gradients1 && at.first_column != 0) return 0;
    return (count + chunk - 1) / chunk;
  }

  /// Loads samples with loops of fixed length, so that all loads are in flight together. Missing
  /// samples are 0.
  MLP_KERNEL void load(const tile& at, unsigned first, unsigned here, unsigned t, shared& s) const {
    const unsigned output = at.first_row + t % rows;
    for (unsigned i = 0; i < chunk * rows / threads; ++i) {
      const unsigned n = i * (threads / rows) + t / rows;
      const bool is_there = n < here && output < at.outputs;
      s.slopes[n][t % rows] =
          is_there ? at.slopes[std::size_t{first + n} * at.outputs + output] : 0.0F;
    }
    const unsigned input = at.first_column + t % columns;
    for (unsigned i = 0; i < chunk * columns / threads; ++i) {
      const unsigned n = i * (threads / columns) + t / columns;
      s.inputs[n][t % columns] = n < here ? input_of(at, first + n, input) : 0.0F;
    }
  }

  MLP_KERNEL float input_of(const tile& at, std::size_t sample, unsigned input) const {
    if (at.layer == 1) return kernel::normalised(images[sample * shape::inputs + input]);
    if (at.layer == 2) return net.hidden1[sample * shape::hidden1 + input];
    return net.hidden2[sample * shape::hidden2 + input];
  }
};

/// Runs the whole step on `count` samples. `on.run(kernel)` launches a kernel of this file.
template <class Context, class Pixel>
void train(const Context& on, const network_view& net, const Pixel* images,
           const std::uint8_t* labels, std::size_t count) {
  const auto samples = static_cast<unsigned>(count);
  constexpr unsigned few = 256;  // below this size, smaller tiles occupy more multiprocessors
  if (samples <= few) {
    on.run(first_layer<Pixel, 4>{images, net, samples});
  } else {
    on.run(first_layer<Pixel, 8>{images, net, samples});
  }
  on.run(sample_gradients{labels, net, samples, false});
  on.run(update<Pixel>{images, net, samples, false});
}

/// Runs the step, but calls `on.multiply` for the forward and backward products of the first layer,
/// which are most of the work.
template <class Context, class Pixel>
void train_by_products(const Context& on, const network_view& net, const Pixel* images,
                       const std::uint8_t* labels, std::size_t count) {
  const auto samples = static_cast<unsigned>(count);
  const kernel::begin begins{net.state, count, net.capacity};
  const float* inputs = nullptr;
  if constexpr (std::is_same_v<Pixel, float>) {
    on.each(1, begins);
    inputs = images;
  } else {
    on.each(count * shape::inputs, kernel::begin_and_normalise{begins, {images, net.pixels}});
    inputs = net.pixels;
  }
  on.template multiply<transpose::no, transpose::no>(
      shape::hidden1, count, shape::inputs, net.parameters + shape::weight1, inputs, net.hidden1);
  on.run(sample_gradients{labels, net, samples, true});
  on.template multiply<transpose::no, transpose::yes>(
      shape::hidden1, shape::inputs, count, net.gradient1, inputs, net.gradients + shape::weight1);
  on.run(update<float>{inputs, net, samples, true});
}

}  // namespace mlp::fused

#undef MLP_KERNEL
