// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/resource.h>

#include <csignal>

#include "support/catch.hpp"

namespace test {

/// No file of this process may grow beyond `bytes`, for a scope: a write beyond them fails with
/// EFBIG, as on a full disk.
class file_limit {
 public:
  explicit file_limit(::rlim_t bytes) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const ::rlimit lower{bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &lower) == 0);
  }
  file_limit(file_limit&&) = delete;
  ~file_limit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  ::rlimit before_{};
  void (*handler_)(int) = std::signal(SIGXFSZ, SIG_IGN);
};

}  // namespace test
