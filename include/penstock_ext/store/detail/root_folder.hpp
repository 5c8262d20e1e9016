// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns the problem with an object name, or "" if the name is valid. A valid name is relative
/// and contains no "..".
[[nodiscard]] inline std::string_view name_problem(std::string_view name) {
  if (name.empty()) return "an empty name";
  if (name.find('\0') != std::string_view::npos) return "a name with a NUL";
  if (name.front() == '/') return "an absolute path";
  const std::string framed = '/' + std::string{name} + '/';
  if (framed.find("/../") != std::string::npos) return "a name with '..'";
  return {};
}

/// Opens files below a folder by relative name, and never opens files outside the folder. The
/// kernel resolves each name beneath the folder (openat2). If the kernel has no openat2, each
/// component of the name is opened separately, and symbolic links are rejected. Movable and
/// thread-safe.
class root_folder {
 public:
  /// Opens the folder `path`, which may be a symbolic link. Uses openat2 only if `has_openat2` is
  /// true. Throws `file_unreadable` if the folder cannot be opened.
  explicit root_folder(std::string path, bool has_openat2 = true)
      : path_(std::move(path)),
        folder_(open_at(AT_FDCWD, path_.c_str(), O_DIRECTORY)),
        has_openat2_(has_openat2) {
    if (folder_.get() < 0) throw file_unreadable(path_, 0, "a readable folder", system_reason());
  }

  /// Returns the path passed to the constructor.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Returns the path of the file `name`, for messages.
  [[nodiscard]] std::string path_of(std::string_view name) const {
    return path_ + (path_.ends_with('/') ? "" : "/") + std::string{name};
  }

  /// Opens the regular file `name` for reading. `flags` are additional flags of open. Throws
  /// `object_name_error` if the name leads outside the folder, and `file_unreadable` if the file is
  /// missing or not a regular file. If the errno value is `allowed`, returns an empty descriptor
  /// instead.
  [[nodiscard]] descriptor open(std::string_view name, int flags = 0, int allowed = 0) const {
    if (const auto problem = name_problem(name); !problem.empty()) {
      throw object_name_error(std::string{name}, 0, "a relative path without '..'",
                              std::string{problem});
    }
    const std::string text{name};
    // O_NONBLOCK, so that opening a pipe without a writer does not block.
    flags |= O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    descriptor file = has_openat2_ ? open_beneath(text, flags) : descriptor{-1};
    // ENOSYS means a kernel older than 5.6. EPERM means a container that denies unknown calls.
    if (!has_openat2_ || (file.get() < 0 && (errno == ENOSYS || errno == EPERM))) {
      file = open_by_parts(text, flags);
    }
    if (file.get() < 0 && errno == allowed) return file;
    if (file.get() < 0) fail(name);
    struct ::stat status {};
    if (::fstat(file.get(), &status) != 0) fail(name);
    require_regular(status, [&] { return path_of(name); });
    // With O_NONBLOCK, io_uring would return EAGAIN for data that is not in memory.
    const int now = ::fcntl(file.get(), F_GETFL);
    if (now < 0 || ::fcntl(file.get(), F_SETFL, now & ~O_NONBLOCK) != 0) fail(name);
    return file;
  }

 private:
  [[noreturn]] void fail(std::string_view name) const {
    if (errno == EXDEV) reject_link(name, "a link to a place outside the folder");
    throw file_unreadable(path_of(name), 0, "a readable file", system_reason("lower max_open"));
  }
  [[noreturn]] void reject_link(std::string_view name, const char* found) const {
    throw object_name_error(path_of(name), 0, "a file below the store's folder", found);
  }

  [[nodiscard]] descriptor open_beneath(const std::string& name, int flags) const noexcept {
    ::open_how how{};
    how.flags = static_cast<unsigned>(flags);
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    // EAGAIN means that a folder in the path was renamed concurrently, so the kernel could not
    // resolve the path.
    for (int tries = 0;; ++tries) {
      const long file = ::syscall(SYS_openat2, folder_.get(), name.c_str(), &how, sizeof how);
      if (file >= 0 || (errno != EINTR && (errno != EAGAIN || tries == 100))) {
        return descriptor{static_cast<int>(file)};
      }
    }
  }

  [[nodiscard]] descriptor open_by_parts(const std::string& name, int flags) const {
    descriptor folder{-1};
    int base = folder_.get();
    std::size_t begin = 0;
    while (true) {
      const std::size_t slash = name.find('/', begin);
      const bool is_last = slash == std::string::npos;
      const std::string part = name.substr(begin, is_last ? slash : slash - begin);
      begin = slash + 1;
      if (part.empty() && !is_last) continue;
      const int how = is_last ? flags : O_PATH | O_DIRECTORY;
      descriptor next = open_at(base, part.empty() ? "." : part.c_str(), how | O_NOFOLLOW);
      if (next.get() < 0) {
        const int reason = errno;
        struct ::stat status {};
        if (::fstatat(base, part.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISLNK(status.st_mode)) {
          reject_link(name, "a link, whose target this system cannot check (no openat2)");
        }
        errno = reason;
        return next;
      }
      if (is_last) return next;
      folder = std::move(next);
      base = folder.get();
    }
  }

  std::string path_;
  descriptor folder_;
  bool has_openat2_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
