// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <type_traits>

#include "kernels.hpp"

#if defined(__CUDACC__)
#define MLP_KERNEL __host__ __device__
#else
#define MLP_KERNEL
#endif

/// The elementwise work of a pass through the network and back. `Narrow` is what operands of
/// products are rounded to, `Stored` what they lie in memory as: the same on a GPU; on the host,
/// which has no products of 16 bits, a float of that value. Where `Narrow` is float nothing is
/// rounded: `to` is not used, and values stay where they are.
namespace mlp::kernel {

template <class Narrow>
inline constexpr bool is_rounded = !std::is_same_v<Narrow, float>;

template <class Narrow, class Stored>
MLP_KERNEL Stored rounded(float x) {
  return static_cast<Stored>(static_cast<Narrow>(x));
}

template <class Narrow, class Stored>
struct round_values {
  const float* from;
  Stored* to;
  MLP_KERNEL void operator()(std::size_t i) const { to[i] = rounded<Narrow, Stored>(from[i]); }
};

/// The pixels, as the first layer takes them.
template <class Pixel, class Narrow, class Stored>
struct prepare {
  const Pixel* pixels;
  Stored* to;
  MLP_KERNEL void operator()(std::size_t i) const {
    to[i] = rounded<Narrow, Stored>(normalised(pixels[i]));
  }
};

/// The outputs of a layer from its products, max(x + bias, 0), for a matrix of `Width` rows.
template <std::size_t Width, class Narrow, class Stored>
struct activate {
  const float* bias;
  float* x;
  Stored* to;
  MLP_KERNEL void operator()(std::size_t i) const {
    const float output = relu(x[i] + bias[i % Width]);
    if constexpr (is_rounded<Narrow>) {
      to[i] = rounded<Narrow, Stored>(output);
    } else {
      x[i] = output;
    }
  }
};

/// `softmax_cross_entropy`; with rounding, of the loss times `*loss_scale`.
template <std::size_t Classes, class Narrow, class Stored>
struct cross_entropy {
  softmax_cross_entropy<Classes> plain;  // its scale: a sample's share of the loss
  const float* loss_scale;
  Stored* to;
  MLP_KERNEL void operator()(std::size_t i) const {
    if constexpr (is_rounded<Narrow>) {
      auto scaled = plain;
      scaled.scale *= *loss_scale;
      scaled(i);
      for (std::size_t c = i * Classes; c < (i + 1) * Classes; ++c) {
        to[c] = rounded<Narrow, Stored>(plain.logits[c]);
      }
    } else {
      plain(i);
    }
  }
};

/// The gradient back through ReLU, in place, and rounded.
template <class Narrow, class Stored>
struct slope {
  const Stored* output;
  float* gradient;
  Stored* to;
  MLP_KERNEL void operator()(std::size_t i) const {
    const float through = relu_slope(output[i], gradient[i]);
    gradient[i] = through;
    if constexpr (is_rounded<Narrow>) to[i] = rounded<Narrow, Stored>(through);
  }
};

}  // namespace mlp::kernel

#undef MLP_KERNEL
