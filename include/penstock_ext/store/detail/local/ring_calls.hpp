// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <linux/io_uring.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The system's calls for an io_uring, as `read_ring` makes them; a test has others. Results below
/// 0 are the system's number of what went wrong.
struct ring_calls {
  /// Makes a ring; its descriptor.
  [[nodiscard]] int set_up(unsigned entries, ::io_uring_params& params) const noexcept {
    return result(::syscall(SYS_io_uring_setup, entries, &params));
  }
  /// Hands over up to `queued` reads, then waits until `least` results are there; how many were
  /// handed over.
  [[nodiscard]] int enter(int ring, unsigned queued, unsigned least) const noexcept {
    const unsigned flags = least > 0 ? IORING_ENTER_GETEVENTS : 0;
    return result(::syscall(SYS_io_uring_enter, ring, queued, least, flags, nullptr, 0));
  }
  /// The ring's shared memory at `offset`; null where it is refused.
  [[nodiscard]] void* map(int ring, std::size_t bytes, std::uint64_t offset) const noexcept {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring,
                            static_cast<off_t>(offset));
    return at == MAP_FAILED ? nullptr : at;
  }
  /// Gives it back.
  void unmap(void* at, std::size_t bytes) const noexcept { ::munmap(at, bytes); }
  /// Waits for a result where `enter` can't.
  void wait(int ring) const noexcept {
    ::pollfd one{ring, POLLIN, 0};
    static_cast<void>(::poll(&one, 1, -1));
  }
  /// Ends the ring.
  void close(int ring) const noexcept { ::close(ring); }

 private:
  [[nodiscard]] static int result(long value) noexcept {
    return value < 0 ? -errno : static_cast<int>(value);
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
