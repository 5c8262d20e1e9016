#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <thrust/system/cpp/execution_policy.h>

#include <penstock/device/host_device.hpp>

#include "lies.hpp"

namespace mlp {

/// How the network computes on the host device: on one thread, so that every sum has one order.
///
/// A backend is what another device brings of its own (Thrust's CUDA policy, cuBLAS):
///
///     device_type, stream_ref              the penstock device and its streams
///     enqueue(stream, work)                runs `work()` in stream order; the rest is for its body
///     policy()                             the Thrust policy
///     multiply<A, B>(m, n, k, a, b, c)     c = a * b
///     sum_columns(m, n, a, c)              c = the sum of the columns of a
///     gather_rows(...)                     picks rows of bytes, see below
///
/// Matrices are column-major, as in BLAS. Nothing here allocates: the blocks into which a product
/// packs its operands lie on the stack (EIGEN_STACK_ALLOCATION_LIMIT, set in CMakeLists.txt).
class host_backend {
 public:
  using device_type = penstock::host_device;
  using stream_ref = device_type::stream_ref;

  template <class Work>
  void enqueue(stream_ref stream, Work work) const {
    stream.launch(work);
  }

  [[nodiscard]] auto policy() const { return thrust::cpp::par; }

  /// c (m x n) = a (m x k) * b (k x n). `c` overlaps neither operand.
  template <lies A, lies B>
  void multiply(std::size_t m, std::size_t n, std::size_t k, const float* a, const float* b,
                float* c) const {
    auto out = matrix{c, length(m), length(n)};
    if constexpr (A == lies::straight && B == lies::straight) {
      out.noalias() = operand{a, length(m), length(k)} * operand{b, length(k), length(n)};
    } else if constexpr (A == lies::transposed && B == lies::straight) {
      out.noalias() =
          operand{a, length(k), length(m)}.transpose() * operand{b, length(k), length(n)};
    } else if constexpr (A == lies::straight) {
      out.noalias() =
          operand{a, length(m), length(k)} * operand{b, length(n), length(k)}.transpose();
    } else {
      out.noalias() = operand{a, length(k), length(m)}.transpose() *
                      operand{b, length(n), length(k)}.transpose();
    }
  }

  /// c (m) = the sum of the n columns of a (m x n).
  void sum_columns(std::size_t m, std::size_t n, const float* a, float* c) const {
    Eigen::Map<Eigen::VectorXf>{c, length(m)} = operand{a, length(m), length(n)}.rowwise().sum();
  }

  /// Copies row `rows[i]` of `from` to row i of `to`, for `count` rows of `bytes` bytes.
  void gather_rows(std::size_t count, std::size_t bytes, const std::uint64_t* rows,
                   const std::uint8_t* from, std::uint8_t* to) const {
    constexpr std::size_t ahead = 4;  // the rows come in random order: the hardware foresees none
    for (std::size_t i = 0; i < count; ++i) {
      if (i + ahead < count) {
        const std::uint8_t* next = from + rows[i + ahead] * bytes;
        for (std::size_t b = 0; b < bytes; b += 64) __builtin_prefetch(next + b);
      }
      std::memcpy(to + i * bytes, from + rows[i] * bytes, bytes);
    }
  }

 private:
  using matrix = Eigen::Map<Eigen::MatrixXf>;
  using operand = Eigen::Map<const Eigen::MatrixXf>;
  static Eigen::Index length(std::size_t n) { return static_cast<Eigen::Index>(n); }
};

}  // namespace mlp
