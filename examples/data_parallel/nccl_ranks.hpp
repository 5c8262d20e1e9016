// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/cuda/cuda_device.hpp>
#include <penstock/cuda/cuda_event.hpp>
#include <penstock/cuda/cuda_stream.hpp>

#include "collective.hpp"

namespace mlp {

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 0),
              "calls that do not block came with NCCL 2.14");

/// A call of NCCL has failed, or a rank has not come to one in time.
class nccl_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Ranks with a GPU each, which sum in its memory. The ranks of `Bootstrap` are the same processes:
/// they pass NCCL's id on, and bytes of the host. The stream and the bootstrap outlive it.
///
/// No call of NCCL blocks (`ncclConfig_t::blocking` is 0): each is asked by turns whether it is
/// done, and for an error, for `patience` at most. Whatever fails, fails here, or does not come in
/// time is an `nccl_error` and aborts the communicator, which ends the kernels that wait for other
/// ranks. For one thread.
template <collective Bootstrap>
class nccl_collective {
 public:
  using duration = std::chrono::steady_clock::duration;
  using stream_ref = penstock::cuda_stream_ref;
  using event_type = penstock::cuda_event;

  /// Every rank at once; returns when all are connected. `patience` is that of each call and each
  /// sum.
  nccl_collective(Bootstrap& bootstrap, const penstock::cuda_device& device, stream_ref stream,
                  duration patience = std::chrono::minutes{10})
      : bootstrap_(bootstrap), stream_(stream), patience_(patience) {
    ncclUniqueId mine{};
    if (bootstrap.rank() == 0) {
      if (const auto status = ncclGetUniqueId(&mine); status != ncclSuccess) {
        fail("ncclGetUniqueId", ncclGetErrorString(status));
      }
    }
    std::vector<ncclUniqueId> all(static_cast<std::size_t>(bootstrap.size()));
    bootstrap.all_gather(std::as_bytes(std::span{&mine, 1}),
                         std::as_writable_bytes(std::span{all}));
    device.make_current();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    settle("ncclCommInitRankConfig", ncclCommInitRankConfig(&ranks_, bootstrap.size(), all.front(),
                                                            bootstrap.rank(), &config));
  }
  nccl_collective(const nccl_collective&) = delete;
  nccl_collective& operator=(const nccl_collective&) = delete;
  /// Lets all sums end. Aborts where that takes longer than `patience`, and where an exception has
  /// come: the other ranks may be waiting for another call then.
  ~nccl_collective() {
    if (ranks_ == nullptr) return;
    try {
      if (std::uncaught_exceptions() > exceptions_) fail("an exception", "leaves its scope");
      settle("ncclCommFinalize", ncclCommFinalize(ranks_));
      ncclCommDestroy(ranks_);
    } catch (const nccl_error&) {
      // Aborted; the process goes on without these ranks.
    }
  }

  [[nodiscard]] int rank() const { return bootstrap_.rank(); }
  [[nodiscard]] int size() const { return bootstrap_.size(); }

  /// Returns when the sum is there.
  void all_reduce(std::span<float> values) {
    enqueue_sum(values, stream_);
    wait(stream_);
  }
  /// Puts the sum of each value over the ranks, in place, on a stream. Returns when it is enqueued,
  /// so that an event recorded then comes after it.
  void enqueue_sum(std::span<float> values, stream_ref stream) {
    require_alive("ncclAllReduce");
    settle("ncclAllReduce", ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat,
                                          ncclSum, ranks_, stream.get()));
  }
  /// Returns when the stream is past all that it has been given: sums, and what waits for them. Not
  /// cudaStreamSynchronize, which waits forever for a rank that is gone.
  void wait(stream_ref stream) {
    wait_until("cudaStreamQuery", [&] { return cudaStreamQuery(stream.get()); });
  }
  /// As above, for what the event was recorded behind.
  void wait(const event_type& event) {
    wait_until("cudaEventQuery", [&] { return cudaEventQuery(event.get()); });
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
    bootstrap_.all_gather(mine, all);
  }
  void barrier() { bootstrap_.barrier(); }

 private:
  using clock = std::chrono::steady_clock;

  template <class Query>
  void wait_until(const char* call, const Query& query) {
    require_alive("a sum");
    const auto end = clock::now() + patience_;
    while (true) {
      const cudaError_t reached = query();
      if (reached == cudaSuccess) return;
      if (reached != cudaErrorNotReady) {
        fail("a sum", std::string{call} + ": " + cudaGetErrorString(reached));
      }
      static_cast<void>(cudaGetLastError());  // not ready is no error, but is kept as one
      static_cast<void>(is_settled("a sum"));
      pause("a sum", end);
    }
  }

  /// Returns when a call that gave `status` has done its work.
  void settle(const char* call, ncclResult_t status) {
    if (status != ncclSuccess && status != ncclInProgress) fail(call, ncclGetErrorString(status));
    const auto end = clock::now() + patience_;
    while (!is_settled(call)) pause(call, end);
  }
  /// Whether the last call is done; throws what NCCL has found meanwhile.
  [[nodiscard]] bool is_settled(const char* call) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(ranks_, &state);
    if (asked != ncclSuccess) {
      fail(call, std::string{"ncclCommGetAsyncError: "} + ncclGetErrorString(asked));
    }
    if (state != ncclSuccess && state != ncclInProgress) fail(call, ncclGetErrorString(state));
    return state == ncclSuccess;
  }
  void pause(const char* call, clock::time_point end) {
    if (clock::now() >= end) {
      fail(call, "a rank has not come to it in time; see which processes have ended");
    }
    std::this_thread::yield();
  }
  void require_alive(const char* call) const {
    if (ranks_ == nullptr) {
      throw nccl_error(std::string{call} + ": the communicator was aborted");
    }
  }
  [[noreturn]] void fail(const char* call, const std::string& why) {
    // The kernel that waits for the others ends by it; without it the stream never does.
    if (ranks_ != nullptr) ncclCommAbort(std::exchange(ranks_, nullptr));
    throw nccl_error(std::string{call} + " on rank " + std::to_string(rank()) + " of " +
                     std::to_string(size()) + ": " + why);
  }

  Bootstrap& bootstrap_;
  stream_ref stream_;
  duration patience_;
  int exceptions_ = std::uncaught_exceptions();
  ncclComm_t ranks_ = nullptr;
};

static_assert(streamed_collective<nccl_collective<no_collective>>);

}  // namespace mlp
