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

/// The state behind the calls. One mutex guards all of it; it is free while work of `launch` runs.
namespace fake_cuda::detail {

using stream_ptr = std::shared_ptr<CUstream_st>;
using lock_type = std::unique_lock<std::mutex>;

/// A place in a stream: done when that many of its operations are.
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
  std::shared_ptr<std::vector<unsigned char>> staged;  // the source, of a copy from pageable memory
  mark target;                                         // of a wait
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
  std::set<CUstream_st*> unjoined;  // forked streams with work that the origin does not wait for
  std::set<CUstream_st*> members;
  std::vector<operation> operations;
  bool invalidated = false;
};

/// A line of the trace, put into words only when asked for.
struct trace_entry {
  unsigned number = 0;  // of the thread, or the stream
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
  bool is_mapped = true;    // kernels reach it; registered memory only where that was asked for
  bool is_portable = true;  // pinned for every device, and not only for its own
};

}  // namespace fake_cuda::detail

// The runtime's opaque handles point to these. They live until `reset`, also when destroyed, so
// that a use after that is seen.
struct CUstream_st {
  unsigned number = 0;
  int device = 0;
  unsigned int flags = 0;
  int priority = 0;
  bool destroyed = false;
  bool is_default = false;                         // must not be destroyed
  std::deque<fake_cuda::detail::operation> queue;  // not run yet; the first one may be running
  std::uint64_t pushed = 0;
  std::uint64_t completed = 0;
  bool busy = false;        // a thread runs the first operation
  unsigned pace = 0;        // random policy: 0 does nothing unasked, 1 sometimes, 2 when it can
  std::size_t permits = 0;  // works that the service thread may begin
  std::shared_ptr<fake_cuda::detail::capture> captured_by;
  std::uint64_t not_ready = 0;
  std::thread service;
};

/// The primary context of a device. It exists while the runtime holds it, which never lets go, or
/// while it is retained.
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

/// What the runtime keeps for each thread.
struct thread_state {
  std::uint64_t generation = 0;
  unsigned number = 0;
  cudaError_t last_error = cudaSuccess;
  int chosen = 0;                   // by cudaSetDevice
  std::vector<CUctx_st*> contexts;  // the last one is current
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
  bool in_work = false;
  std::map<std::string, std::uint64_t> calls;
  std::map<int, stream_ptr> default_streams;  // by device

  [[nodiscard]] int device() const { return contexts.empty() ? chosen : contexts.back()->device; }
};

/// A failure to come.
struct planned_failure {
  std::string function;  // empty: of any
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
  /// What a stream is given next comes after what the legacy default stream has, and what that one
  /// is given after what every blocking stream has.
  void order_with_legacy(const stream_ptr& stream);
  /// Appends an operation, or notes it where the stream is captured; then the policy may act.
  void push(const stream_ptr& stream, operation next);
  /// Runs what has to be for the stream to get to `position`.
  void run_until(lock_type& lock, const stream_ptr& stream, std::uint64_t position);
  /// Runs all that a device has to do; that of all devices where it says none.
  void run_all(lock_type& lock, std::optional<int> device = {});
  /// For a query, which must not wait: asked often enough, it gets there.
  void run_towards(const stream_ptr& stream, std::uint64_t position);
  /// What the policy does unasked.
  void act();
  /// Ends a device: what it still had to do is dropped, every call fails from now on.
  void lose(int device, cudaError_t code);

  // ---- api_device.cpp
  CUctx_st& primary(int device);
  /// The runtime makes the primary context of a device, where it has not done so yet.
  CUctx_st& initialize(int device);
  /// What `cuCtxSetCurrent` does.
  static void set_current(thread_state& thread, CUctx_st& context);
  /// Whether there is something on a device that goes with its context.
  [[nodiscard]] bool is_in_use(int device) const;

  // ---- ledger.cpp
  void find(const std::string& kind, const std::string& text);
  memory_block* block_of(const void* address);
  /// The first block that has a byte of [address, address + bytes).
  const memory_block* block_in(const void* address, std::size_t bytes) const;
  /// Notes a use of memory that was freed; whether there is none.
  bool check_alive(const void* address, std::string_view who);
  /// Notes what an operation on `device` must not use.
  void check_operation(const operation& next, int device);
  /// Notes what still uses a block that is about to go.
  void check_unused(const memory_block& block, const std::string& call);
  /// Notes memory around a block that was written to.
  void check_guards(const memory_block& block, const std::string& who);
  cudaError_t take(memory_block::kind what, std::size_t bytes, int device, bool is_portable,
                   void** data);
  cudaError_t give(memory_block::kind what, void* data, const char* call, lock_type& lock);
  /// When the call was told to fail: an attempt, after which the memory counts as gone.
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
  std::mt19937_64 random_pageable;  // of its own: a pageable copy does not change the order of work

  std::vector<stream_ptr> streams;
  std::map<int, stream_ptr> default_streams;
  std::vector<std::unique_ptr<CUevent_st>> events;
  std::vector<std::unique_ptr<CUgraph_st>> graphs;
  std::vector<std::unique_ptr<CUgraphExec_st>> execs;
  std::set<std::shared_ptr<capture>> captures;
  std::map<int, cudaError_t> lost;
  std::map<int, CUctx_st> contexts;  // by device

  std::map<unsigned char*, memory_block> blocks;  // by address
  std::map<const void*, memory_block> freed;      // by address
  // Of pinned memory; kept until the end: poisoned, not unmapped.
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

/// The world there is; made at the first use.
world& the_world();
thread_state& this_thread(world& now);

}  // namespace fake_cuda::detail
