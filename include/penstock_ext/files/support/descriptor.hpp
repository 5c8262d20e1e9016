// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A file descriptor, closed by the destructor. Movable.
class descriptor {
 public:
  /// Owns `number`; below 0: none, or a place such as AT_FDCWD, which is not closed.
  explicit descriptor(int number) noexcept : number_(number) {}
  descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  /// The system's number of it.
  [[nodiscard]] int get() const noexcept { return number_; }
  /// Gives it away; this object has none then.
  [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_;
};

/// The system's words for `errno`.
[[nodiscard]] inline std::string system_reason() { return std::system_category().message(errno); }

/// Opens `name`, which is looked up from the directory `base`, with `flags`; a descriptor below 0
/// and `errno` where that fails.
[[nodiscard]] inline descriptor open_at(int base, const char* name, int flags) noexcept {
  while (true) {
    const int number = ::openat(base, name, flags | O_RDONLY | O_CLOEXEC);
    if (number >= 0 || errno != EINTR) return descriptor{number};
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
