// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include <penstock/cuda/cuda_stream.hpp>
#include <penstock/cuda/detail/cuda_call.hpp>
#include <penstock/cuda/detail/cuda_context.hpp>
#include <penstock/cuda/detail/stream_scope.hpp>
#include <penstock/cuda/detail/unique_handle.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

struct graph_handle {
  using native_type = cudaGraph_t;
  static void destroy(cudaGraph_t handle) noexcept {
    cuda_release([&] { return cudaGraphDestroy(handle); });
  }
};

struct graph_exec_handle {
  using native_type = cudaGraphExec_t;
  static void destroy(cudaGraphExec_t handle) noexcept {
    cuda_release([&] { return cudaGraphExecDestroy(handle); });
  }
};

/// Owns a CUDA graph: work that is described and not yet made ready to run. Move-only.
class cuda_graph : public unique_handle<graph_handle> {
 public:
  /// No graph: only to be assigned to.
  cuda_graph() = default;

  /// Takes ownership of a graph that exists, for the thread's current device.
  [[nodiscard]] static cuda_graph from_native_handle(cudaGraph_t handle) noexcept {
    return cuda_graph{handle, current_ordinal()};
  }
  static cuda_graph from_native_handle(int) = delete;
  static cuda_graph from_native_handle(std::nullptr_t) = delete;

 private:
  cuda_graph(cudaGraph_t handle, int ordinal) noexcept : unique_handle(handle, ordinal) {}
};

/// Owns a graph that is ready to run. Move-only. Launches of one run one after the other, whatever
/// their streams.
class cuda_graph_exec : public unique_handle<graph_exec_handle> {
 public:
  /// No graph: only to be assigned to.
  cuda_graph_exec() = default;
  /// Makes `graph` ready to run on its device; it is not needed any more then. Slow: allocates.
  /// Throws what `cuda_error` and its children say.
  explicit cuda_graph_exec(const cuda_graph& graph) : unique_handle(made(graph), graph.ordinal()) {}

  /// Takes ownership of an executable graph that exists, for the thread's current device.
  [[nodiscard]] static cuda_graph_exec from_native_handle(cudaGraphExec_t handle) noexcept {
    return cuda_graph_exec{handle, current_ordinal()};
  }
  static cuda_graph_exec from_native_handle(int) = delete;
  static cuda_graph_exec from_native_handle(std::nullptr_t) = delete;

  /// Queues the graph's work in `stream`; the default stream is that of the graph's device. Blocks
  /// nothing. Throws what `cuda_error` and its children say.
  void launch(cuda_stream_ref stream) const {
    const stream_scope current{ordinal(), stream.get()};
    cuda_call("cudaGraphLaunch", [&] { return cudaGraphLaunch(get(), stream.get()); });
  }

 private:
  cuda_graph_exec(cudaGraphExec_t handle, int ordinal) noexcept : unique_handle(handle, ordinal) {}

  [[nodiscard]] static cudaGraphExec_t made(const cuda_graph& graph) {
    const scoped_context context{graph.ordinal()};
    const scoped_relaxed_capture relaxed;
    cudaGraphExec_t handle = nullptr;
    cuda_call("cudaGraphInstantiateWithFlags",
              [&] { return cudaGraphInstantiateWithFlags(&handle, graph.get(), 0); });
    return handle;
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
