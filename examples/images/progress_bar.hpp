// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace images {

/// Displays the progress of a counter on a terminal, ten times per second. Prints nothing if the
/// output is not a terminal.
class progress_bar {
 public:
  progress_bar(std::uint64_t all, std::string what) : all_(all), what_(std::move(what)) {}

  void show(std::uint64_t done) {
    const auto now = std::chrono::steady_clock::now();
    if (!on_terminal_ || now < next_) return;
    next_ = now + std::chrono::milliseconds{100};
    const std::size_t filled =
        all_ == 0 ? width : static_cast<std::size_t>(width * (done < all_ ? done : all_) / all_);
    const std::chrono::duration<double> since = now - begin_;
    std::fprintf(stderr, "\r[%s%s] %llu / %llu %s, %.0f a second ",
                 std::string(filled, '#').c_str(), std::string(width - filled, ' ').c_str(),
                 static_cast<unsigned long long>(done), static_cast<unsigned long long>(all_),
                 what_.c_str(), static_cast<double>(done) / since.count());
  }
  void clear() const {
    if (on_terminal_) std::fputs("\r\033[K", stderr);
  }

 private:
  static constexpr std::uint64_t width = 30;
  std::uint64_t all_;
  std::string what_;
  bool on_terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point next_ = begin_;
};

}  // namespace images
