// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A read-only memory-mapped file. Pages are read on access, so opening takes the same time for any
/// size.
///
///     const ps::mapped_file text{"train.bin"};
///     for (const std::byte one : text.bytes()) count(one);
///
/// Owns the mapping, and keeps no file descriptor after construction. If another file replaces the
/// path, the mapping still contains the old bytes. If the file is truncated while it is mapped,
/// accessing bytes beyond the new end kills the process. Movable. A move does not change the
/// address of the bytes. Reading is thread-safe.
class mapped_file {
 public:
  /// Maps the regular file `path`. Throws `file_unreadable` if the file cannot be mapped.
  explicit mapped_file(std::string path) : path_(std::move(path)) {
    // Uses O_NONBLOCK, so that opening a pipe without a writer does not block.
    const detail::descriptor file = detail::open_at(AT_FDCWD, path_.c_str(), O_NONBLOCK | O_NOCTTY);
    struct ::stat status {};
    if (file.get() < 0 || ::fstat(file.get(), &status) != 0) fail(detail::system_reason());
    if (!S_ISREG(status.st_mode)) fail("a file that is not a regular file");
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (size > (std::numeric_limits<std::size_t>::max)() / 2)
      fail("a size above the address space");
    if (size == 0) return;
    void* const bytes = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
    if (bytes == MAP_FAILED) fail(detail::system_reason());
    bytes_ = {static_cast<std::byte*>(bytes), static_cast<std::size_t>(size)};
  }
  mapped_file(mapped_file&& other) noexcept
      : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}
  mapped_file& operator=(mapped_file&& other) noexcept {
    path_.swap(other.path_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~mapped_file() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }

  /// Returns the path passed to the constructor.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Returns all bytes of the file, or an empty span if the file is empty. The span remains valid
  /// until the mapping is destroyed.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  [[noreturn]] void fail(const std::string& found) const {
    throw file_unreadable(path_, 0, "a readable file", found);
  }

  std::string path_;
  std::span<std::byte> bytes_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
