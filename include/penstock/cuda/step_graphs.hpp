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

/// Owns a CUDA graph, which is not yet executable. Move-only.
class cuda_graph : public unique_handle<graph_handle> {
 public:
  /// No graph; may only be assigned to.
  cuda_graph() = default;

  /// Takes ownership of an existing graph, for the thread's current device.
  [[nodiscard]] static cuda_graph from_native_handle(cudaGraph_t handle) noexcept {
    return cuda_graph{handle, current_ordinal()};
  }
  static cuda_graph from_native_handle(int) = delete;
  static cuda_graph from_native_handle(std::nullptr_t) = delete;

 private:
  cuda_graph(cudaGraph_t handle, int ordinal) noexcept : unique_handle(handle, ordinal) {}
};

/// Owns an executable graph. Move-only. Launches of one graph are serialised, on whatever streams.
class cuda_graph_exec : public unique_handle<graph_exec_handle> {
 public:
  /// No graph; may only be assigned to.
  cuda_graph_exec() = default;
  /// Instantiates `graph` on its device; `graph` is not needed afterwards. Slow: allocates. Throws
  /// `cuda_error` or a derived type.
  explicit cuda_graph_exec(const cuda_graph& graph) : unique_handle(made(graph), graph.ordinal()) {}

  /// Queues the graph's work in `stream`; the default stream is that of the graph's device. Blocks
  /// nothing. Throws what `cuda_error` and its children say.
  void launch(cuda_stream_ref stream) const {
    const stream_scope current{ordinal(), stream.get()};
    cuda_call("cudaGraphLaunch", [&] { return cudaGraphLaunch(get(), stream.get()); });
  }

 private:
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

/// Replays a step as a CUDA graph: one launch instead of many. This works because a feed's device
/// slots have fixed addresses; one graph is kept for each pair of slot and batch size.
///
///     ps::step_graphs graphs{device};
///     for (auto& batch : feed.epochs(0, 5)) {
///       graphs.launch(batch, stream, [&](ps::cuda_stream_ref on) {
///         train_step(ps::get<"image">(batch), ps::get<"label">(batch), on);
///       });
///     }
///
/// The first launch of each pair calls the step to queue its work on a stream that captures it;
/// that launch and all later ones replay the capture, without calling the step again. So everything
/// that the step passes by value is frozen: addresses, sizes, scalars. Values that change from step
/// to step (a counter, a learning rate, the place of the loss) must be read from device memory by
/// the kernels. The step must not synchronise, allocate, or use another stream that it does not
/// fork from and join to the one given; give cuBLAS and similar libraries a workspace beforehand.
/// Whatever is loaded or allocated at first use (kernels, a library's handle) must be used once
/// before the loop: rehearse the step with another stream and other memory.
///
/// The consumer's own stream captures, so that library handles bound to it are captured too. The
/// default stream can't capture: another stream that waits for it captures instead, and work for
/// the default stream is refused meanwhile (`capture_in_progress`). No lease may end on another
/// thread during the first launch of a pair.
///
/// Use one object per feed and step, on one thread at a time. Memory is bounded by slots x sizes:
/// two sizes if the last batch is short. Replays of one graph run in order; synchronise with them
/// before their memory is freed and before this object is destroyed.
class step_graphs {
 public:
  /// For steps of this device.
  explicit step_graphs(const cuda_device& device) : device_(device) {}

  /// Runs `step` on the batch in `stream`, by replay if it was captured before. Blocks only the
  /// first time. If the program is capturing `stream`, calls the step to queue its work in that
  /// capture, and keeps nothing: a graph can't be launched there. Throws what the step throws,
  /// `capture_in_progress` if the step does something that can't be captured, and
  /// `std::logic_error` if it queued no work on its stream, or if the batch's address differs from
  /// the captured one (another feed). After an exception nothing is kept or left in the last-error
  /// slot.
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

  /// The number of graphs.
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  /// Destroys all graphs; synchronise with their replays before.
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
    if (is_captured(stream)) {
      const detail::scoped_device current{device_.ordinal()};
      step(stream);
      return;
    }
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
    // Added to the list only after the launch, so that failures leave nothing behind.
    entries_.reserve(entries_.size() + 1);
    detail::cuda_graph_exec made{captured(capturing_for(stream), step)};
    made.launch(stream);
    entries_.push_back({slot, size, address, std::move(made)});
  }

  /// Whether a handle means the legacy default stream, which can't be captured.
  [[nodiscard]] static bool is_legacy(cuda_stream_ref stream) noexcept {
    return detail::is_default(stream.get()) && !detail::is_per_thread(stream.get());
  }

  /// Whether the program is capturing the stream. Throws what `cuda_error` and its children say.
  [[nodiscard]] bool is_captured(cuda_stream_ref stream) const {
    if (is_legacy(stream)) return false;
    const detail::stream_scope current{device_.ordinal(), stream.get()};
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    detail::cuda_call("cudaStreamIsCapturing",
                      [&] { return cudaStreamIsCapturing(stream.get(), &status); });
    return status != cudaStreamCaptureStatusNone;
  }

  /// The capturing stream for `stream`: itself, unless it is the legacy default stream.
  [[nodiscard]] cuda_stream_ref capturing_for(cuda_stream_ref stream) {
    if (!is_legacy(stream)) return stream;
    if (!apart_) {
      // Not cudaStreamNonBlocking, so that CUDA refuses work for the default stream during the
      // capture instead of running it just once.
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
    const detail::scoped_strict_capture strict;
    detail::cuda_call("cudaStreamBeginCapture", [&] {
      return cudaStreamBeginCapture(on.get(), cudaStreamCaptureModeThreadLocal);
    });
    try {
      step(on);
    } catch (...) {
      // The step's exception is reported; the last-error slot adds nothing to it.
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

  /// Ends a capture, even an invalidated one, so that the stream can capture again.
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
    } catch (const capture_in_progress&) {  // rethrown with advice for this case
      detail::throw_as<capture_in_progress>(
          code, site, "a step can't be captured as a CUDA graph",
          "it synchronised, allocated, left a forked stream unjoined, or used the default stream: "
          "do "
          "that before the loop, use the stream it is given, or run the step without step_graphs");
    }
  }

  /// Refuses an empty graph: a step that used another stream has run once, and its replay would do
  /// nothing.
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
