// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/resource.h>

#include <csignal>
#include <cstddef>

#include "support/catch.hpp"
#include "support/temp_dir.hpp"

namespace test {

/// Lowers a resource limit of this process for the current scope.
template <auto Resource>
class lower_limit {
 public:
  explicit lower_limit(::rlim_t to) {
    REQUIRE(::getrlimit(Resource, &before_) == 0);
    const ::rlimit lower{to, before_.rlim_max};
    REQUIRE(::setrlimit(Resource, &lower) == 0);
  }
  lower_limit(lower_limit&&) = delete;
  ~lower_limit() { ::setrlimit(Resource, &before_); }

 private:
  ::rlimit before_{};
};

/// Makes opening a file fail if its descriptor would reach the limit. The limit also affects
/// Catch2.
using descriptor_limit = lower_limit<RLIMIT_NOFILE>;

/// Limits the size of files that this process writes for the current scope. A larger write fails
/// with EFBIG, as it would on a full disk.
class file_limit {
 public:
  explicit file_limit(::rlim_t bytes) : limit_(bytes) {}
  file_limit(file_limit&&) = delete;
  ~file_limit() { std::signal(SIGXFSZ, handler_); }

 private:
  void (*handler_)(int) = std::signal(SIGXFSZ, SIG_IGN);
  lower_limit<RLIMIT_FSIZE> limit_;
};

/// Returns the number of open file descriptors, including the descriptor that this function uses.
inline std::size_t open_descriptors() { return files_in("/proc/self/fd"); }

}  // namespace test
