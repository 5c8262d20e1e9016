#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include <penstock_ext/narrow/half.hpp>
#include <penstock_ext/narrow/half.hpp>

#include "fake_cuda/fake_cuda.hpp"

#if __has_include(<library_types.h>)
#include <library_types.h>
#else
enum cudaDataType { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
#endif

// Replaces cuBLAS on the fake of the CUDA runtime: host code on the stream in place of the
// kernels of cuBLAS. Scalars are in host memory.

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_INVALID_VALUE = 7 };
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };

struct cublasContext {
  cudaStream_t stream = nullptr;
};
using cublasHandle_t = cublasContext*;

inline const char* cublasGetStatusString(cublasStatus_t) { return "CUBLAS_STATUS"; }
inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

namespace cublas_standin {

/// A column-major matrix, which may be stored transposed.
template <class T>
struct operand {
  const T* data;
  std::size_t leading;
  bool transposed;
  [[nodiscard]] float operator()(std::size_t row, std::size_t column) const {
    return transposed ? data[row * leading + column] : data[column * leading + row];
  }
};

/// Computes c (m x n) = alpha * a (m x k) * b (k x n) + beta * c with sums in float. `beta` must
/// be 0.
template <class T>
cublasStatus_t multiply(cublasHandle_t handle, cublasOperation_t a_lies, cublasOperation_t b_lies,
                        int m, int n, int k, const float* alpha, const T* a, int a_leading,
                        const T* b, int b_leading, const float* beta, float* c, int c_leading) {
  if (*beta != 0.0F) return CUBLAS_STATUS_INVALID_VALUE;
  const auto size = [](int length) { return static_cast<std::size_t>(length); };
  const operand<T> left{a, size(a_leading), a_lies == CUBLAS_OP_T};
  const operand<T> right{b, size(b_leading), b_lies == CUBLAS_OP_T};
  const auto work = [=, factor = *alpha, rows = size(m), columns = size(n), terms = size(k),
                     leading = size(c_leading)] {
    for (std::size_t column = 0; column < columns; ++column) {
      for (std::size_t row = 0; row < rows; ++row) {
        float sum = 0.0F;
        for (std::size_t i = 0; i < terms; ++i) sum += left(row, i) * right(i, column);
        c[column * leading + row] = factor * sum;
      }
    }
  };
  fake_cuda::launch(handle->stream, work, {a, b, c});
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace cublas_standin

inline cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t a_lies,
                                  cublasOperation_t b_lies, int m, int n, int k, const float* alpha,
                                  const float* a, int a_leading, const float* b, int b_leading,
                                  const float* beta, float* c, int c_leading) {
  return cublas_standin::multiply(handle, a_lies, b_lies, m, n, k, alpha, a, a_leading, b,
                                  b_leading, beta, c, c_leading);
}

/// Multiplies operands of 16 bits. The code under test uses no other types.
inline cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t a_lies,
                                   cublasOperation_t b_lies, int m, int n, int k, const void* alpha,
                                   const void* a, cudaDataType a_type, int a_leading, const void* b,
                                   cudaDataType b_type, int b_leading, const void* beta, void* c,
                                   cudaDataType c_type, int c_leading, cublasComputeType_t,
                                   cublasGemmAlgo_t) {
  if (a_type != b_type || c_type != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
  const auto multiply = [&]<class T>(const T* left) {
    return cublas_standin::multiply(
        handle, a_lies, b_lies, m, n, k, static_cast<const float*>(alpha), left, a_leading,
        static_cast<const T*>(b), b_leading, static_cast<const float*>(beta),
        static_cast<float*>(c), c_leading);
  };
  if (a_type == CUDA_R_16F) return multiply(static_cast<const penstock::half*>(a));
  if (a_type == CUDA_R_16BF) return multiply(static_cast<const penstock::bfloat16*>(a));
  return CUBLAS_STATUS_INVALID_VALUE;
}

/// Computes y = a (m x n, not transposed) * x. alpha must be 1, beta 0, and the strides 1.
inline cublasStatus_t cublasSgemv(cublasHandle_t handle, cublasOperation_t, int m, int n,
                                  const float* alpha, const float* a, int leading, const float* x,
                                  int, const float* beta, float* y, int) {
  return cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, 1, n, alpha, a, leading, x, n, beta, y,
                     m);
}
