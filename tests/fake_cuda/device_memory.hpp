// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>

/// Where device memory lies. Each page of it is mapped twice: the program has the addresses of a
/// mapping that nobody may touch, and the double copies, fills and looks through the other one.
/// Work that stands for a kernel uses the program's addresses: its first touch opens them, until
/// the end of that work. Any other touch ends the process, with a sentence on stderr.
namespace fake_cuda::detail {

/// So many bytes of zeros at a new address, until `drop_device_memory`. Throws `std::bad_alloc`.
[[nodiscard]] unsigned char* take_device_memory(std::size_t bytes);
/// Unmaps all of it.
void drop_device_memory();

/// The address of the same byte where the double, and who tests, may touch it; of host memory the
/// address itself.
[[nodiscard]] void* inside(const void* address);

/// The calling thread runs work that stands for a kernel, for a scope.
class device_work_scope {
 public:
  device_work_scope();
  device_work_scope(device_work_scope&&) = delete;
  ~device_work_scope();
};

/// Sees to it that faults come here: a test's framework has a handler of its own for them.
void watch_faults();

}  // namespace fake_cuda::detail
