#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/device/cuda_call.hpp>
#include <penstock/device/cuda_device.hpp>
#include <penstock/device/cuda_error.hpp>
#include <penstock/device/cuda_stream.hpp>

namespace penstock::inline PENSTOCK_ABI {

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

/// Replays a step as a CUDA graph: one launch in place of the step's many. Possible because a feed's
/// device slots lie at fixed addresses; one graph is kept for each pair of slot and batch size.
///
///     ps::cuda_graphs graphs{device};
///     for (auto& batch : feed.epochs(0, 5)) {
///       graphs.launch(batch, stream, [&](ps::cuda_stream_ref on) {
///         train_step(ps::get<"image">(batch), ps::get<"label">(batch), on);
///       });
///     }
///
/// The step is called once for each pair, to enqueue its work on the stream that it is given, which
/// captures and runs nothing; later launches replay what was captured and don't call it. So all that
/// the step passes by value stays as it was then: addresses, sizes, scalars. What changes from step to
/// step (a count, a learning rate, where the loss goes) is read from device memory by the kernels. The
/// step must not synchronise, allocate, or use another stream that it does not fork from and join to
/// the one given; cuBLAS and the like get that stream, and a workspace of their own beforehand.
///
/// One object for one feed and one step. Used by one thread at a time. Memory is bounded by slots x
/// different sizes: two sizes, where the last batch is short. Replays of one graph run in order;
/// synchronise with them before memory that they use goes, and before this object does.
class cuda_graphs {
 public:
  /// Makes the stream to capture on. Throws what `cuda_error` and its children say.
  explicit cuda_graphs(const cuda_device& device)
      : device_(device), capture_(device.make_stream()) {}

  /// Runs `step` on the batch's samples in `stream`; by replay, if it was captured before. Blocks
  /// nothing but for the first time. Throws what the step throws, `capture_in_progress` when the step
  /// does what can't be captured, `std::logic_error` when it put no work on the stream that it was
  /// given, or when the batch's address is not the one captured (another feed's). Nothing is kept or
  /// left in the last-error slot then.
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

  /// The same without a lease: the caller sees to it that a pair of `slot` and `size` always means the
  /// same addresses.
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
    cuda_graph_exec graph;
  };

  template <class Step>
  void launch_at(const void* address, std::size_t slot, std::size_t size, cuda_stream_ref stream,
                 Step& step) {
    for (const entry& known : entries_) {
      if (known.slot != slot || known.size != size) continue;
      if (known.address != address) {
        throw std::logic_error(
            "penstock::cuda_graphs: slot " + std::to_string(slot) +
            " was captured at another address: one cuda_graphs for one feed, or clear() between");
      }
      known.graph.launch(stream);
      return;
    }
    const detail::scoped_device current{device_.ordinal()};
    // In the list only once it has been launched: what fails leaves nothing behind.
    entries_.reserve(entries_.size() + 1);
    cuda_graph_exec made{captured(step)};
    made.launch(stream);
    entries_.push_back({slot, size, address, std::move(made)});
  }

  template <class Step>
  [[nodiscard]] cuda_graph captured(Step& step) {
    detail::cuda_call("cudaStreamBeginCapture", [&] {
      return cudaStreamBeginCapture(capture_.get(), cudaStreamCaptureModeThreadLocal);
    });
    try {
      step(cuda_stream_ref{capture_});
    } catch (...) {
      // The step's exception tells; what its calls left in the last-error slot says no more.
      static_cast<void>(end_capture());
      static_cast<void>(cudaGetLastError());
      throw;
    }
    const cudaError_t unseen = cudaGetLastError();
    auto [graph, code] = end_capture();
    if (code != cudaSuccess) throw_not_captured(code);
    if (unseen != cudaSuccess) {
      detail::throw_cuda_error(unseen, "a call in the step of cuda_graphs, which did not look");
    }
    require_work(graph);
    return std::move(graph);
  }

  struct ended_capture {
    cuda_graph graph;
    cudaError_t code;
  };

  /// Ends it, also one that is broken: the stream can capture again.
  [[nodiscard]] ended_capture end_capture() noexcept {
    cudaGraph_t graph = nullptr;
    const cudaError_t code =
        detail::cuda_try([&] { return cudaStreamEndCapture(capture_.get(), &graph); });
    return {cuda_graph::from_native_handle(graph), code};
  }

  [[noreturn]] static void throw_not_captured(cudaError_t code) {
    const detail::cuda_site site{"cudaStreamEndCapture"};
    try {
      detail::throw_cuda_error(code, site);
    } catch (const capture_in_progress&) {  // the same type, with the advice that fits here
      detail::throw_as<capture_in_progress>(
          code, site, "a step can't be captured as a CUDA graph",
          "it synchronised, allocated, or left a forked stream unjoined: do that before the loop, "
          "or run the step without cuda_graphs");
    }
  }

  /// A step that used a stream of its own has run once, and its graph would do nothing for ever.
  static void require_work(const cuda_graph& graph) {
    std::size_t nodes = 0;
    detail::cuda_call("cudaGraphGetNodes",
                      [&] { return cudaGraphGetNodes(graph.get(), nullptr, &nodes); });
    if (nodes != 0) return;
    throw std::logic_error(
        "penstock::cuda_graphs: the step put no work on the stream that it was given as its "
        "argument: does it use another one?");
  }

  cuda_device device_;
  cuda_stream capture_;
  std::vector<entry> entries_;
};

}  // namespace penstock::inline PENSTOCK_ABI
