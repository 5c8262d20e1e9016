// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

#include <penstock/cuda/cuda_stream.hpp>
#include <penstock/cuda/detail/cuda_call.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Owns a CUDA graph: work that is described and not yet made ready to run. Move-only.
class cuda_graph {
 public:
  /// No graph: only to be assigned to.
  cuda_graph() = default;

  /// Takes ownership of a graph that exists.
  [[nodiscard]] static cuda_graph from_native_handle(cudaGraph_t handle) noexcept {
    cuda_graph taken;
    taken.handle_ = handle;
    return taken;
  }
  static cuda_graph from_native_handle(int) = delete;
  static cuda_graph from_native_handle(std::nullptr_t) = delete;

  cuda_graph(cuda_graph&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  cuda_graph& operator=(cuda_graph&& other) noexcept {
    cuda_graph old = from_native_handle(std::exchange(handle_, nullptr));
    handle_ = std::exchange(other.handle_, nullptr);
    return *this;
  }
  ~cuda_graph() {
    if (handle_ != nullptr) detail::cuda_release([&] { return cudaGraphDestroy(handle_); });
  }

  /// The graph; null after `release`, for a moved-from and for a default-made object.
  [[nodiscard]] cudaGraph_t get() const noexcept { return handle_; }
  /// Gives the graph away: the caller destroys it.
  [[nodiscard]] cudaGraph_t release() noexcept { return std::exchange(handle_, nullptr); }

 private:
  cudaGraph_t handle_ = nullptr;
};

/// Owns a graph that is ready to run. Move-only. Launches of one run one behind the other, whatever
/// their streams.
class cuda_graph_exec {
 public:
  /// No graph: only to be assigned to.
  cuda_graph_exec() = default;
  /// Makes `graph` ready to run; it is not needed any more then. Slow: allocates. Throws what
  /// `cuda_error` and its children say.
  explicit cuda_graph_exec(const cuda_graph& graph) {
    const detail::scoped_relaxed_capture relaxed;
    detail::cuda_call("cudaGraphInstantiateWithFlags",
                      [&] { return cudaGraphInstantiateWithFlags(&handle_, graph.get(), 0); });
  }

  /// Takes ownership of an executable graph that exists.
  [[nodiscard]] static cuda_graph_exec from_native_handle(cudaGraphExec_t handle) noexcept {
    cuda_graph_exec taken;
    taken.handle_ = handle;
    return taken;
  }
  static cuda_graph_exec from_native_handle(int) = delete;
  static cuda_graph_exec from_native_handle(std::nullptr_t) = delete;

  cuda_graph_exec(cuda_graph_exec&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)) {}
  cuda_graph_exec& operator=(cuda_graph_exec&& other) noexcept {
    cuda_graph_exec old = from_native_handle(std::exchange(handle_, nullptr));
    handle_ = std::exchange(other.handle_, nullptr);
    return *this;
  }
  ~cuda_graph_exec() {
    if (handle_ != nullptr) detail::cuda_release([&] { return cudaGraphExecDestroy(handle_); });
  }

  /// Queues the graph's work in `stream`. Blocks nothing. Throws what `cuda_error` and its children
  /// say.
  void launch(cuda_stream_ref stream) const {
    detail::cuda_call("cudaGraphLaunch", [&] { return cudaGraphLaunch(handle_, stream.get()); });
  }

  /// The graph; null after `release`, for a moved-from and for a default-made object.
  [[nodiscard]] cudaGraphExec_t get() const noexcept { return handle_; }
  /// Gives the graph away: the caller destroys it.
  [[nodiscard]] cudaGraphExec_t release() noexcept { return std::exchange(handle_, nullptr); }

 private:
  cudaGraphExec_t handle_ = nullptr;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
