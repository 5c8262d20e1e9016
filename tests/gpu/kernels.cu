// SPDX-License-Identifier: BSL-1.0
#include "gpu/kernels.hpp"

#include <cuda_runtime.h>

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <penstock/cuda/cuda_device.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

#include "../../bench/cuda/spin.cuh"

namespace gpu {

namespace {

/// The flags with which a kernel and the host wait for each other, in host memory that is mapped to
/// the GPU.
struct meeting {
  unsigned int reached;
  unsigned int done;
};

__global__ void meet(volatile meeting* at) {
  at->reached = 1;
  __threadfence_system();
  while (at->done == 0) __nanosleep(500);
  __threadfence_system();
}

__global__ void keep_busy(std::uint64_t nanoseconds) { bench::spin_for(nanoseconds); }

__global__ void compare(const std::uint8_t* images, const std::uint8_t* labels, std::size_t samples,
                        const std::uint64_t* order, findings* found) {
  const unsigned long long first = found->position;
  unsigned long long wrong = 0;
  for (std::size_t i = threadIdx.x; i < samples * 784; i += blockDim.x) {
    if (images[i] != pixel(order[first + i / 784], i % 784)) ++wrong;
  }
  for (std::size_t i = threadIdx.x; i < samples; i += blockDim.x) {
    if (labels[i] != static_cast<std::uint8_t>(order[first + i])) ++wrong;
  }
  if (wrong != 0) atomicAdd(&found->wrong, wrong);
  __syncthreads();
  if (threadIdx.x == 0) found->position = first + samples;
}

__global__ void digest_samples(ragged_batch batch, std::uint64_t* digests) {
  const std::size_t n = blockIdx.x * blockDim.x + threadIdx.x;
  if (n < batch.tokens.size()) digests[n] = batch.digest(n);
}

__global__ void add_one_to(std::uint8_t* data, std::size_t count, std::size_t stride) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) ++data[i * stride];
}

__global__ void write_to(int* address) { *address = 1; }

void require_launched(const char* kernel) {
  const cudaError_t code = cudaGetLastError();
  if (code != cudaSuccess) penstock::detail::throw_cuda_error(code, kernel);
}

/// A thread that runs the host work of one stream in order.
class servant {
 public:
  servant() : thread_([this] { run(); }) {}
  servant(servant&&) = delete;
  ~servant() {
    push(nullptr, {});
    thread_.join();
  }
  void push(meeting* at, std::function<void()> work) {
    {
      const std::lock_guard lock{mutex_};
      work_.emplace_back(at, std::move(work));
    }
    pushed_.advance();
  }

 private:
  void run() {
    for (std::uint32_t taken = 0;; ++taken) {
      pushed_.wait([taken](std::uint32_t count) { return count != taken; });
      std::pair<meeting*, std::function<void()>> next;
      {
        const std::lock_guard lock{mutex_};
        next = std::move(work_.front());
        work_.pop_front();
      }
      if (next.first == nullptr) return;
      const std::atomic_ref reached{next.first->reached};
      while (reached.load(std::memory_order_acquire) == 0) std::this_thread::yield();
      next.second();
      next.second = nullptr;
      std::atomic_ref{next.first->done}.store(1, std::memory_order_release);
    }
  }

  std::mutex mutex_;
  std::deque<std::pair<meeting*, std::function<void()>>> work_;
  penstock::detail::waitable_counter pushed_;
  std::thread thread_;
};

/// The host work of all streams. Everything is allocated in advance, because an allocation would
/// wait for the blocked kernels.
class host_work {
 public:
  host_work() {
    void* data = nullptr;
    penstock::detail::cuda_call("cudaHostAlloc", [&] {
      return cudaHostAlloc(&data, count * sizeof(meeting), cudaHostAllocMapped);
    });
    meetings_ = static_cast<meeting*>(data);
    cudaFuncAttributes attributes{};
    penstock::detail::cuda_call("cudaFuncGetAttributes",
                                [&] { return cudaFuncGetAttributes(&attributes, meet); });
  }

  void launch(cudaStream_t stream, std::function<void()> work) {
    const std::lock_guard lock{mutex_};
    meeting* at = meetings_ + next_++ % count;
    *at = {0, 0};
    servants_[stream].push(at, std::move(work));
    meet<<<1, 1, 0, stream>>>(at);
    require_launched("meet");
  }

 private:
  static constexpr std::size_t count = 16384;

  std::mutex mutex_;
  meeting* meetings_ = nullptr;  // never freed
  std::size_t next_ = 0;
  std::map<cudaStream_t, servant> servants_;
};

}  // namespace

void launch(cudaStream_t stream, std::function<void()> work) {
  static host_work all;
  all.launch(stream, std::move(work));
}

void delay(cudaStream_t stream, std::uint64_t nanoseconds) {
  keep_busy<<<1, 1, 0, stream>>>(nanoseconds);
  require_launched("keep_busy");
}

bool delay_takes_time() { return true; }

void check(cudaStream_t stream, const std::uint8_t* images, const std::uint8_t* labels,
           std::size_t samples, const std::uint64_t* order, findings* found) {
  compare<<<1, 512, 0, stream>>>(images, labels, samples, order, found);
  require_launched("compare");
}

void digest(cudaStream_t stream, const ragged_batch& batch, std::uint64_t* digests) {
  const auto blocks = static_cast<unsigned>((batch.tokens.size() + 63) / 64);
  digest_samples<<<blocks, 64, 0, stream>>>(batch, digests);
  require_launched("digest_samples");
}

void add_one(cudaStream_t stream, std::uint8_t* data, std::size_t count, std::size_t stride) {
  const auto blocks = static_cast<unsigned>((count + 255) / 256);
  add_one_to<<<blocks, 256, 0, stream>>>(data, count, stride);
  require_launched("add_one_to");
}

void fault(cudaStream_t stream) {
  write_to<<<1, 1, 0, stream>>>(reinterpret_cast<int*>(16));
  require_launched("write_to");
}

}  // namespace gpu
