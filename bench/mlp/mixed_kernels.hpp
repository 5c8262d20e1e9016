// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels.hpp"
#include "pass_kernels.hpp"

#if defined(__CUDACC__)
#define MLP_KERNEL __host__ __device__
#else
#define MLP_KERNEL
#endif

/// What a step does in mixed precision, or where several batches make it together, besides the
/// passes over its batches: sums, the gradient scaler, the update.
namespace mlp::kernel {

/// What becomes of the gradients of a step before Adam gets them. It lies in device memory, so that
/// nothing waits for it on the host. The scale, and what changes it, are PyTorch's `GradScaler`.
struct scaler_state {
  static constexpr float first_scale = 65536.0F;
  static constexpr float growth = 2.0F;
  static constexpr float backoff = 0.5F;
  static constexpr std::uint32_t growth_interval = 2000;
  static constexpr float smallest = 0x1p-100F;
  static constexpr float largest = std::numeric_limits<float>::max();  // what a scale may be

  float scale = 1.0F;         // what losses are multiplied by
  float factor = 1.0F;        // what sums of gradients are, when they are done
  std::uint32_t good = 0;     // steps since the scale was changed
  std::uint32_t found = 0;    // a gradient of the step under way is not finite
  std::uint32_t skips = 0;    // the step that ends changes no parameter
  std::uint64_t samples = 0;  // of the step under way
  std::uint64_t skipped = 0;  // steps
};

/// The start of a batch, which may be one of several of a step: its place in the trace.
struct begin_part {
  step_state* state;
  scaler_state* scaler;
  std::uint64_t count;
  std::uint64_t capacity;
  MLP_KERNEL void operator()(std::size_t) const {
    begin_trace(*state, count, capacity);
    scaler->samples += count;
  }
};

/// Adds a batch's gradients to those of the step, and notes one that is not finite.
struct add_gradients {
  const float* gradient;
  float* sum;
  scaler_state* scaler;
  MLP_KERNEL void operator()(std::size_t i) const {
    sum[i] += gradient[i];
    const bool is_finite = std::fabs(gradient[i]) <= scaler_state::largest;
    if (!is_finite) scaler->found = 1;  // all that write it write the same
  }
};

/// The end of a step: whether it changes parameters, what its gradients are multiplied by, and the
/// scale of the next one.
struct settle {
  step_state* state;
  scaler_state* scaler;
  float planned;  // the samples that a loss's scale is meant for
  bool scales;
  MLP_KERNEL void operator()(std::size_t) const {
    scaler_state& s = *scaler;
    s.skips = scales ? s.found : 0;
    s.factor = planned / (static_cast<float>(s.samples) * s.scale);
    s.found = 0;
    s.samples = 0;
    if (s.skips == 0) advance_rates(*state);
    if (!scales) return;
    if (s.skips != 0) {
      // No smaller than this: its inverse has to be a number.
      const float shrunk = s.scale * scaler_state::backoff;
      if (shrunk >= scaler_state::smallest) s.scale = shrunk;
      s.good = 0;
      ++s.skipped;
    } else if (++s.good == scaler_state::growth_interval) {
      const float grown = s.scale * scaler_state::growth;
      if (grown <= scaler_state::largest) s.scale = grown;
      s.good = 0;
    }
  }
};

/// Unscales, updates unless the step is skipped, rounds the parameters for the next products, and
/// leaves the sums at 0. `Rates`, `Scaler`: what convert to `adam_rates` and to `scaler_state`.
template <class Narrow, class Stored, class Rates, class Scaler>
struct scaled_update {
  float* sum;
  adam_arrays arrays;
  Stored* weights;
  Rates rates;
  Scaler scaler;
  MLP_KERNEL void operator()(std::size_t i) const {
    const scaler_state s = scaler;
    if (s.skips == 0) arrays.update(i, sum[i] * s.factor, rates);
    sum[i] = 0.0F;
    if constexpr (is_rounded<Narrow>) weights[i] = rounded<Narrow, Stored>(arrays.parameter[i]);
  }
};

/// What is read where it lies, each time.
struct scaler_where_it_lies {
  const scaler_state* state;
  MLP_KERNEL operator scaler_state() const { return *state; }
};

}  // namespace mlp::kernel

#undef MLP_KERNEL
