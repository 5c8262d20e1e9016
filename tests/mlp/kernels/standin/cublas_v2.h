#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "fake_cuda/fake_cuda.hpp"

// Replaces cuBLAS on the fake of the CUDA runtime: host code on the stream in place of the
// kernels of cuBLAS. Scalars are in host memory.

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_INVALID_VALUE = 7 };
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0 };

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

/// Computes c (m x n) = alpha * a (m x k) * b (k x n) + beta * c, column-major. `beta` must be 0.
inline cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t a_lies,
                                  cublasOperation_t b_lies, int m, int n, int k, const float* alpha,
                                  const float* a, int a_leading, const float* b, int b_leading,
                                  const float* beta, float* c, int c_leading) {
  if (*beta != 0.0F) return CUBLAS_STATUS_INVALID_VALUE;
  const auto size = [](int length) { return static_cast<std::size_t>(length); };
  // Steps from row to row, and from column to column.
  const std::size_t a_row = a_lies == CUBLAS_OP_T ? size(a_leading) : 1;
  const std::size_t a_column = a_lies == CUBLAS_OP_T ? 1 : size(a_leading);
  const std::size_t b_row = b_lies == CUBLAS_OP_T ? size(b_leading) : 1;
  const std::size_t b_column = b_lies == CUBLAS_OP_T ? 1 : size(b_leading);
  const auto work = [=, factor = *alpha, rows = size(m), columns = size(n), terms = size(k),
                     leading = size(c_leading)] {
    for (std::size_t column = 0; column < columns; ++column) {
      for (std::size_t row = 0; row < rows; ++row) {
        float sum = 0.0F;
        for (std::size_t i = 0; i < terms; ++i) {
          sum += a[row * a_row + i * a_column] * b[i * b_row + column * b_column];
        }
        c[column * leading + row] = factor * sum;
      }
    }
  };
  fake_cuda::launch(handle->stream, work, {a, b, c});
  return CUBLAS_STATUS_SUCCESS;
}
