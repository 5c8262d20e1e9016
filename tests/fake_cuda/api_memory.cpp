// SPDX-License-Identifier: BSL-1.0
// Runtime functions for memory and copies.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api.hpp"

using fake_cuda::pageable;
using fake_cuda::detail::api_call;
using fake_cuda::detail::memory_block;
using fake_cuda::detail::operation;
using fake_cuda::detail::stream_ptr;

namespace {

cudaError_t allocate(const char* name, memory_block::kind what, void** data, std::size_t bytes,
                     bool is_portable = true) {
  api_call call{name};
  if (call.failed()) return call.result();
  if (call.forbidden_by_capture()) return call.done(cudaErrorStreamCaptureUnsupported);
  return call.done(call.now().take(what, bytes, call.thread().device(), is_portable, data));
}

cudaError_t deallocate(const char* name, memory_block::kind what, void* data) {
  api_call call{name};
  if (call.was_set_to_fail()) call.now().forget(what, data, name);
  if (call.failed()) return call.result();
  if (call.forbidden_by_capture()) return call.done(cudaErrorStreamCaptureUnsupported);
  return call.done(call.now().give(what, data, name, call.lock()));
}

/// Properties of the range [address, address + bytes): whether the memory may be used, and whether
/// a copy by `device` must use a staging buffer of the driver.
struct place {
  bool is_valid = true;
  bool is_pageable = false;
};

place look_up(api_call& call, const void* address, std::size_t bytes, int device) {
  if (!call.now().check_alive(address, call.name())) return {.is_valid = false};
  const auto* at = static_cast<const unsigned char*>(address);
  const memory_block* block = call.now().block_of(address);
  if (block == nullptr) block = call.now().block_in(address, bytes);
  if (block == nullptr) return {.is_valid = true, .is_pageable = true};
  if (at >= block->base && at + bytes <= block->base + block->bytes) {
    const bool is_pinned = block->is_portable || block->device == device;
    return {.is_valid = true, .is_pageable = !is_pinned};
  }
  // A copy must stay inside one piece if memory was registered in pieces. A violation is the
  // caller's error, and the runtime reports it.
  if (block->what != memory_block::kind::registered) {
    call.now().find("out of bounds", std::string{call.name()} + " of " + std::to_string(bytes) +
                                         " bytes leaves an allocation of " +
                                         std::to_string(block->bytes));
  }
  return {.is_valid = false};
}

/// Makes a copy from pageable memory read its source now or later. Waits for the stream first if
/// the call may wait.
void stage(api_call& call, operation& next, const stream_ptr& stream) {
  if (stream->captured_by != nullptr) return;
  auto& now = call.now();
  auto when = now.how.pageable_copies;
  if (when == pageable::seeded) when = static_cast<pageable>(now.random_pageable() % 3);
  if (when == pageable::late) return;
  if (when == pageable::blocking) now.run_until(call.lock(), stream, stream->pushed);
  const auto* begin = static_cast<const unsigned char*>(next.from);
  next.staged = std::make_shared<std::vector<unsigned char>>(begin, begin + next.bytes);
}

cudaError_t copy(api_call& call, void* to, const void* from, std::size_t bytes,
                 const stream_ptr& stream, bool wait) {
  if (bytes == 0) return cudaSuccess;
  const place target = look_up(call, to, bytes, stream->device);
  const place source = look_up(call, from, bytes, stream->device);
  if (!target.is_valid || !source.is_valid) return call.done(cudaErrorInvalidValue);
  if ((source.is_pageable || target.is_pageable) && call.forbidden_by_capture_of_others()) {
    return call.done(cudaErrorStreamCaptureUnsupported);  // such a copy would wait on a real device
  }
  auto& now = call.now();
  ++now.statistics.copies;
  now.statistics.copied_bytes += bytes;
  operation next;
  next.what = operation::kind::copy;
  next.to = to;
  next.from = from;
  next.bytes = bytes;
  if (source.is_pageable) stage(call, next, stream);
  if ((source.is_pageable || target.is_pageable) && !wait) ++now.statistics.synchronous_copies;
  now.push(stream, std::move(next));
  if ((wait || target.is_pageable) && stream->captured_by == nullptr) {
    now.run_until(call.lock(), stream, stream->pushed);
  }
  return call.done(call.lost(stream->device));
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return allocate("cudaMalloc", memory_block::kind::device, data, bytes);
}
cudaError_t cudaFree(void* data) {
  return deallocate("cudaFree", memory_block::kind::device, data);
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned int flags) {
  return allocate("cudaHostAlloc", memory_block::kind::pinned, data, bytes,
                  (flags & cudaHostAllocPortable) != 0);
}
cudaError_t cudaMallocHost(void** data, size_t bytes) {
  return allocate("cudaMallocHost", memory_block::kind::pinned, data, bytes, false);
}
cudaError_t cudaFreeHost(void* data) {
  return deallocate("cudaFreeHost", memory_block::kind::pinned, data);
}

cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned int flags) {
  api_call call{"cudaHostRegister"};
  if (call.failed()) return call.result();
  if (call.forbidden_by_capture()) return call.done(cudaErrorStreamCaptureUnsupported);
  auto& now = call.now();
  if (data == nullptr || bytes == 0) return call.done(cudaErrorInvalidValue);
  if ((flags & cudaHostRegisterReadOnly) != 0 && !now.how.read_only_registration) {
    return call.done(cudaErrorNotSupported);
  }
  auto* base = static_cast<unsigned char*>(data);
  // Each whole page can be locked only once. Memory from cudaHostAlloc is not included, because it
  // comes from the heap.
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto pages_of = [&](const unsigned char* from, std::size_t count, bool whole) {
    const auto first = reinterpret_cast<std::uintptr_t>(from);
    return whole ? std::pair{first / page * page, (first + count + page - 1) / page * page}
                 : std::pair{first, first + count};
  };
  for (const auto& [at, block] : now.blocks) {
    const bool whole = block.what == memory_block::kind::registered;
    const auto [begin, end] = pages_of(base, bytes, whole);
    const auto [other, other_end] = pages_of(at, block.bytes, whole);
    if (other < end && begin < other_end) return call.done(cudaErrorHostMemoryAlreadyRegistered);
  }
  auto& taken = now.taken[memory_block::kind::pinned];
  if (bytes > now.how.pinned_memory || taken > now.how.pinned_memory - bytes) {
    return call.done(cudaErrorMemoryAllocation);
  }
  taken += bytes;
  now.freed.erase(data);
  const bool is_mapped = flags == cudaHostRegisterDefault || (flags & cudaHostRegisterMapped) != 0;
  now.blocks[base] = {
      memory_block::kind::registered, base,      bytes,
      call.thread().device(),         is_mapped, (flags & cudaHostRegisterPortable) != 0};
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* data) {
  api_call call{"cudaHostUnregister"};
  auto& now = call.now();
  const auto found = now.blocks.find(static_cast<unsigned char*>(data));
  const bool is_registered =
      found != now.blocks.end() && found->second.what == memory_block::kind::registered;
  if (call.was_set_to_fail()) now.forget(memory_block::kind::registered, data, call.name());
  if (call.failed()) return call.result();
  if (call.forbidden_by_capture()) return call.done(cudaErrorStreamCaptureUnsupported);
  if (!is_registered) {
    if (now.freed.count(data) != 0) now.find("double free", "cudaHostUnregister a second time");
    return call.done(cudaErrorHostMemoryNotRegistered);
  }
  return call.done(now.give(memory_block::kind::registered, data, call.name(), call.lock()));
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  api_call call{"cudaMemcpyAsync"};
  if (call.failed()) return call.result();
  const auto on = call.stream(stream);
  if (on == nullptr) return call.done(cudaErrorInvalidResourceHandle);
  if (const auto why = call.unsupported_in_capture(*on); why != cudaSuccess) return call.done(why);
  return copy(call, to, from, bytes, on, false);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  api_call call{"cudaMemcpy"};
  if (call.failed()) return call.result();
  if (call.forbidden_by_capture()) return call.done(cudaErrorStreamCaptureUnsupported);
  return copy(call, to, from, bytes, call.stream(nullptr), true);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  api_call call{"cudaMemsetAsync"};
  if (call.failed()) return call.result();
  const auto on = call.stream(stream);
  if (on == nullptr) return call.done(cudaErrorInvalidResourceHandle);
  if (const auto why = call.unsupported_in_capture(*on); why != cudaSuccess) return call.done(why);
  const place target = look_up(call, to, bytes, on->device);
  if (!target.is_valid || target.is_pageable) return call.done(cudaErrorInvalidValue);
  operation next;
  next.what = operation::kind::fill;
  next.to = to;
  next.value = value;
  next.bytes = bytes;
  call.now().push(on, std::move(next));
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  api_call call{"cudaMemGetInfo"};
  if (call.failed()) return call.result();
  if (call.forbidden_by_capture_of_others()) return call.done(cudaErrorStreamCaptureUnsupported);
  *total = call.now().how.device_memory;
  *free = *total - call.now().taken[memory_block::kind::device];
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  api_call call{"cudaPointerGetAttributes"};
  if (call.failed()) return call.result();
  if (call.forbidden_by_capture_of_others()) return call.done(cudaErrorStreamCaptureUnsupported);
  *attributes = {};
  attributes->type = cudaMemoryTypeUnregistered;
  attributes->device = -1;
  const memory_block* block = call.now().block_of(address);
  if (block == nullptr) return cudaSuccess;
  const bool on_device = block->what == memory_block::kind::device;
  attributes->type = on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->device = block->device;
  attributes->devicePointer = block->is_mapped ? const_cast<void*>(address) : nullptr;
  if (block->what == memory_block::kind::registered && block->is_mapped &&
      !call.now().how.registered_at_host_address) {
    attributes->devicePointer = static_cast<char*>(attributes->devicePointer) + block->bytes;
  }
  attributes->hostPointer = on_device ? nullptr : const_cast<void*>(address);
  return cudaSuccess;
}

}  // extern "C"
