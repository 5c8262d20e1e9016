// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/cuda/cuda_device.hpp>
#include <penstock/cuda/cuda_stream.hpp>

namespace data_parallel {

/// Ranks with one GPU each, which perform the all-reduce in GPU memory. The ranks of `Host` are the
/// same processes. `Host` distributes NCCL's ID and gathers bytes in host memory. The device and
/// the host must outlive the object. Only one thread may use the object.
///
/// All-reduces run on their own stream, so that the all-reduce of a layer overlaps the backward
/// pass of the next layer:
///
///     compute:    | layer 2 | layer 1 |       | update
///     all-reduce: |         | sum 2   | sum 1 |
///
/// If a rank dies, the launcher ends the other ranks too.
template <class Host>
class nccl_ranks {
 public:
  /// Connects all ranks. All ranks must construct the object at the same time, and the constructor
  /// returns when all ranks are connected.
  nccl_ranks(Host& host, const penstock::cuda_device& device)
      : host_(host),
        device_(device),
        stream_(device.make_stream()),
        made_(device.make_event(penstock::event_wait::by_streams)),
        summed_(device.make_event(penstock::event_wait::by_streams)) {
    ncclUniqueId mine{};
    if (host.rank() == 0) require(ncclGetUniqueId(&mine), "ncclGetUniqueId");
    std::vector<ncclUniqueId> all(static_cast<std::size_t>(host.size()));
    host.gather(std::as_bytes(std::span{&mine, 1}), std::as_writable_bytes(std::span{all}));
    device.make_current();
    require(ncclCommInitRank(&ranks_, host.size(), all.front(), host.rank()), "ncclCommInitRank");
  }
  nccl_ranks(const nccl_ranks&) = delete;
  nccl_ranks& operator=(const nccl_ranks&) = delete;
  /// Does not wait during stack unwinding, because the other ranks may be waiting in a different
  /// call.
  ~nccl_ranks() {
    if (std::uncaught_exceptions() > exceptions_) {
      ncclCommAbort(ranks_);
    } else {
      ncclCommDestroy(ranks_);
    }
  }

  [[nodiscard]] int rank() const { return host_.rank(); }
  [[nodiscard]] int size() const { return host_.size(); }

  /// On all ranks, copies `mine` of each rank i to `all`, starting at index i * mine.size(), in
  /// host memory.
  void gather(std::span<const std::byte> mine, std::span<std::byte> all) {
    host_.gather(mine, all);
  }
  /// Replaces each value with its sum over all ranks, after the work queued on the stream. The
  /// stream does not wait for the sum.
  void sum(std::span<float> values, penstock::cuda_stream_ref stream) {
    // A stream waits for the record of the event that was the latest at the time of the call, so
    // one event suffices for all sums.
    device_.record(made_, stream);
    device_.wait(stream_, made_);
    require(ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat, ncclSum, ranks_,
                          penstock::cuda_stream_ref{stream_}.get()),
            "ncclAllReduce");
  }
  /// Orders later work on the stream after all sums.
  void join(penstock::cuda_stream_ref stream) {
    device_.record(summed_, stream_);
    device_.wait(stream, summed_);
    ncclResult_t state = ncclSuccess;
    require(ncclCommGetAsyncError(ranks_, &state), "ncclCommGetAsyncError");
    require(state, "an earlier sum");
  }

 private:
  void require(ncclResult_t status, const char* call) const {
    if (status == ncclSuccess) return;
    throw std::runtime_error(std::string{call} + " on rank " + std::to_string(rank()) + " of " +
                             std::to_string(size()) + ": " + ncclGetErrorString(status));
  }

  Host& host_;
  const penstock::cuda_device& device_;
  penstock::cuda_stream stream_;
  penstock::cuda_event made_;
  penstock::cuda_event summed_;
  int exceptions_ = std::uncaught_exceptions();
  ncclComm_t ranks_ = nullptr;
};

}  // namespace data_parallel
