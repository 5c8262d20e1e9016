// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include <penstock_ext/files/file_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A file's bytes where the system has them: mapped, and read when they are looked at. Takes no
/// memory of the process, and no file descriptor after the construction. A file that replaces it is
/// not seen. The file must not be made shorter meanwhile: looking at what is gone ends the process.
/// Movable; the bytes stay where they are. Thread-safe.
class mapped_file {
 public:
  /// Maps the regular file `path`. Throws `file_unreadable`.
  explicit mapped_file(std::string path) : path_(std::move(path)) {
    // O_NONBLOCK: a pipe without a writer does not block.
    int file = -1;
    do {
      file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    } while (file < 0 && errno == EINTR);
    if (file < 0) fail(reason());
    const std::string wrong = map(file);
    ::close(file);
    if (!wrong.empty()) fail(wrong);
  }
  mapped_file(mapped_file&& other) noexcept
      : path_(std::move(other.path_)),
        bytes_(std::exchange(other.bytes_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  mapped_file& operator=(mapped_file&&) = delete;
  ~mapped_file() {
    if (size_ != 0) ::munmap(bytes_, size_);
  }

  /// The path as it was given.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// All of the file.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(bytes_), size_};
  }

 private:
  static std::string reason() { return std::system_category().message(errno); }
  [[noreturn]] void fail(const std::string& found) const {
    throw file_unreadable(path_, 0, "a readable file", found);
  }

  // What went wrong; "" if nothing did.
  [[nodiscard]] std::string map(int file) {
    struct ::stat status {};
    if (::fstat(file, &status) != 0) return reason();
    if (!S_ISREG(status.st_mode)) return "what is no regular file";
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (size > (std::numeric_limits<std::size_t>::max)() / 2) return "more bytes than addresses";
    if (size == 0) return {};
    void* const bytes =
        ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED) return reason();
    bytes_ = bytes;
    size_ = static_cast<std::size_t>(size);
    return {};
  }

  std::string path_;
  void* bytes_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
