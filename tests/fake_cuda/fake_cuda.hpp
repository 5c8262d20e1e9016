// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

// The fake CUDA runtime always has these functions.
#if CUDART_VERSION < 12080
extern "C" cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device);
#endif
#if CUDART_VERSION < 12050
extern "C" cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** function, unsigned int version, unsigned long long flags,
    cudaDriverEntryPointQueryResult* status = nullptr);
#endif

/// A fake CUDA runtime for tests on machines without a GPU. Programs link `penstock_fake_cuda`
/// instead of the runtime library. The fake runtime is hostile. Work runs as late, as early or in
/// as odd an order as streams and events allow. Memory is poisoned whenever it must not be read. A
/// ledger tracks every handle, and any call can be made to fail.
///
/// Modeled: streams, events, waits, asynchronous copies and memsets, host functions, allocation and
/// registration, bounds, the last-error slot, kernel faults, stream capture and graphs, several
/// devices and their contexts, the driver's functions that make a context current, a missing
/// driver, unloading at exit. Kernels run if they are compiled as C++ (README.md); `launch` queues
/// any other host code in place of a kernel.
///
/// Not modeled: warps, atomics, clusters and dynamic shared memory, blocks of a kernel that run at
/// the same time, the effect of a stream's priority, managed memory, peer access, timing. A graph
/// runs its work in the order of capture, because a capture records operations in call order
/// instead of their true dependencies.
namespace fake_cuda {

/// The time at which the device does its work.
enum class policy {
  /// As late as possible: only work that a wait needs runs, and only during that wait.
  late,
  /// Immediately, as soon as the dependencies of the work are complete.
  early,
  /// Some work runs at some calls, chosen by the seed, and the rest during a wait.
  random,
};

/// The order in which the blocks of a kernel run, and in which the threads of a block run between
/// barriers.
enum class order { forwards, backwards, seeded };

/// The time at which a copy from pageable memory to the device reads its source. The real runtime
/// may do any of these. A copy into pageable memory always waits. A copy in a graph reads its
/// source when the graph runs.
enum class pageable {
  /// During the call, which returns immediately.
  staged,
  /// When the copy runs, as on a device that can access all host memory.
  late,
  /// During the call, which first waits for all work on the stream.
  blocking,
  /// Any of the above, chosen by the seed.
  seeded,
};

struct config {
  fake_cuda::policy policy = fake_cuda::policy::late;
  std::uint64_t seed = 0;
  int devices = 1;
  bool no_driver = false;
  int driver_version = CUDART_VERSION;  ///< below 12080, cudaStreamGetDevice does not exist
  std::size_t device_memory = std::size_t{4} << 30;  ///< device memory in bytes, per device
  std::size_t pinned_memory = std::size_t{4} << 30;  ///< maximum number of page-locked bytes
  int host_numa_id = -1;
  /// The same for every device; no machine has such a bus.
  std::string pci_bus_id = "FFFF:0B:00.0";
  fake_cuda::pageable pageable_copies = pageable::seeded;
  /// Makes `cudaMalloc` report an invalid size for 2^48 bytes or more, as a driver may do because
  /// it rounds the size up.
  bool absurd_sizes_are_invalid = false;
  bool read_only_registration = true;
  bool registered_at_host_address = true;  ///< if false, kernels use another address
  bool maps_host_memory = true;            ///< the attributes with these names
  bool host_page_tables = false;           ///< true on GH200, GB200 and GB10
  bool integrated = false;                 ///< true on GB10 and Jetson
  fake_cuda::order kernels = order::forwards;
};

/// Discards all state, including the calling thread's state, and starts again. No other thread may
/// be inside a call. In programs that never call this function, the environment variable
/// FAKE_CUDA_DEVICES sets the number of devices.
void reset(const config& how = {});

/// Queues `work` on a stream in place of a kernel. The work runs once, on the host, in stream
/// order. The work may block and must not throw. `touches` lists addresses in the memory that the
/// work uses. Freeing this memory before the work ends is a finding, and so is using memory of
/// another device. As for a kernel, the stream must belong to the thread's current device.
void launch(cudaStream_t stream, std::function<void()> work, std::vector<const void*> touches = {});

/// Queues a kernel that faults. When it runs, the device loses its context.
void kernel_fault(cudaStream_t stream, cudaError_t code);

/// Makes every later call return `cudaErrorCudartUnloading`, as at the end of a process.
void unload();

// ---- failures -----------------------------------------------------------------------------------

/// Makes the k-th call from now, counted from 0, fail with `code` and have no effect. Calls that
/// cannot fail, such as `cudaGetLastError`, are not counted.
void fail_call(std::uint64_t k, cudaError_t code);
/// Makes the k-th call of a function fail.
void fail_call_of(const std::string& function, std::uint64_t k, cudaError_t code);
/// Makes all calls fail, starting at the k-th, and drops the device's pending work, as after a lost
/// context.
void fail_from(std::uint64_t k, cudaError_t code);

// ---- results ------------------------------------------------------------------------------------

/// A forbidden action of the program.
struct finding {
  /// "double free", "free of unknown memory", "use after free", "use after destroy", "freed under
  /// work", "unknown handle", "out of bounds", "wrong device", "call inside of work", "work threw",
  /// "barrier", "shared memory", "not mapped" or "context destroyed".
  std::string kind;
  std::string text;
};
[[nodiscard]] std::vector<finding> findings();

/// The number of live objects of each kind.
struct live_objects {
  std::size_t streams = 0;
  std::size_t events = 0;
  std::size_t device_blocks = 0;
  std::size_t pinned_blocks = 0;
  std::size_t registrations = 0;
  std::size_t graphs = 0;
  std::size_t graph_execs = 0;
  std::size_t retained_contexts = 0;  ///< retained by the program; each retain counts
};
[[nodiscard]] live_objects live();

/// Returns true if all objects were destroyed and nothing was found. Otherwise writes them to
/// stderr.
[[nodiscard]] bool expect_clean();

/// Returns the number of contexts of a device, which is 0 or 1. On a GPU, a context takes memory
/// that the process may not want to use. `cudaSetDevice` creates a context, and so does any call
/// that needs a context on a thread without one.
[[nodiscard]] std::size_t contexts(int device);

/// Return the number of calls since `reset`: of all threads, of a function, or of the calling
/// thread by function. Driver functions are included. Only the last overload includes
/// `cudaPeekAtLastError`, which cannot fail.
[[nodiscard]] std::uint64_t calls();
[[nodiscard]] std::uint64_t calls_of(const std::string& function);
[[nodiscard]] std::map<std::string, std::uint64_t> thread_calls();

struct copy_statistics {
  std::uint64_t copies = 0;
  std::uint64_t copied_bytes = 0;
  /// copies from or to pageable memory, for which the real runtime may block the caller
  std::uint64_t synchronous_copies = 0;
};
[[nodiscard]] copy_statistics statistics();

/// Returns the last 256 calls, failures and executed operations, one per line, to diagnose a
/// failure. Threads are numbered in order of their first call, and streams in order of creation.
[[nodiscard]] std::string trace();

/// Returns the flags with which an event was created.
[[nodiscard]] unsigned int event_flags(cudaEvent_t event);

/// Returns the priorities of all streams created since `reset`, in order of creation and including
/// destroyed streams. The values range from 0, the lowest priority, down to -5, the highest.
/// Default streams are not included.
[[nodiscard]] std::vector<int> stream_priorities();

/// The number of successful uses of an event.
struct event_use {
  unsigned int flags = 0;  ///< flags at creation
  std::uint64_t records = 0;
  std::uint64_t stream_waits = 0;
  std::uint64_t host_waits = 0;  ///< calls of cudaEventSynchronize
};
/// Returns the uses of every event created since `reset`, in order of creation and including
/// destroyed events.
[[nodiscard]] std::vector<event_use> events();

/// The number of kernels and blocks that have run, and of barriers that blocks have passed.
struct kernel_statistics {
  std::uint64_t kernels = 0;
  std::uint64_t blocks = 0;
  std::uint64_t barriers = 0;
};
[[nodiscard]] kernel_statistics kernels_run();

namespace detail {
[[nodiscard]] void* inspected(const void* address);
}  // namespace detail

/// Returns another address of the same bytes of device memory. A test may access this address at
/// any time. The program's own addresses are valid only for operations, and host code that touches
/// them terminates the process with a message on stderr. Returns addresses of host memory
/// unchanged.
template <class T>
[[nodiscard]] T* inspect(T* address) {
  return static_cast<T*>(detail::inspected(address));
}

/// The contents of memory that must not be read.
inline constexpr unsigned char poison = 0xA5;
/// The contents of a block's shared memory when the block starts; a NaN as a float.
inline constexpr unsigned char shared_poison = 0xFF;

}  // namespace fake_cuda
