// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <span>
#include <string>

#include "fuzz/require.hpp"

namespace fuzz {

/// A file in memory that every input rewrites.
class scratch_file {
 public:
  scratch_file() : descriptor_(::memfd_create("fuzzed", MFD_CLOEXEC)) {
    require(descriptor_ >= 0, "memfd_create");
  }
  void write(std::span<const std::byte> bytes) const {
    require(::ftruncate(descriptor_, 0) == 0, "ftruncate");
    require(
        ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
        "pwrite");
  }
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace fuzz
