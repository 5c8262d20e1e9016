// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <thrust/for_each.h>
#include <thrust/functional.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/system/cpp/execution_policy.h>
#include <thrust/transform_reduce.h>

#include <penstock/device/cpu_device.hpp>

#include "kernels.hpp"
#include "results.hpp"
#include "shape.hpp"

namespace mlp {

/// The operations of the network on the CPU device, on a single thread, so that every sum has a
/// fixed order. `host_backend` lists the operations. No operation allocates: the blocks into which
/// a product packs its operands are on the stack (EIGEN_STACK_ALLOCATION_LIMIT, set in
/// CMakeLists.txt).
class host_context {
 public:
  template <class Kernel>
  void each(std::size_t count, const Kernel& kernel) const {
    thrust::for_each_n(thrust::cpp::par, thrust::counting_iterator<std::size_t>{0}, count, kernel);
  }

  template <class Function, class Sum>
  void sum(std::size_t count, const Function& function, Sum* to) const {
    const thrust::counting_iterator<std::size_t> first{0};
    *to = thrust::transform_reduce(thrust::cpp::par, first,
                                   first + static_cast<std::ptrdiff_t>(count), function, Sum{},
                                   thrust::plus<Sum>{});
  }

  template <transpose A, transpose B>
  void multiply(std::size_t m, std::size_t n, std::size_t k, const float* a, const float* b,
                float* c) const {
    auto out = matrix{c, length(m), length(n)};
    if constexpr (A == transpose::no && B == transpose::no) {
      out.noalias() = operand{a, length(m), length(k)} * operand{b, length(k), length(n)};
    } else if constexpr (A == transpose::yes && B == transpose::no) {
      out.noalias() =
          operand{a, length(k), length(m)}.transpose() * operand{b, length(k), length(n)};
    } else if constexpr (A == transpose::no) {
      out.noalias() =
          operand{a, length(m), length(k)} * operand{b, length(n), length(k)}.transpose();
    } else {
      out.noalias() = operand{a, length(k), length(m)}.transpose() *
                      operand{b, length(n), length(k)}.transpose();
    }
  }

  void sum_columns(std::size_t m, std::size_t n, const float* a, float* c) const {
    // Sums column by column. Eigen's rowwise().sum() uses a different order for the rows before the
    // first aligned address of c, so the bits would depend on the address of c.
    const operand columns{a, length(m), length(n)};
    Eigen::Map<Eigen::VectorXf> sum{c, length(m)};
    sum = columns.col(0);
    for (Eigen::Index column = 1; column < length(n); ++column) sum += columns.col(column);
  }

  // Returns by value, because reading from memory in each iteration would prevent vectorization.
  [[nodiscard]] kernel::adam_rates rates_of(const kernel::step_state* state) const {
    return state->rates;
  }

  template <class T>
  void gather_rows(std::size_t count, std::size_t length, const std::uint64_t* order,
                   const kernel::step_state* state, std::uint64_t capacity, const T* from,
                   T* to) const {
    const std::uint64_t* rows = order + kernel::coming_place(*state, count, capacity);
    const std::size_t bytes = length * sizeof(T);
    constexpr std::size_t ahead = 4;  // the hardware cannot predict the random order of the rows
    for (std::size_t i = 0; i < count; ++i) {
      if (i + ahead < count) {
        const auto* next = reinterpret_cast<const char*>(from + rows[i + ahead] * length);
        for (std::size_t b = 0; b < bytes; b += 64) __builtin_prefetch(next + b);
      }
      std::memcpy(to + i * length, from + rows[i] * length, bytes);
    }
  }

 private:
  using matrix = Eigen::Map<Eigen::MatrixXf>;
  using operand = Eigen::Map<const Eigen::MatrixXf>;
  static Eigen::Index length(std::size_t n) { return static_cast<Eigen::Index>(n); }
};

/// Runs the network on the CPU device.
///
/// A backend for another device has the same members (`cuda_backend`: fused kernels, cuBLAS):
///
///     device_type, stream_ref           the penstock device and its streams
///     make_stream(device)               the stream on which the training loop computes
///     enqueue(stream, work)             runs `work(context)` in stream order
///     replay(slot, size, stream, work)  enqueues with `work(stream)`, or repeats the work that an
///                                       earlier call with this slot and size has enqueued
///     rehearses()                       true if first calls cost more and must precede the clock
///     forget()                          the addresses of the slots are about to change
///
/// The context has these members. All of them enqueue and never allocate. Matrices are column-major
/// as in BLAS:
///
///     each(count, kernel)               kernel(i) for all i < count, in any order
///     sum(count, function, to)          *to = the sum of function(i) over all i < count
///     multiply<A, B>(m, n, k, a, b, c)  c (m x n) = a (m x k) * b (k x n)
///     sum_columns(m, n, a, c)           c (m) = the sum of the n columns of a (m x n)
///     rates_of(state)                   Adam's rates
///     gather_rows(...)                  to[i] = from[order[place + i]] for rows of `length`
///                                       elements, where `place` is the next step's place in the
///                                       trace
///     train_fused(...)                  runs the whole step; replaces sum_columns and rates_of
class host_backend {
 public:
  using device_type = penstock::cpu_device;
  using stream_ref = device_type::stream_ref;
  /// never thrown on the host
  using context_lost = mlp::context_lost;

  /// The stream does not run ahead of the host, because the calling thread does the computing, and
  /// other threads would compete for the same cores.
  [[nodiscard]] static stream_ref make_stream(const device_type& device) {
    return device.inline_stream();
  }

  template <class Work>
  void enqueue(stream_ref stream, const Work& work) const {
    stream.launch([work] { work(host_context{}); });
  }
  template <class Work>
  void replay(std::size_t, std::size_t, stream_ref stream, const Work& work) const {
    work(stream);
  }
  [[nodiscard]] static bool rehearses() { return false; }
  static void forget() {}
};

}  // namespace mlp
