// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>

/// The device memory. Each page is mapped twice. The program gets the addresses of a mapping that
/// is inaccessible; the double copies, fills and inspects through the other mapping. Work that
/// represents a kernel uses the program's addresses: its first touch opens them until that work
/// ends. Any other touch ends the process, with a message on stderr.
namespace fake_cuda::detail {

/// Returns `bytes` zeros at a new address, valid until `drop_device_memory`. Throws
/// `std::bad_alloc`.
[[nodiscard]] unsigned char* take_device_memory(std::size_t bytes);
/// Unmaps all device memory.
void drop_device_memory();

/// Returns the address of the same byte in the mapping that the double and tests may touch. Returns
/// addresses of host memory unchanged.
[[nodiscard]] void* inside(const void* address);

/// Marks the calling thread as running work that represents a kernel, within a scope.
class device_work_scope {
 public:
  device_work_scope();
  device_work_scope(device_work_scope&&) = delete;
  ~device_work_scope();
};

/// Installs the fault handler again, because a test framework may have replaced it.
void watch_faults();

}  // namespace fake_cuda::detail
