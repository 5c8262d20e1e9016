// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/cuda/cuda_device.hpp>
#include <penstock/cuda/cuda_error.hpp>
#include <penstock/cuda/cuda_stream.hpp>
#include <penstock/cuda/detail/cuda_call.hpp>

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

/// Replays a step as a CUDA graph: one launch in place of the step's many. Possible because a
/// feed's device slots lie at fixed addresses; one graph is kept for each pair of slot and batch
/// size.
///
///     ps::step_graphs graphs{device};
///     for (auto& batch : feed.epochs(0, 5)) {
///       graphs.launch(batch, stream, [&](ps::cuda_stream_ref on) {
///         train_step(ps::get<"image">(batch), ps::get<"label">(batch), on);
///       });
///     }
///
/// The step is called once for each pair, by the pair's first launch, to enqueue its work on the
/// stream that it is given, which captures and runs nothing; that launch and all later ones replay
/// what was captured, and later ones don't call the step. So all that the step passes by value
/// stays as it was then: addresses, sizes, scalars. What changes from step to step (a count, a
/// learning rate, where the loss goes) is read from device memory by the kernels. The step must not
/// synchronise, allocate, or use another stream that it does not fork from and join to the one
/// given; cuBLAS and the like get a workspace of their own beforehand. What is loaded or allocated
/// at first use (kernels, a library's handle) is used once before the loop: rehearse the step by
/// calling it with a stream and memory of its own.
///
/// The stream that captures is the consumer's own, so that a handle that was set to it long ago is
/// captured with the rest. The default stream can't capture: a stream that waits for it captures in
/// its place, and work for the default stream is refused meanwhile (`capture_in_progress`). No
/// lease may end on another thread while the first launch of a pair runs.
///
/// One object for one feed and one step. Used by one thread at a time. Memory is bounded by slots x
/// different sizes: two sizes, where the last batch is short. Replays of one graph run in order;
/// synchronise with them before memory that they use goes, and before this object does.
class step_graphs {
 public:
  /// For steps of this device.
  explicit step_graphs(const cuda_device& device) : device_(device) {}

  /// Runs `step` on the batch's samples in `stream`; by replay, if it was captured before. Blocks
  /// nothing but for the first time. Throws what the step throws, `capture_in_progress` when the
  /// step does what can't be captured, `std::logic_error` when it put no work on the stream that it
  /// was given, or when the batch's address is not the one captured (another feed's). Nothing is
  /// kept or left in the last-error slot then.
  template <class Batch, class Step>
    requires requires(const Batch& batch) {
      { batch.data() } -> std::convertible_to<const void*>;
      { batch.slot() } -> std::convertible_to<std::size_t>;
      { batch.size() } -> std::convertible_to<std::size_t>;
    }
  void launch(const Batch& batch, cuda_stream_ref stream, Step&& step) {
    if constexpr (requires { batch.used_on(stream); }) batch.used_on(stream);
    launch_at(batch.data(), batch.slot(), batch.size(), stream, step);
  }

  /// Runs a step without a lease: the caller ensures that a pair of `slot` and `size` always means
  /// the same addresses.
  template <class Step>
  void launch(std::size_t slot, std::size_t size, cuda_stream_ref stream, Step&& step) {
    launch_at(nullptr, slot, size, stream, step);
  }

  /// How many graphs are kept.
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  /// Forgets all graphs; synchronise with their replays before.
  void clear() noexcept { entries_.clear(); }

 private:
  struct entry {
    std::size_t slot;
    std::size_t size;
    const void* address;
    detail::cuda_graph_exec graph;
  };

  template <class Step>
  void launch_at(const void* address, std::size_t slot, std::size_t size, cuda_stream_ref stream,
                 Step& step) {
    for (const entry& known : entries_) {
      if (known.slot != slot || known.size != size) continue;
      if (known.address != address) {
        throw std::logic_error(
            "penstock::step_graphs: slot " + std::to_string(slot) +
            " was captured at another address: one step_graphs for one feed, or clear() between");
      }
      known.graph.launch(stream);
      return;
    }
    const detail::scoped_device current{device_.ordinal()};
    // In the list only once it has been launched: what fails leaves nothing behind.
    entries_.reserve(entries_.size() + 1);
    detail::cuda_graph_exec made{captured(capturing_for(stream), step)};
    made.launch(stream);
    entries_.push_back({slot, size, address, std::move(made)});
  }

  /// The stream that captures what is to run in `stream`: that one, unless it is the default stream
  /// or the program captures from it already.
  [[nodiscard]] cuda_stream_ref capturing_for(cuda_stream_ref stream) {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    const bool is_legacy = stream.get() == cudaStreamLegacy;
#else
    const bool is_legacy = stream.get() == cudaStreamLegacy || stream.get() == nullptr;
#endif
    if (!is_legacy) {
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      detail::cuda_call("cudaStreamIsCapturing",
                        [&] { return cudaStreamIsCapturing(stream.get(), &status); });
      if (status == cudaStreamCaptureStatusNone) return stream;
    }
    if (!apart_) {
      // Not cudaStreamNonBlocking: CUDA then refuses work for the default stream while this one
      // captures, in place of running it once and never again.
      cudaStream_t made = nullptr;
      const detail::scoped_relaxed_capture relaxed;
      detail::cuda_call("cudaStreamCreateWithFlags",
                        [&] { return cudaStreamCreateWithFlags(&made, cudaStreamDefault); });
      apart_ = cuda_stream::from_native_handle(made);
    }
    return *apart_;
  }

  template <class Step>
  [[nodiscard]] static detail::cuda_graph captured(cuda_stream_ref on, Step& step) {
    detail::cuda_call("cudaStreamBeginCapture", [&] {
      return cudaStreamBeginCapture(on.get(), cudaStreamCaptureModeThreadLocal);
    });
    try {
      step(on);
    } catch (...) {
      // The step's exception tells; what its calls left in the last-error slot says no more.
      static_cast<void>(end_capture(on));
      static_cast<void>(cudaGetLastError());
      throw;
    }
    const cudaError_t unseen = cudaGetLastError();
    auto [graph, code] = end_capture(on);
    if (code != cudaSuccess) throw_not_captured(code);
    if (unseen != cudaSuccess) {
      detail::throw_cuda_error(unseen, "a call in the step of step_graphs, which did not look");
    }
    require_work(graph);
    return std::move(graph);
  }

  struct ended_capture {
    detail::cuda_graph graph;
    cudaError_t code;
  };

  /// Ends it, also one that is broken: the stream can capture again.
  [[nodiscard]] static ended_capture end_capture(cuda_stream_ref on) noexcept {
    cudaGraph_t graph = nullptr;
    const cudaError_t code =
        detail::cuda_try([&] { return cudaStreamEndCapture(on.get(), &graph); });
    return {detail::cuda_graph::from_native_handle(graph), code};
  }

  [[noreturn]] static void throw_not_captured(cudaError_t code) {
    const detail::cuda_site site{"cudaStreamEndCapture"};
    try {
      detail::throw_cuda_error(code, site);
    } catch (const capture_in_progress&) {  // the same type, with the advice that fits here
      detail::throw_as<capture_in_progress>(
          code, site, "a step can't be captured as a CUDA graph",
          "it synchronised, allocated, left a forked stream unjoined, or used the default stream: "
          "do "
          "that before the loop, use the stream it is given, or run the step without step_graphs");
    }
  }

  /// A step that used a stream of its own has run once, and its graph would never do anything.
  static void require_work(const detail::cuda_graph& graph) {
    std::size_t nodes = 0;
    detail::cuda_call("cudaGraphGetNodes",
                      [&] { return cudaGraphGetNodes(graph.get(), nullptr, &nodes); });
    if (nodes != 0) return;
    throw std::logic_error(
        "penstock::step_graphs: the step put no work on the stream that it was given as its "
        "argument: does it use another one?");
  }

  cuda_device device_;
  std::optional<cuda_stream> apart_;
  std::vector<entry> entries_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
