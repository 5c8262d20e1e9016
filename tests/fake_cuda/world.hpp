// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "fake_cuda.hpp"

struct CUstream_st;

/// The state of the fake CUDA runtime. A single mutex protects the state and is released while work
/// of `launch` runs.
namespace fake_cuda::detail {

using stream_ptr = std::shared_ptr<CUstream_st>;
using lock_type = std::unique_lock<std::mutex>;

/// A position in a stream, reached when this number of its operations has completed.
struct mark {
  stream_ptr stream;
  std::uint64_t position = 0;
};

struct operation {
  enum class kind { copy, fill, wait, work };
  kind what = kind::work;
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
  int value = 0;
  std::shared_ptr<std::vector<unsigned char>> staged;  // source data of a copy from pageable memory
  mark target;                                         // the target of a wait
  std::shared_ptr<std::function<void()>> work;
  bool is_host_function = false;
  bool is_kernel = false;
  cudaError_t fault = cudaSuccess;
  std::vector<const void*> touches;
  bool begun = false;
};

struct capture {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  CUstream_st* origin = nullptr;
  // Forked streams with work that the capture's origin does not wait for.
  std::set<CUstream_st*> unjoined;
  std::set<CUstream_st*> members;
  std::vector<operation> operations;
  bool invalidated = false;
};

/// An entry of the trace, formatted on request.
struct trace_entry {
  unsigned number = 0;  // index of the thread or the stream
  bool is_call = true;
  std::string_view what;
  std::size_t bytes = 0;
  cudaError_t code = cudaSuccess;
};

struct memory_block {
  enum class kind { device, pinned, registered };
  kind what = kind::device;
  unsigned char* base = nullptr;
  std::size_t bytes = 0;
  int device = 0;
  bool is_mapped = true;    // accessible to kernels; for registered memory only if requested
  bool is_portable = true;  // pinned for all devices instead of one
};

}  // namespace fake_cuda::detail

// The objects behind the runtime's opaque handles. Destroyed objects live until `reset`, so that
// later uses can be detected.
struct CUstream_st {
  unsigned number = 0;
  int device = 0;
  unsigned int flags = 0;
  int priority = 0;
  bool destroyed = false;
  bool is_default = false;                         // a default stream must not be destroyed
  std::deque<fake_cuda::detail::operation> queue;  // pending operations; the first may be running
  std::uint64_t pushed = 0;
  std::uint64_t completed = 0;
  bool busy = false;  // true while a thread runs the first operation
  // For the random policy: 0 never runs work unless needed, 1 sometimes, 2 whenever possible.
  unsigned pace = 0;
  std::size_t permits = 0;  // number of work items that the service thread may start
  std::shared_ptr<fake_cuda::detail::capture> captured_by;
  std::uint64_t not_ready = 0;
  std::thread service;
};

/// The primary context of a device. The context exists while the program retains it or the runtime
/// uses it; the runtime never releases it.
struct CUctx_st {
  int device = 0;
  bool is_held_by_runtime = false;
  unsigned retained = 0;

  [[nodiscard]] bool exists() const { return is_held_by_runtime || retained > 0; }
};

struct CUevent_st {
  int device = 0;
  unsigned int flags = 0;
  std::uint64_t records = 0;
  std::uint64_t stream_waits = 0;
  std::uint64_t host_waits = 0;
  bool destroyed = false;
  fake_cuda::detail::mark record;
  std::shared_ptr<fake_cuda::detail::capture> captured_by;
  CUstream_st* captured_on = nullptr;
  std::uint64_t not_ready = 0;
};

struct CUgraph_st {
  bool destroyed = false;
  std::vector<fake_cuda::detail::operation> operations;
};

struct CUgraphExec_st {
  bool destroyed = false;
  std::vector<fake_cuda::detail::operation> operations;
};

namespace fake_cuda::detail {

/// The runtime's state for one thread.
struct thread_state {
  std::uint64_t generation = 0;
  unsigned number = 0;
  cudaError_t last_error = cudaSuccess;
  int chosen = 0;                   // selected by cudaSetDevice
  std::vector<CUctx_st*> contexts;  // the last context is the current context
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
  bool in_work = false;
  std::map<std::string, std::uint64_t> calls;
  std::map<int, stream_ptr> default_streams;  // the default stream of each device

  [[nodiscard]] int device() const { return contexts.empty() ? chosen : contexts.back()->device; }
};

/// A planned failure.
struct planned_failure {
  std::string function;  // an empty string means any function
  std::uint64_t left = 0;
  cudaError_t code = cudaErrorUnknown;
  bool from_then_on = false;
};

class world {
 public:
  explicit world(const config& how);
  ~world();

  // ---- streams.cpp
  stream_ptr make_stream(int device, unsigned int flags);
  /// Adds the implicit waits of the legacy default stream. The next work of `stream` waits for the
  /// work on the legacy default stream; if `stream` is the legacy default stream, its work waits
  /// for every blocking stream.
  void order_with_legacy(const stream_ptr& stream);
  /// Appends an operation, or records it if the stream is being captured. Then lets the policy act.
  void push(const stream_ptr& stream, operation next);
  /// Runs everything that is required for the stream to reach `position`.
  void run_until(lock_type& lock, const stream_ptr& stream, std::uint64_t position);
  /// Runs all pending work of a device, or of all devices by default.
  void run_all(lock_type& lock, std::optional<int> device = {});
  /// Makes progress without waiting, for a query. Repeated calls eventually reach `position`.
  void run_towards(const stream_ptr& stream, std::uint64_t position);
  /// Runs the work that the policy starts on its own.
  void act();
  /// Simulates the loss of a device: drops its pending work and makes all later calls fail.
  void lose(int device, cudaError_t code);

  // ---- api_device.cpp
  CUctx_st& primary(int device);
  /// Creates the primary context of a device for the runtime, unless it already exists.
  CUctx_st& initialize(int device);
  /// Implements `cuCtxSetCurrent`.
  static void set_current(thread_state& thread, CUctx_st& context);
  /// Returns true if a device has objects that its context would destroy.
  [[nodiscard]] bool is_in_use(int device) const;

  // ---- ledger.cpp
  void find(const std::string& kind, const std::string& text);
  memory_block* block_of(const void* address);
  /// Returns the first block that overlaps [address, address + bytes).
  const memory_block* block_in(const void* address, std::size_t bytes) const;
  /// Reports the use of freed memory. Returns true if the memory was not freed.
  bool check_alive(const void* address, std::string_view who);
  /// Reports objects that an operation on `device` must not use.
  void check_operation(const operation& next, int device);
  /// Reports operations that still use a block that is about to be freed.
  void check_unused(const memory_block& block, const std::string& call);
  /// Reports writes to the guard bytes around a block.
  void check_guards(const memory_block& block, const std::string& who);
  cudaError_t take(memory_block::kind what, std::size_t bytes, int device, bool is_portable,
                   void** data);
  cudaError_t give(memory_block::kind what, void* data, const char* call, lock_type& lock);
  /// Records memory as freed although the free has failed on request, because the attempt counts.
  void forget(memory_block::kind what, void* data, const char* call);

  // ---- control.cpp
  void note(trace_entry entry);

  config how;
  std::uint64_t generation = 0;
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  bool unloaded = false;
  std::mt19937_64 random;
  // Separate generator, so that pageable copies do not affect the order of work.
  std::mt19937_64 random_pageable;

  std::vector<stream_ptr> streams;
  std::map<int, stream_ptr> default_streams;
  std::vector<std::unique_ptr<CUevent_st>> events;
  std::vector<std::unique_ptr<CUgraph_st>> graphs;
  std::vector<std::unique_ptr<CUgraphExec_st>> execs;
  std::set<std::shared_ptr<capture>> captures;
  std::map<int, cudaError_t> lost;
  std::map<int, CUctx_st> contexts;  // the context of each device

  std::map<unsigned char*, memory_block> blocks;  // memory blocks by address
  std::map<const void*, memory_block> freed;      // freed blocks by address
  // Pinned memory is poisoned instead of unmapped, and kept until the end.
  std::vector<std::unique_ptr<unsigned char[]>> storage;
  std::map<memory_block::kind, std::size_t> taken;

  std::vector<finding> findings;
  std::vector<planned_failure> failures;
  std::map<std::string, std::uint64_t> calls;
  std::uint64_t all_calls = 0;
  copy_statistics statistics;
  kernel_statistics kernels;
  std::deque<trace_entry> trace;
  std::atomic<unsigned> threads{0};

 private:
  bool is_ready(const operation& next) const;
  void begin(operation& next);
  bool is_freeable(memory_block::kind what, void* data, const char* call);
  void take_back(unsigned char* base);
  void run_now(const stream_ptr& stream);
  void run_work(lock_type& lock, const stream_ptr& stream);
  void complete(CUstream_st& stream);
  void skip_waits();
  void start_service(const stream_ptr& stream);
  void permit(const stream_ptr& stream);
  void serve(const stream_ptr& stream);
  bool may_serve(const CUstream_st& stream) const;
};

/// Returns the current world, which is created on first use.
world& the_world();
thread_state& this_thread(world& now);

}  // namespace fake_cuda::detail
