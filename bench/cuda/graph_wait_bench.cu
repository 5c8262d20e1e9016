// SPDX-License-Identifier: BSL-1.0
// Compares ways to start a step, a CUDA graph of about 19 us, after the copy of its batch. On an
// H100, a graph starts 5 us late if its stream has waited for an event.
//
//   penstock_cuda_graph_wait_bench [--json FILE] [--quick]
//
// --quick takes a second. Such a run checks that the program works; the numbers must not be quoted.
//
// All ways are measured in rotation. Each row shows the time per batch. The floor is the same step
// on batches that are not copied. The loops are written by hand and behave like a feed whose loader
// is fast: batch n can be copied when the copy of batch n - 5 is complete, because there are five
// host slots. The host queues the step of each batch as early as possible. The last rows are the
// library's feed, whose batches are always ready. Each repetition checks the sum of the values that
// the steps have read, and a way with a wrong sum is rejected.

#include <cuda_runtime.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>

#include "../support/ready_source.hpp"
#include "program.hpp"
#include "rows.hpp"
#include "spin.cuh"

namespace {

namespace ps = penstock;
using bench::must;
using clock_type = std::chrono::steady_clock;
using slab = ps::detail::slab<ps::cuda_device>;
using word = std::uint64_t;
using record = ps::record<ps::field<"words", word, ps::dyn>>;

constexpr std::size_t batch_words = 50'176 / sizeof(word);  // the bytes of 64 images of MNIST
constexpr std::size_t batch_bytes = batch_words * sizeof(word);
constexpr std::size_t host_slots = 5;  // divides no depth, so that slots get different values
constexpr int kernels_per_step = 4;
constexpr std::uint64_t step_nanoseconds = 19'000;
constexpr auto max_spin = std::chrono::microseconds{5};

/// A kernel of a step. The first kernel of a step adds the last word of the batch to `sum`.
__global__ void part_of_step(std::uint64_t nanoseconds, const word* last, word* sum) {
  if (last != nullptr) *sum += *last;
  bench::spin_for(nanoseconds);
}

/// Queues the kernels of a step. Throws if a launch fails.
void queue_step(cudaStream_t stream, const word* batch, word* sum) {
  for (int part = 0; part < kernels_per_step; ++part) {
    const word* const last = part == 0 ? batch + batch_words - 1 : nullptr;
    part_of_step<<<1, 1, 0, stream>>>(step_nanoseconds / kernels_per_step, last, sum);
    must(cudaGetLastError());
  }
}

/// Captures the work that `queue` queues on `stream`, and returns it as a graph. Propagates errors
/// from `queue`.
template <class Queue>
ps::detail::cuda_graph captured(cudaStream_t stream, const Queue& queue) {
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  cudaGraph_t graph = nullptr;
  try {
    queue();
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(stream, &graph));
    throw;
  }
  must(cudaStreamEndCapture(stream, &graph));
  return ps::detail::cuda_graph::from_native_handle(graph);
}

/// Returns true if all work queued before `event` was recorded has completed.
bool is_done(const ps::cuda_event& event) {
  const cudaError_t code = cudaEventQuery(event.get());
  if (code != cudaErrorNotReady) must(code);
  static_cast<void>(cudaGetLastError());
  return code == cudaSuccess;
}

/// CUDA driver functions that make a stream write or wait for a value in device memory.
struct stream_values {
  using function = int (*)(cudaStream_t, unsigned long long address, std::uint64_t value, unsigned);
  static constexpr unsigned at_least = 0;  // CU_STREAM_WAIT_VALUE_GEQ
  function write = found("cuStreamWriteValue64");
  function wait = found("cuStreamWaitValue64");

  /// Throws if the driver rejects a call.
  static void require(int result) {
    if (result == 0) return;
    throw std::runtime_error("the driver rejects with error " + std::to_string(result));
  }

 private:
  static function found(const char* name) {
    void* address = nullptr;
#if CUDART_VERSION >= 12050
    must(cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, nullptr));
#else
    must(cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, nullptr));
#endif
    if (address == nullptr) throw std::runtime_error(std::string{"the driver has no "} + name);
    return reinterpret_cast<function>(address);
  }
};

/// The memory, streams and events that all loops use.
class rig {
 public:
  rig(const ps::cuda_device& device, std::size_t depth)
      : device_(device),
        depth_(depth),
        host_(device, batch_bytes * host_slots, ps::detail::memory_kind::pinned, batch_bytes),
        there_(device, batch_bytes * depth, ps::detail::memory_kind::device),
        words_(device, 2 * sizeof(word), ps::detail::memory_kind::device) {
    for (std::size_t slot = 0; slot < host_slots; ++slot) {
      const std::vector<word> values(batch_words, slot + 1);
      std::memcpy(host_.data() + slot * batch_bytes, values.data(), batch_bytes);
    }
    for (std::size_t i = 0; i < depth + host_slots; ++i) {
      copied_.push_back(device.make_event(ps::event_wait::by_streams));
    }
    for (std::size_t i = 0; i < depth; ++i) {
      released_.push_back(device.make_event(ps::event_wait::by_streams));
    }
  }

  [[nodiscard]] const ps::cuda_device& device() const noexcept { return device_; }
  [[nodiscard]] const ps::cuda_stream& stream() const noexcept { return steps_; }
  [[nodiscard]] cudaStream_t steps() const noexcept { return steps_.get(); }
  [[nodiscard]] cudaStream_t copies() const noexcept { return copies_.get(); }
  [[nodiscard]] std::size_t depth() const noexcept { return depth_; }
  [[nodiscard]] const std::byte* host() const noexcept { return host_.data(); }
  [[nodiscard]] const word* host_slot(std::uint64_t batch) const noexcept {
    return reinterpret_cast<const word*>(host_.data() + batch % host_slots * batch_bytes);
  }
  [[nodiscard]] word* device_slot(std::uint64_t batch) const noexcept {
    return reinterpret_cast<word*>(there_.data() + batch % depth_ * batch_bytes);
  }
  [[nodiscard]] word* sum() const noexcept { return reinterpret_cast<word*>(words_.data()); }
  /// Returns the address of a word that streams write and wait for.
  [[nodiscard]] unsigned long long flag() const noexcept {
    return reinterpret_cast<std::uintptr_t>(words_.data() + sizeof(word));
  }
  /// Returns the event that marks the end of the copy of a batch.
  [[nodiscard]] const ps::cuda_event& copied(std::uint64_t batch) const noexcept {
    return copied_[batch % copied_.size()];
  }

  /// Queues the copy of a batch, ordered after the step on the previous batch in the same device
  /// slot.
  void copy(std::uint64_t batch) const {
    must(cudaStreamWaitEvent(copies(), released_[batch % depth_].get(), 0));
    must(cudaMemcpyAsync(device_slot(batch), host_slot(batch), batch_bytes, cudaMemcpyHostToDevice,
                         copies()));
    must(cudaEventRecord(copied(batch).get(), copies()));
  }
  /// Records the end of the step on a batch.
  void release(std::uint64_t batch) const {
    must(cudaEventRecord(released_[batch % depth_].get(), steps()));
  }

  /// Returns the time of `count` steps in seconds, without copies.
  template <class Step>
  double resident(std::uint64_t count, const Step& step) const {
    synchronize();
    const auto begin = clock_type::now();
    for (std::uint64_t batch = 0; batch < count; ++batch) step(batch);
    synchronize();
    return bench::seconds_since(begin);
  }
  /// Returns the time of `count` batches in seconds. Calls `step` for each batch. Calls `copy` up
  /// to `depth` batches ahead, as soon as the host slot is free. Throws if a step has read a wrong
  /// value.
  template <class Copy, class Step>
  double fed(std::uint64_t count, const Copy& copy, const Step& step) const {
    clear();
    const auto begin = clock_type::now();
    std::uint64_t next = 0;
    const auto is_free = [&] { return next < host_slots || is_done(copied(next - host_slots)); };
    for (std::uint64_t batch = 0; batch < count; ++batch) {
      if (next == batch) {
        while (!is_free()) {
        }
      }
      while (next < count && next < batch + depth_ && is_free()) copy(next++);
      step(batch);
    }
    synchronize();
    const double taken = bench::seconds_since(begin);
    require_sum(count);
    return taken;
  }
  /// Prepares for steps that add to `sum()`.
  void clear() const {
    must(cudaMemsetAsync(words_.data(), 0, words_.bytes(), steps()));
    synchronize();
  }
  /// Throws unless `count` steps have read the values of `count` batches.
  void require_sum(std::uint64_t count) const {
    word expected = 0;
    for (std::uint64_t batch = 0; batch < count; ++batch) expected += batch % host_slots + 1;
    word found = 0;
    must(cudaMemcpyAsync(&found, sum(), sizeof found, cudaMemcpyDeviceToHost, steps()));
    synchronize();
    if (found != expected) throw std::runtime_error("a step has read another batch");
  }
  void synchronize() const {
    must(cudaStreamSynchronize(copies()));
    must(cudaStreamSynchronize(steps()));
  }

 private:
  ps::cuda_device device_;
  std::size_t depth_;
  slab host_;
  slab there_;
  slab words_;
  std::vector<ps::cuda_event> copied_;    // in turns; more than there are host slots
  std::vector<ps::cuda_event> released_;  // by device slot
  ps::cuda_stream copies_ = device_.make_stream();
  ps::cuda_stream steps_ = device_.make_stream();  // destroyed first, so that its work has ended
};

/// A graph for each device slot. `queue(slot)` queues the work to be captured on the stream of the
/// steps.
class slot_graphs {
 public:
  template <class Queue>
  slot_graphs(const rig& on, const Queue& queue) {
    for (std::uint64_t slot = 0; slot < on.depth(); ++slot) {
      auto graph = captured(on.steps(), [&] { queue(slot); });
      execs_.emplace_back(graph);
      graphs_.push_back(std::move(graph));
    }
  }
  void launch(std::uint64_t batch, cudaStream_t stream) const {
    must(cudaGraphLaunch(exec(batch), stream));
  }
  [[nodiscard]] cudaGraphExec_t exec(std::uint64_t batch) const {
    return execs_[batch % execs_.size()].get();
  }
#if !defined(PENSTOCK_BENCH_ON_FAKE)
  /// Returns the only node of the given type in each graph.
  [[nodiscard]] std::vector<cudaGraphNode_t> nodes(cudaGraphNodeType type) const {
    std::vector<cudaGraphNode_t> found;
    for (const auto& graph : graphs_) {
      std::size_t count = 0;
      must(cudaGraphGetNodes(graph.get(), nullptr, &count));
      std::vector<cudaGraphNode_t> all(count);
      must(cudaGraphGetNodes(graph.get(), all.data(), &count));
      for (const auto node : all) {
        cudaGraphNodeType other{};
        must(cudaGraphNodeGetType(node, &other));
        if (other == type) found.push_back(node);
      }
    }
    if (found.size() != graphs_.size()) throw std::runtime_error("a graph has no node of the type");
    return found;
  }
#endif

 private:
  std::vector<ps::detail::cuda_graph> graphs_;  // own the nodes
  std::vector<ps::detail::cuda_graph_exec> execs_;
};

using measured = std::function<double()>;

/// Returns the graphs of the plain step.
std::shared_ptr<slot_graphs> plain_graphs(const rig& on) {
  return std::make_shared<slot_graphs>(
      on, [&](std::uint64_t slot) { queue_step(on.steps(), on.device_slot(slot), on.sum()); });
}

/// Returns the loop in which `wait` orders each step after the copy of its batch.
template <class Wait>
measured graph_behind(const rig& on, std::uint64_t count, Wait wait) {
  return [&on, count, wait, graphs = plain_graphs(on)] {
    return on.fed(
        count, [&](std::uint64_t batch) { on.copy(batch); },
        [&](std::uint64_t batch) {
          wait(batch);
          graphs->launch(batch, on.steps());
          on.release(batch);
        });
  };
}

/// Returns the loop in which the streams are ordered by values in device memory, which they write
/// and wait for.
measured values_waited_for(const rig& on, std::uint64_t count) {
  return [&on, count, graphs = plain_graphs(on), call = stream_values{}] {
    return on.fed(
        count,
        [&](std::uint64_t batch) {
          on.copy(batch);
          call.require(call.write(on.copies(), on.flag(), batch + 1, 0));
        },
        [&](std::uint64_t batch) {
          call.require(call.wait(on.steps(), on.flag(), batch + 1, call.at_least));
          graphs->launch(batch, on.steps());
          on.release(batch);
        });
  };
}

#if defined(PENSTOCK_BENCH_ON_FAKE)
measured wait_node(const rig&, std::uint64_t) {
  throw std::runtime_error("the fake of the runtime cannot change nodes of a graph");
}
measured copy_node(const rig& on, std::uint64_t count) { return wait_node(on, count); }
#else
/// Returns the loop whose graphs begin with a wait for an event. Each launch sets the event to wait
/// for.
measured wait_node(const rig& on, std::uint64_t count) {
  auto graphs = std::make_shared<slot_graphs>(on, [&](std::uint64_t slot) {
    must(cudaStreamWaitEvent(on.steps(), on.copied(slot).get(), cudaEventWaitExternal));
    queue_step(on.steps(), on.device_slot(slot), on.sum());
  });
  return [&on, count, graphs, nodes = graphs->nodes(cudaGraphNodeTypeWaitEvent)] {
    return on.fed(
        count, [&](std::uint64_t batch) { on.copy(batch); },
        [&](std::uint64_t batch) {
          must(cudaGraphExecEventWaitNodeSetEvent(graphs->exec(batch), nodes[batch % nodes.size()],
                                                  on.copied(batch).get()));
          graphs->launch(batch, on.steps());
          on.release(batch);
        });
  };
}

/// Returns the loop whose graphs begin with the copy. Each launch sets the source address.
measured copy_node(const rig& on, std::uint64_t count) {
  auto graphs = std::make_shared<slot_graphs>(on, [&](std::uint64_t slot) {
    must(cudaMemcpyAsync(on.device_slot(slot), on.host_slot(slot), batch_bytes,
                         cudaMemcpyHostToDevice, on.steps()));
    queue_step(on.steps(), on.device_slot(slot), on.sum());
  });
  return [&on, count, graphs, nodes = graphs->nodes(cudaGraphNodeTypeMemcpy)] {
    return on.fed(
        count, [](std::uint64_t) {},
        [&](std::uint64_t batch) {
          must(cudaGraphExecMemcpyNodeSetParams1D(graphs->exec(batch), nodes[batch % nodes.size()],
                                                  on.device_slot(batch), on.host_slot(batch),
                                                  batch_bytes, cudaMemcpyHostToDevice));
          graphs->launch(batch, on.steps());
          must(cudaEventRecord(on.copied(batch).get(), on.steps()));
        });
  };
}
#endif

/// Returns the loop over the library's feed, which polls for the end of a copy for at most `spin`.
measured feed(const rig& on, std::uint64_t count, std::chrono::nanoseconds spin) {
  struct parts {
    bench::ready_source<record, ps::cuda_device> source;
    ps::transfer<bench::ready_source<record, ps::cuda_device>&> feed;
    ps::step_graphs graphs;

    parts(const rig& on, std::uint64_t batches, std::chrono::nanoseconds spin)
        : source(on.device(), {{{batch_words}}, 1}, on.host(), batch_bytes, host_slots, batches),
          feed(source, on.stream(), {.depth = on.depth(), .tuning = {.spin = spin}}),
          graphs(on.device()) {}
  };
  return [&on, count, all = std::make_shared<parts>(on, count, spin)] {
    on.clear();
    const auto begin = clock_type::now();
    for (auto& batch : all->feed.epoch(0)) {
      all->graphs.launch(batch, on.stream(), [&](ps::cuda_stream_ref stream) {
        queue_step(stream.get(), ps::get<"words">(batch).data(), on.sum());
      });
    }
    on.synchronize();
    const double taken = bench::seconds_since(begin);
    on.require_sum(count);
    return taken;
  };
}

void run(const ps::cuda_device& device, std::size_t depth, bench::rows& out, bool quick) {
  const rig on{device, depth};
  const std::uint64_t count = quick ? 20 : 1000;
  const auto wait = [&on](std::uint64_t batch) {
    must(cudaStreamWaitEvent(on.steps(), on.copied(batch).get(), 0));
  };
  // Polls for the end of the copy for at most `limit`, and then lets the stream wait. Counts these
  // waits of all repetitions.
  const auto polled = [&](std::chrono::nanoseconds limit, std::uint64_t& waits) {
    return graph_behind(on, count, [&on, limit, &waits, wait](std::uint64_t batch) {
      const auto end = clock_type::now() + limit;
      do {
        if (is_done(on.copied(batch))) return;
      } while (clock_type::now() < end);
      ++waits;
      wait(batch);
    });
  };
  std::array<std::uint64_t, 3> waits{};
  std::vector<bench::way> ways{
      {"resident",
       [&]() -> measured {
         return [&on, count, graphs = plain_graphs(on)] {
           return on.resident(count,
                              [&](std::uint64_t batch) { graphs->launch(batch, on.steps()); });
         };
       }},
      {"the stream waits", [&] { return graph_behind(on, count, wait); }},
      {"waits unless complete", [&] { return polled({}, waits[0]); }},
      {"waits unless complete in 5 us", [&] { return polled(max_spin, waits[1]); }},
      {"the host waits", [&] { return polled(std::chrono::hours{1}, waits[2]); }},
      {"the graph waits", [&] { return wait_node(on, count); }},
      {"the stream waits for a value", [&] { return values_waited_for(on, count); }},
      {"the graph copies", [&] { return copy_node(on, count); }},
      {"penstock", [&] { return feed(on, count, {}); }},
      {"penstock, spin 5 us", [&] { return feed(on, count, max_spin); }}};
  const std::string at = ", depth " + std::to_string(depth);
  for (bench::way& one : ways) one.name += at;
  const int repetitions = quick ? 1 : 9;
  out.compare("graph wait", static_cast<double>(batch_bytes), repetitions, "us/batch", ways,
              [&](double seconds) { return seconds * 1e6 / static_cast<double>(count); });
  const double all = static_cast<double>(count) * (repetitions + 1);  // including the warm-up
  for (const std::size_t i : {0U, 1U}) {
    out.add("graph wait", std::string{i == 0 ? "unless complete" : "in 5 us"} + ": waits" + at, 0,
            static_cast<double>(waits[i]) / all, "a batch");
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run(argc, argv, "graph_wait_bench", [](bench::rows& out, bool quick) {
    const ps::cuda_device device{0};
    out.group("graph wait", [&] {
      for (const std::size_t depth : {std::size_t{4}, std::size_t{8}})
        run(device, depth, out, quick);
    });
  });
}
