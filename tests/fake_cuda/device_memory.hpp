// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>

/// Device memory in which each page is mapped twice. The program receives addresses in a mapping
/// that is inaccessible. The fake CUDA runtime copies, fills and inspects memory through the other
/// mapping. Work that represents a kernel uses the program's addresses, and its first access makes
/// them accessible until the work ends. Any other access terminates the process with a message on
/// stderr.
namespace fake_cuda::detail {

/// Returns the address of `bytes` zeroed bytes, valid until `drop_device_memory` is called. Throws
/// `std::bad_alloc`.
[[nodiscard]] unsigned char* take_device_memory(std::size_t bytes);
/// Unmaps all device memory.
void drop_device_memory();

/// Returns the address of the same byte in the mapping that is always accessible. Addresses of host
/// memory are returned unchanged.
[[nodiscard]] void* inside(const void* address);

/// Marks the calling thread as running work that represents a kernel, for the current scope.
class device_work_scope {
 public:
  device_work_scope();
  device_work_scope(device_work_scope&&) = delete;
  ~device_work_scope();
};

/// Installs the fault handler again, because a test framework may have replaced it.
void watch_faults();

}  // namespace fake_cuda::detail
