// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/stat.h>

#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// By what a file is known again: which one it is, how long, and when it was last written to.
struct file_stamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t seconds = 0;
  std::int64_t nanoseconds = 0;

  friend bool operator==(const file_stamp&, const file_stamp&) = default;
  /// Whether the file was last written to before `other`.
  [[nodiscard]] bool is_older_than(const file_stamp& other) const noexcept {
    return seconds != other.seconds ? seconds < other.seconds : nanoseconds < other.nanoseconds;
  }
};

/// The stamp of the file that `status` is of.
[[nodiscard]] inline file_stamp file_stamp_of(const struct ::stat& status) noexcept {
  return {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size),
          status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
