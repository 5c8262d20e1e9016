// SPDX-License-Identifier: BSL-1.0
// Runtime functions for kernels and for the properties of the device that runs them.
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "api.hpp"
#include "grid.hpp"

using fake_cuda::detail::api_call;
using fake_cuda::detail::grid;
using fake_cuda::detail::kernel_type;
using fake_cuda::detail::operation;

namespace {

/// The kernels of the program. All instances of `world` share this registry.
class known_kernels {
 public:
  void add(const void* kernel, const kernel_type& type) {
    const std::lock_guard lock{mutex_};
    types_.emplace(kernel, type);
  }
  std::optional<kernel_type> find(const void* kernel) {
    const std::lock_guard lock{mutex_};
    const auto found = types_.find(kernel);
    return found == types_.end() ? std::nullopt : std::optional{found->second};
  }

 private:
  std::mutex mutex_;
  std::map<const void*, kernel_type> types_;
};

known_kernels& kernels() {
  static auto* all = new known_kernels;  // never destroyed, like `world`
  return *all;
}

/// Passes findings to the current world. The mutex of the world is not locked while a kernel runs.
class to_the_world final : public fake_cuda::detail::kernel_findings {
 public:
  void find(const std::string& kind, const std::string& text) override {
    auto& now = fake_cuda::detail::the_world();
    const std::lock_guard lock{now.mutex};
    now.find(kind, text);
  }
};

void run_kernel(const grid& what) {
  auto& now = fake_cuda::detail::the_world();
  auto how = fake_cuda::order::forwards;
  std::uint64_t seed = 0;
  {
    const std::lock_guard lock{now.mutex};
    how = now.how.kernels;
    seed = now.how.seed * 0x9E3779B97F4A7C15U + now.kernels.kernels++;
    now.kernels.blocks += std::uint64_t{what.blocks.x} * what.blocks.y * what.blocks.z;
  }
  to_the_world hear;
  const std::uint64_t barriers = run(what, how, seed, hear);
  const std::lock_guard lock{now.mutex};
  now.kernels.barriers += barriers;
}

/// Returns all words of the arguments that are addresses in tracked memory.
std::vector<const void*> addresses_in(const grid& what, fake_cuda::detail::world& now) {
  std::vector<const void*> found;
  const auto* bytes = static_cast<const unsigned char*>(what.arguments.get());
  for (std::size_t i = 0; i + sizeof(void*) <= what.type.bytes; i += sizeof(void*)) {
    const void* word = nullptr;
    std::memcpy(&word, bytes + i, sizeof word);
    if (now.block_of(word) != nullptr) found.push_back(word);
  }
  return found;
}

bool is_within(const dim3& of, unsigned x, unsigned y, unsigned z) {
  return of.x >= 1 && of.y >= 1 && of.z >= 1 && of.x <= x && of.y <= y && of.z <= z;
}

cudaError_t launch(const char* name, const void* kernel, dim3 blocks, dim3 threads,
                   void** arguments, std::size_t shared, cudaStream_t stream) {
  api_call call{name};
  if (call.failed()) return call.result();
  const auto type = kernels().find(kernel);
  if (!type) return call.done(cudaErrorInvalidDeviceFunction);
  if (!is_within(blocks, 0x7fffffff, 65535, 65535) || !is_within(threads, 1024, 1024, 64) ||
      std::size_t{threads.x} * threads.y * threads.z > 1024) {
    return call.done(cudaErrorInvalidConfiguration);
  }
  if (shared != 0) return call.done(cudaErrorNotSupported);  // dynamic shared memory is not modeled
  // Copies the arguments immediately, because the kernel runs later, and a captured kernel runs
  // repeatedly.
  grid what{kernel, *type, type->copy(arguments), blocks, threads};
  operation next;
  next.is_kernel = true;
  next.touches = addresses_in(what, call.now());
  next.work = std::make_shared<std::function<void()>>([what] { run_kernel(what); });
  return call.enqueue_work(stream, std::move(next));
}

}  // namespace

namespace fake_cuda::detail {

void know(const void* kernel, const kernel_type& type) { kernels().add(kernel, type); }

}  // namespace fake_cuda::detail

extern "C" {

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  api_call call{"cudaGetDeviceProperties", fake_cuda::detail::needs::nothing};
  if (call.failed()) return call.result();
  if (device < 0 || device >= call.now().how.devices) return call.done(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "fake_cuda");
  properties->major = 9;
  properties->minor = 0;
  properties->multiProcessorCount = 1;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3 blocks, dim3 threads, void** arguments,
                             std::size_t shared, cudaStream_t stream) {
  return launch("cudaLaunchKernel", kernel, blocks, threads, arguments, shared, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* kernel,
                                void** arguments) {
  return launch("cudaLaunchKernelExC", kernel, how->gridDim, how->blockDim, arguments,
                how->dynamicSmemBytes, how->stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  api_call call{"cudaFuncGetAttributes"};
  if (call.failed()) return call.result();
  if (!kernels().find(kernel)) return call.done(cudaErrorInvalidDeviceFunction);
  if (call.forbidden_by_capture_of_others()) return call.done(cudaErrorStreamCaptureUnsupported);
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->binaryVersion = 90;
  return cudaSuccess;
}

}  // extern "C"
