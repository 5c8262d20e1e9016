// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A read of a file that is to be done, is under way or has ended. The descriptor and the memory
/// are the caller's.
struct file_read {
  int file = -1;
  std::uint64_t offset = 0;
  std::byte* out = nullptr;
  std::size_t size = 0;
  std::size_t enough = 0;  ///< how many bytes of it are needed: the file may end after them
  std::size_t done = 0;    ///< how many bytes have been read
  int error = 0;  ///< the system's number of what went wrong; 0 also at the end of the file

  /// Whether all that is needed has been read.
  [[nodiscard]] bool is_whole() const noexcept { return done >= enough; }
};

/// Reads what is left of `read`, and waits for it, unless `flags` of preadv2 say else. At the end
/// of the file, and after an error, there is something left.
inline void read_rest(file_read& read, int flags = 0) noexcept {
  read.error = 0;
  while (!read.is_whole()) {
    const ::iovec to{read.out + read.done, read.size - read.done};
    const ssize_t count =
        ::preadv2(read.file, &to, 1, static_cast<off_t>(read.offset + read.done), flags);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) read.error = errno;
    if (count <= 0) return;
    read.done += static_cast<std::size_t>(count);
  }
}

/// Reads what the system has in memory from the start of `read` on, and waits for nothing. One call
/// tells and reads, on file systems that know RWF_NOWAIT; on others nothing is read.
inline void read_cached(file_read& read) noexcept { read_rest(read, RWF_NOWAIT); }

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
