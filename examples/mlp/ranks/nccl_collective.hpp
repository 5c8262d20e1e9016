// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <penstock/cuda/cuda_device.hpp>
#include <penstock/cuda/cuda_stream.hpp>

#include "collective.hpp"

namespace mlp {

/// A call of NCCL has failed, or a rank has not come to a collective in time.
class nccl_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws with NCCL's own words unless a call has succeeded.
inline void require_nccl(ncclResult_t status, const char* call) {
  if (status == ncclSuccess) return;
  throw nccl_error(std::string{call} + ": " + ncclGetErrorString(status));
}

/// Ranks with a GPU each, which sum in its memory. The ranks of `Bootstrap` are the same processes:
/// they pass NCCL's id on, and bytes of the host. The stream and the bootstrap outlive it.
template <collective Bootstrap>
class nccl_collective {
 public:
  using duration = std::chrono::steady_clock::duration;

  /// Every rank at once. A sum that is not there `patience` after it was asked for is an
  /// `nccl_error`, and the communicator is aborted.
  nccl_collective(Bootstrap& bootstrap, const penstock::cuda_device& device,
                  penstock::cuda_stream_ref stream, duration patience = std::chrono::minutes{10})
      : bootstrap_(bootstrap), stream_(stream), patience_(patience) {
    ncclUniqueId mine{};
    if (bootstrap.rank() == 0) require_nccl(ncclGetUniqueId(&mine), "ncclGetUniqueId");
    std::vector<ncclUniqueId> all(static_cast<std::size_t>(bootstrap.size()));
    bootstrap.all_gather(std::as_bytes(std::span{&mine, 1}),
                         std::as_writable_bytes(std::span{all}));
    device.make_current();
    require_nccl(ncclCommInitRank(&ranks_, bootstrap.size(), all.front(), bootstrap.rank()),
                 "ncclCommInitRank");
  }
  nccl_collective(const nccl_collective&) = delete;
  nccl_collective& operator=(const nccl_collective&) = delete;
  ~nccl_collective() {
    if (ranks_ != nullptr) ncclCommDestroy(ranks_);
  }

  [[nodiscard]] int rank() const { return bootstrap_.rank(); }
  [[nodiscard]] int size() const { return bootstrap_.size(); }

  void all_reduce(std::span<float> values) {
    if (ranks_ == nullptr) throw nccl_error("all_reduce: the communicator was aborted");
    require_nccl(ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat, ncclSum,
                               ranks_, stream_.get()),
                 "ncclAllReduce");
    wait();
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
    bootstrap_.all_gather(mine, all);
  }
  void barrier() { bootstrap_.barrier(); }

 private:
  /// Not cudaStreamSynchronize, which waits forever for a rank that is gone.
  void wait() {
    const auto end = std::chrono::steady_clock::now() + patience_;
    while (true) {
      const cudaError_t reached = cudaStreamQuery(stream_.get());
      if (reached == cudaSuccess) return;
      if (reached != cudaErrorNotReady) {
        abort(std::string{"cudaStreamQuery: "} + cudaGetErrorString(reached));
      }
      ncclResult_t state = ncclSuccess;
      require_nccl(ncclCommGetAsyncError(ranks_, &state), "ncclCommGetAsyncError");
      if (state != ncclSuccess) abort(ncclGetErrorString(state));
      if (std::chrono::steady_clock::now() >= end) {
        abort("a rank has not come to it in time; see which processes have ended");
      }
      std::this_thread::yield();
    }
  }
  [[noreturn]] void abort(const std::string& why) {
    // The kernel that waits for the others ends by it; without it the stream never does.
    ncclCommAbort(ranks_);
    ranks_ = nullptr;
    throw nccl_error("all_reduce on rank " + std::to_string(rank()) + " of " +
                     std::to_string(size()) + ": " + why);
  }

  Bootstrap& bootstrap_;
  penstock::cuda_stream_ref stream_;
  duration patience_;
  ncclComm_t ranks_ = nullptr;
};

static_assert(collective<nccl_collective<no_collective>>);

}  // namespace mlp
