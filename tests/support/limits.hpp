// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/resource.h>

#include <csignal>
#include <cstddef>

#include "support/catch.hpp"
#include "support/temp_dir.hpp"

namespace test {

/// A limit of this process that is lower for a scope.
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

/// No descriptor is opened whose number would be this one or above it. Catch2 may open none either.
using descriptor_limit = lower_limit<RLIMIT_NOFILE>;

/// No file of this process may grow beyond `bytes`, for a scope: a write beyond them fails with
/// EFBIG, as on a full disk.
class file_limit {
 public:
  explicit file_limit(::rlim_t bytes) : limit_(bytes) {}
  file_limit(file_limit&&) = delete;
  ~file_limit() { std::signal(SIGXFSZ, handler_); }

 private:
  void (*handler_)(int) = std::signal(SIGXFSZ, SIG_IGN);
  lower_limit<RLIMIT_FSIZE> limit_;
};

/// How many descriptors this process has, with the one that counts them.
inline std::size_t open_descriptors() { return files_in("/proc/self/fd"); }

}  // namespace test
