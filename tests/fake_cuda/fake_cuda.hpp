// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

// The double has these always.
#if CUDART_VERSION < 12080
extern "C" cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device);
#endif
#if CUDART_VERSION < 12050
extern "C" cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** function, unsigned int version, unsigned long long flags,
    cudaDriverEntryPointQueryResult* status = nullptr);
#endif

/// A double of the CUDA runtime for tests on machines without a GPU: link `penstock_fake_cuda` in
/// place of the runtime library. It is hostile: work runs as late, as early or in as odd an order
/// as streams and events allow, memory is poisoned wherever it must not be read, every handle is
/// in a ledger, and any call can be made to fail.
///
/// Modelled: streams, events, waits, asynchronous copies and memsets, host functions, allocation
/// and registration, bounds, the last-error slot, faults of kernels, stream capture and graphs,
/// several devices and which of them has a context, the driver's functions that make one current,
/// no driver, unloading at exit. Kernels, where they are compiled as C++ (README.md);
/// `launch` puts any other host code on a stream in the place of one.
///
/// Not modelled: warps, atomics, clusters and dynamic shared memory, blocks of a kernel that run at
/// the same time, what a stream's priority does, managed memory, peer access, timing. A graph runs
/// its work in the order of capture. Captures note operations in the order of the calls, not their
/// true dependencies.
namespace fake_cuda {

/// When the device does its work.
enum class policy {
  /// As late as possible: only what a wait needs, and only then.
  late,
  /// At once, as soon as what it waits for is done.
  early,
  /// Some of it at some calls, by the seed; the rest at a wait.
  random,
};

/// In which order the blocks of a kernel run, and the threads of a block from barrier to barrier.
enum class order { forwards, backwards, seeded };

/// When a copy from pageable memory to the device reads its source. The runtime may do each of
/// these; one into pageable memory always waits. What a graph copies is read when the graph runs.
enum class pageable {
  /// At the call, which returns at once.
  staged,
  /// When the copy runs, as on a device that reaches all memory of the host.
  late,
  /// At the call, which first waits for all work that the stream has.
  blocking,
  /// One of these, by the seed.
  seeded,
};

struct config {
  fake_cuda::policy policy = fake_cuda::policy::late;
  std::uint64_t seed = 0;
  int devices = 1;
  bool no_driver = false;
  int driver_version = CUDART_VERSION;  ///< below 12080 there is no cudaStreamGetDevice
  std::size_t device_memory = std::size_t{4} << 30;  ///< bytes a device has
  std::size_t pinned_memory = std::size_t{4} << 30;  ///< bytes that can be page-locked
  int host_numa_id = -1;
  std::string pci_bus_id = "FFFF:0B:00.0";  ///< of every device; no machine has such a bus
  fake_cuda::pageable pageable_copies = pageable::seeded;
  /// `cudaMalloc` of 2^48 bytes or more finds the size invalid, as a driver may that rounds it up.
  bool absurd_sizes_are_invalid = false;
  bool read_only_registration = true;
  bool registered_at_host_address = true;  ///< false: kernels reach it at another address
  bool maps_host_memory = true;            ///< what the attributes of these names say
  bool host_page_tables = false;           ///< as GH200, GB200 and GB10
  bool integrated = false;                 ///< as GB10 and Jetson
  fake_cuda::order kernels = order::forwards;
};

/// Forgets everything and starts anew; of the calling thread's state too. No other thread may be in
/// a call. The environment variable FAKE_CUDA_DEVICES sets the devices of a program that never
/// calls it.
void reset(const config& how = {});

/// Puts `work` on a stream in place of a kernel: it runs on the host, in stream order, once, may
/// block and must not throw. `touches` are addresses in memory that it uses: freeing that memory
/// before is a finding, and so is memory of another device. As for a kernel, the stream has to be
/// of the thread's current device.
void launch(cudaStream_t stream, std::function<void()> work, std::vector<const void*> touches = {});

/// Puts a kernel on a stream that faults: from its run on the device's context is lost.
void kernel_fault(cudaStream_t stream, cudaError_t code);

/// Every call from now on says `cudaErrorCudartUnloading`, as at the end of a process.
void unload();

// ---- failures -----------------------------------------------------------------------------------

/// The k-th call from now on (0: the next) fails with `code` and does nothing; calls that can't
/// fail (`cudaGetLastError` and the like) don't count.
void fail_call(std::uint64_t k, cudaError_t code);
/// For the calls of one function.
void fail_call_of(const std::string& function, std::uint64_t k, cudaError_t code);
/// Every call from the k-th on fails; what the device still had to do is dropped: a lost context.
void fail_from(std::uint64_t k, cudaError_t code);

// ---- what happened ------------------------------------------------------------------------------

/// Something that no program may do.
struct finding {
  /// "double free", "free of unknown memory", "use after free", "use after destroy", "freed under
  /// work", "unknown handle", "out of bounds", "wrong device", "call inside of work", "work threw",
  /// "barrier", "shared memory", "not mapped" or "context destroyed".
  std::string kind;
  std::string text;
};
[[nodiscard]] std::vector<finding> findings();

/// What exists now.
struct live_objects {
  std::size_t streams = 0;
  std::size_t events = 0;
  std::size_t device_blocks = 0;
  std::size_t pinned_blocks = 0;
  std::size_t registrations = 0;
  std::size_t graphs = 0;
  std::size_t graph_execs = 0;
  std::size_t retained_contexts = 0;  ///< by the program, each time
};
[[nodiscard]] live_objects live();

/// Whether there are no findings and nothing is left; writes to stderr what is.
[[nodiscard]] bool expect_clean();

/// How many contexts a device has, 0 or 1: what the process takes of a GPU that it never meant to
/// use. `cudaSetDevice` makes one, and so does a call that needs one on a thread that has none.
[[nodiscard]] std::size_t contexts(int device);

/// Calls since `reset`: of all threads, of one function, of the calling thread by function. Those
/// of the driver's functions count as well. The last alone counts `cudaPeekAtLastError`, which
/// can't fail.
[[nodiscard]] std::uint64_t calls();
[[nodiscard]] std::uint64_t calls_of(const std::string& function);
[[nodiscard]] std::map<std::string, std::uint64_t> thread_calls();

struct copy_statistics {
  std::uint64_t copies = 0;
  std::uint64_t copied_bytes = 0;
  /// Copies from or to pageable memory: the real runtime may make the caller wait for them.
  std::uint64_t synchronous_copies = 0;
};
[[nodiscard]] copy_statistics statistics();

/// The last 256 calls, failures and operations that ran, a line each, for a look at what went
/// wrong. Threads and streams are numbered in the order of their first call and of their creation.
[[nodiscard]] std::string trace();

/// The flags that an event was made with.
[[nodiscard]] unsigned int event_flags(cudaEvent_t event);

/// The priorities of the streams that were made since `reset`, in that order, destroyed ones too:
/// 0, or less for a higher one, down to -5. Without the default streams.
[[nodiscard]] std::vector<int> stream_priorities();

/// What was done with an event, by calls that did not fail.
struct event_use {
  unsigned int flags = 0;  ///< that it was made with
  std::uint64_t records = 0;
  std::uint64_t stream_waits = 0;
  std::uint64_t host_waits = 0;  ///< cudaEventSynchronize
};
/// Of every event that was made since `reset`, in that order, destroyed ones too.
[[nodiscard]] std::vector<event_use> events();

/// How many kernels have run, and on how many barriers their blocks have met.
struct kernel_statistics {
  std::uint64_t kernels = 0;
  std::uint64_t blocks = 0;
  std::uint64_t barriers = 0;
};
[[nodiscard]] kernel_statistics kernels_run();

namespace detail {
[[nodiscard]] void* inspected(const void* address);
}  // namespace detail

/// The same bytes of device memory at an address where a test may look at them at any time, and
/// write them as no program can. The addresses that the program has are for operations alone: host
/// code that touches them ends the process, and stderr says what it touched. Of host memory the
/// address itself.
template <class T>
[[nodiscard]] T* inspect(T* address) {
  return static_cast<T*>(detail::inspected(address));
}

/// What memory holds that must not be read.
inline constexpr unsigned char poison = 0xA5;
/// What a block's shared memory holds when the block begins: NaN in floats.
inline constexpr unsigned char shared_poison = 0xFF;

}  // namespace fake_cuda
