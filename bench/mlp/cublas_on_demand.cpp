// SPDX-License-Identifier: BSL-1.0
// The cuBLAS functions that cuda_backend.cuh calls, implemented by functions that load the library
// on first use. The program therefore starts without cuBLAS, whose two files take 600 MB, but can
// then use only the fused kernels. Intended for programs that are copied to another machine
// (bench/gpu_pack.sh).
#include "cublas.hpp"

#include <cublas_v2.h>
#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace {

struct library {
  std::string why_not{};
  void* handle = nullptr;

  library() {
    const std::string name = "libcublas.so." + std::to_string(CUBLAS_VER_MAJOR);
    handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) why_not = ::dlerror();
  }
};

const library& cublas() {
  static const library loaded;
  return loaded;
}

/// Calls the library's function with this name, which has the same type as the wrapper.
template <auto Wrapper, class... Arguments>
auto call(const char* name, Arguments... arguments) {
  static const auto function = [name] {
    void* found = cublas().handle == nullptr ? nullptr : ::dlsym(cublas().handle, name);
    if (found == nullptr) throw std::runtime_error("cuBLAS has no " + std::string{name});
    return reinterpret_cast<decltype(Wrapper)>(found);
  }();
  return function(arguments...);
}

}  // namespace

std::optional<std::string> mlp::why_no_cublas() {
  if (cublas().handle != nullptr) return std::nullopt;
  return cublas().why_not;
}

extern "C" {

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  return call<&cublasCreate>("cublasCreate_v2", handle);
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  return call<&cublasDestroy>("cublasDestroy_v2", handle);
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return call<&cublasSetMathMode>("cublasSetMathMode", handle, mode);
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  return call<&cublasSetStream>("cublasSetStream_v2", handle, stream);
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes) {
  return call<&cublasSetWorkspace>("cublasSetWorkspace_v2", handle, workspace, bytes);
}

const char* cublasGetStatusString(cublasStatus_t status) {
  return call<&cublasGetStatusString>("cublasGetStatusString", status);
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t how_a, cublasOperation_t how_b,
                           int m, int n, int k, const float* alpha, const float* a, int lda,
                           const float* b, int ldb, const float* beta, float* c, int ldc) {
  return call<&cublasSgemm>("cublasSgemm_v2", handle, how_a, how_b, m, n, k, alpha, a, lda, b, ldb,
                            beta, c, ldc);
}

}  // extern "C"
