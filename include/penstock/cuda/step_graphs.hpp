// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/cuda/cuda_device.hpp>
#include <penstock/cuda/cuda_error.hpp>
#include <penstock/cuda/cuda_stream.hpp>
#include <penstock/cuda/detail/cuda_call.hpp>
#include <penstock/device/device.hpp>

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

/// Owns a CUDA graph that is not instantiated. Move-only.
class cuda_graph : public unique_handle<graph_handle> {
 public:
  /// Creates an empty object, which supports only assignment and destruction.
  cuda_graph() = default;

  /// Takes ownership of an existing graph on the current device.
  [[nodiscard]] static cuda_graph from_native_handle(cudaGraph_t handle) noexcept {
    return cuda_graph{handle, current_ordinal()};
  }
  static cuda_graph from_native_handle(int) = delete;
  static cuda_graph from_native_handle(std::nullptr_t) = delete;

 private:
  cuda_graph(cudaGraph_t handle, int ordinal) noexcept : unique_handle(handle, ordinal) {}
};

/// Owns an executable graph. Move-only. Launches of the same graph are serialized, even on
/// different streams.
class cuda_graph_exec : public unique_handle<graph_exec_handle> {
 public:
  /// Creates an empty object, which supports only assignment and destruction.
  cuda_graph_exec() = default;
  /// Instantiates `graph` on its device. `graph` is not needed afterwards. Slow, because it
  /// allocates. Throws `cuda_error` or a derived type.
  explicit cuda_graph_exec(const cuda_graph& graph) : unique_handle(made(graph), graph.ordinal()) {}

  /// Queues the graph on `stream`. A default stream means the default stream of the graph's device.
  /// Does not block. Throws `cuda_error` or a derived type.
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

/// A lease, view or span with a memory address.
template <class T>
concept has_address = requires(const T& memory) {
  { memory.data() } -> std::convertible_to<const void*>;
};

}  // namespace detail

/// The options of `step_graphs`.
struct step_graphs_options {
  /// Stores a graph for each number of valid samples. If false, batches of the same size share a
  /// graph, regardless of the number of padding samples (`batcher_options::allowed_batch_sizes`).
  /// The step must then also compute the padding, or read the number of valid samples from device
  /// memory.
  bool per_valid_count = true;
};

/// Replays a step as a CUDA graph, which needs a single launch instead of many. Replay is possible
/// because the device slots of a feed have fixed addresses. Stores a graph for each combination of
/// slot, batch size, number of valid samples, and result slots acquired for the batch.
///
///     ps::step_graphs graphs{device};
///     for (auto& batch : feed.epochs(0, 5)) {
///       graphs.launch(batch, stream, [&](ps::cuda_stream_ref on) {
///         train_step(ps::get<"image">(batch), ps::get<"label">(batch), on);
///       });
///     }
///
/// The first launch of each combination calls the step to queue its work on a capturing stream.
/// That launch and all later launches replay the capture without calling the step. Therefore all
/// values that the step passes to kernels are frozen, such as addresses, sizes and scalars. Kernels
/// must read values that change between steps from device memory, such as a learning rate or an
/// index in a list of losses. If a step also uses another batch, such as a batch of a second feed,
/// pass that batch as a last argument of `launch`. The step must not synchronize or allocate. The
/// step may use another stream only if it forks that stream from the passed stream and joins it
/// again. Set the workspace of cuBLAS and similar libraries before the loop. Kernels and library
/// handles may load code or allocate at first use, so run the step once before the loop, on another
/// stream and other memory.
///
/// The step is captured on the consumer stream, so that library handles bound to this stream are
/// captured too. The default stream does not support capture. If the consumer uses the default
/// stream, the step is captured on a stream that waits for it, and CUDA rejects work on the default
/// stream during the capture (`capture_in_progress`). No lease may end on another thread during the
/// first launch of a combination.
///
/// Use one object per feed and step, on one thread at a time. The number of graphs is at most slots
/// x sizes x result slots, with two sizes if the last batch is short or padded. Replays of the same
/// graph run in order. Synchronize with the replays before freeing their memory or destroying this
/// object.
class step_graphs {
 public:
  /// Creates an empty cache of graphs for steps on `device`.
  explicit step_graphs(const cuda_device& device, const step_graphs_options& options = {})
      : device_(device), options_(options) {}

  /// Runs `step` for the batch on `stream`, or replays the step if it was captured before. Blocks
  /// only during the first launch. If the program is capturing `stream`, calls the step to queue
  /// its work in that capture and does not store a graph, because graphs cannot be launched during
  /// a capture. Propagates exceptions from the step. Throws `capture_in_progress` if the step does
  /// something that cannot be captured. Throws `std::logic_error` if the step did not queue work on
  /// its stream, if the batch address differs from the captured address (another feed), if the
  /// batch is on another device, or if its lease does not wait for `stream`. After an exception, no
  /// graph is stored, and no error is left in the last-error slot.
  ///
  /// `others` are other leases, views or spans whose `data()` the step uses. The addresses of
  /// `others` are frozen too, so other addresses require another graph.
  template <class Batch, class Step, detail::has_address... Others>
    requires requires(const Batch& batch) {
      { batch.data() } -> std::convertible_to<const void*>;
      { batch.slot() } -> std::convertible_to<std::size_t>;
      { batch.size() } -> std::convertible_to<std::size_t>;
    }
  void launch(const Batch& batch, cuda_stream_ref stream, Step&& step, const Others&... others) {
    if constexpr (requires {
                    { batch.device() } -> std::convertible_to<cuda_device>;
                  }) {
      require_device(batch.device());
    }
    if constexpr (requires { batch.is_ordered_on(stream); }) {
      if (!batch.is_ordered_on(stream)) throw_unordered(batch.stream(), stream);
    }
    const std::array<const void*, sizeof...(Others)> also{others.data()...};
    key at{batch.data(), batch.slot(), batch.size(), batch.size(), {}, also};
    if constexpr (requires { batch.valid(); }) {
      if (options_.per_valid_count) at.valid = batch.valid();
    }
    if constexpr (requires { batch.results(); }) at.results = batch.results();
    launch_at(at, stream, step);
  }

  /// Runs a step without a lease. The caller must ensure that each pair of `slot` and `size` always
  /// means the same addresses, including the addresses of results.
  template <class Step>
  void launch(std::size_t slot, std::size_t size, cuda_stream_ref stream, Step&& step) {
    launch_at({nullptr, slot, size, size, {}, {}}, stream, step);
  }

  /// Returns the number of graphs.
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  /// Destroys all graphs. Synchronize with their replays first.
  void clear() noexcept { entries_.clear(); }

 private:
  using result = std::pair<const void*, const void*>;  // owner and address
  /// The values that identify a captured step.
  struct key {
    const void* address;
    std::size_t slot;
    std::size_t size;
    std::size_t valid;
    std::span<const result> results;
    std::span<const void* const> others;
  };
  struct entry {
    const void* address;
    std::size_t slot;
    std::size_t size;
    std::size_t valid;
    std::vector<result> results;
    std::vector<const void*> others;
    detail::cuda_graph_exec graph;

    [[nodiscard]] bool is_of(const key& at) const noexcept {
      return slot == at.slot && size == at.size && valid == at.valid &&
             std::equal(results.begin(), results.end(), at.results.begin(), at.results.end()) &&
             std::equal(others.begin(), others.end(), at.others.begin(), at.others.end());
    }
  };

  void require_device(const cuda_device& device) const {
    if (device == device_) return;
    throw std::logic_error(
        detail::str_cat({"penstock::step_graphs: the batch is on device ", device.ordinal(),
                         ", but the graphs are for device ", device_.ordinal(),
                         ": construct step_graphs for the device of the feed"}));
  }
  [[noreturn]] void throw_unordered(cuda_stream_ref own, cuda_stream_ref stream) const {
    throw std::logic_error(detail::str_cat(
        {"penstock::step_graphs: the batch was handed to ", detail::stream_name(device_, own),
         ", but its step is launched on ", detail::stream_name(device_, stream),
         ": launch the step on the feed's stream, or call also_used_on(stream) first"}));
  }

  template <class Step>
  void launch_at(const key& at, cuda_stream_ref stream, Step& step) {
    if (is_captured(stream)) {
      const detail::scoped_device current{device_.ordinal()};
      step(stream);
      return;
    }
    for (const entry& known : entries_) {
      if (!known.is_of(at)) continue;
      if (known.address != at.address) {
        throw std::logic_error("penstock::step_graphs: slot " + std::to_string(at.slot) +
                               " was captured at a different address: use one step_graphs per "
                               "feed, or call clear() between feeds");
      }
      known.graph.launch(stream);
      return;
    }
    const detail::scoped_device current{device_.ordinal()};
    // Adds the entry only after the launch, so that a failure does not leave an entry.
    entries_.reserve(entries_.size() + 1);
    entry made{at.address,
               at.slot,
               at.size,
               at.valid,
               {at.results.begin(), at.results.end()},
               {at.others.begin(), at.others.end()},
               detail::cuda_graph_exec{captured(capturing_for(stream), step)}};
    made.graph.launch(stream);
    entries_.push_back(std::move(made));
  }

  /// Returns true if a handle means the legacy default stream, which does not support capture.
  [[nodiscard]] static bool is_legacy(cuda_stream_ref stream) noexcept {
    return detail::is_default(stream.get()) && !detail::is_per_thread(stream.get());
  }

  /// Returns true if the program is capturing the stream. Throws `cuda_error` or a derived type.
  [[nodiscard]] bool is_captured(cuda_stream_ref stream) const {
    if (is_legacy(stream)) return false;
    const detail::stream_scope current{device_.ordinal(), stream.get()};
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    detail::cuda_call("cudaStreamIsCapturing",
                      [&] { return cudaStreamIsCapturing(stream.get(), &status); });
    return status != cudaStreamCaptureStatusNone;
  }

  /// Returns the stream that captures work for `stream`, which is `stream` itself unless it is the
  /// legacy default stream.
  [[nodiscard]] cuda_stream_ref capturing_for(cuda_stream_ref stream) {
    if (!is_legacy(stream)) return stream;
    if (!apart_) {
      // Not cudaStreamNonBlocking, so that CUDA rejects work on the default stream during the
      // capture instead of running it only once.
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
      // Ignores errors of the capture, because the exception that the step has thrown is reported
      // instead.
      static_cast<void>(end_capture(on));
      static_cast<void>(cudaGetLastError());
      throw;
    }
    const cudaError_t unseen = cudaGetLastError();
    auto [graph, code] = end_capture(on);
    if (code != cudaSuccess) throw_not_captured(code);
    if (unseen != cudaSuccess) {
      detail::throw_cuda_error(unseen,
                               "a call in the step of step_graphs, whose result was not checked");
    }
    require_work(graph);
    return std::move(graph);
  }

  struct ended_capture {
    detail::cuda_graph graph;
    cudaError_t code;
  };

  /// Ends a capture, even if it was invalidated, so that the stream can capture again.
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
          code, site, "the step cannot be captured as a CUDA graph",
          "it synchronized, allocated, left a forked stream unjoined, or used the default stream: "
          "do that before the loop, use the stream passed to the step, or run the step without "
          "step_graphs");
    }
  }

  /// Throws if the graph is empty. In that case, the step used another stream, so its work has run
  /// once, and a replay would do nothing.
  static void require_work(const detail::cuda_graph& graph) {
    std::size_t nodes = 0;
    detail::cuda_call("cudaGraphGetNodes",
                      [&] { return cudaGraphGetNodes(graph.get(), nullptr, &nodes); });
    if (nodes != 0) return;
    throw std::logic_error(
        "penstock::step_graphs: the step queued no work on the stream passed to it: check that it "
        "does not use a different stream");
  }

  cuda_device device_;
  step_graphs_options options_;
  std::optional<cuda_stream> apart_;
  std::vector<entry> entries_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
