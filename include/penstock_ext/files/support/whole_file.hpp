// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Writes all of `bytes`; the system's number of what went wrong, or 0.
[[nodiscard]] inline int write_all(int file, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return EIO;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

/// When the disk has what was written.
enum class disk_has {
  in_time,  ///< when the system writes it
  at_once   ///< before the file has its name: a machine that stops leaves no name without its bytes
};

/// Has the disk take what was written to the open file or folder. The system's number of what went
/// wrong, or 0; also where the file system has no such call.
[[nodiscard]] inline int sync_descriptor(int file) noexcept {
  while (::fsync(file) != 0) {
    if (errno == EINVAL || errno == ENOTSUP) return 0;
    if (errno != EINTR) return errno;
  }
  return 0;
}

/// Has the disk take the names in `folder`. The system's number of what went wrong, or 0.
[[nodiscard]] inline int sync_folder(const std::string& folder) {
  const int opened =
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0) return errno;
  const int wrong = sync_descriptor(opened);
  ::close(opened);
  return wrong;
}

/// Makes `path` a file of these bytes, or leaves it as it was: they are written to a file beside
/// it, which gets its name and its mode when it is whole; where a link leads to a file, that one.
/// What is no ordinary file, such as a pipe, is written to as it is. Returns the system's number of
/// what went wrong, or 0. From any thread.
[[nodiscard]] inline int write_whole_file(const std::string& path, std::string_view bytes,
                                          disk_has when = disk_has::in_time) {
  std::string target = path;
  struct stat before {};
  if (::lstat(path.c_str(), &before) == 0 && S_ISLNK(before.st_mode)) {
    char* const led_to = ::realpath(path.c_str(), nullptr);  // null: to nothing, and it is replaced
    if (led_to != nullptr) target = led_to;
    std::free(led_to);
  }
  const bool is_there = ::stat(target.c_str(), &before) == 0;
  const bool is_special = is_there && !S_ISREG(before.st_mode);
  // Relaxed: it only counts, so that no two threads take one name.
  static std::atomic<unsigned> files{0};
  const int how =
      is_special ? O_WRONLY | O_CLOEXEC | O_TRUNC : O_WRONLY | O_CLOEXEC | O_CREAT | O_EXCL;
  std::string part = target;
  int file = -1;
  for (int tries = 0; tries < 1000;
       ++tries) {  // a process of this number may have died and left some
    if (!is_special) {
      part = target + ".part-" + std::to_string(::getpid()) + '-' +
             std::to_string(files.fetch_add(1, std::memory_order_relaxed));
    }
    file = ::open(part.c_str(), how, 0666);  // not mkstemp, whose file is for this user alone
    if (file >= 0 || errno != EEXIST) break;
  }
  if (file < 0) return errno;
  int wrong = write_all(file, bytes);
  if (is_there && !is_special) static_cast<void>(::fchmod(file, before.st_mode & 07777));
  if (wrong == 0 && when == disk_has::at_once && !is_special) wrong = sync_descriptor(file);
  if (::close(file) != 0 && wrong == 0) wrong = errno;
  if (is_special) return wrong;
  if (wrong == 0 && std::rename(part.c_str(), target.c_str()) != 0) wrong = errno;
  if (wrong != 0) ::unlink(part.c_str());
  return wrong;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
