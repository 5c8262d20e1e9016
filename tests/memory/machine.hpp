// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include <penstock/memory/budget.hpp>

#include "support/catch.hpp"

namespace test {

/// A root directory with the system files of a simulated machine. The destructor removes the
/// directory.
class machine {
 public:
  machine() {
    std::string pattern = (std::filesystem::temp_directory_path() / "penstock-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    root_ = pattern;
  }
  machine(machine&&) = delete;
  ~machine() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  machine& file(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root_ + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream{whole} << text;
    return *this;
  }
  /// Sets MemAvailable in /proc/meminfo.
  machine& free_mib(std::uint64_t count) {
    return file("/proc/meminfo",
                "MemTotal:       99999999 kB\nMemFree:            1234 kB\n"
                "MemAvailable:   " +
                    std::to_string(count * 1024) + " kB\nBuffers:  77 kB\n");
  }
  /// Returns the memory that a process may use on this machine.
  [[nodiscard]] std::uint64_t available() const { return penstock::available_memory(root_); }

  [[nodiscard]] const std::string& root() const { return root_; }

 private:
  std::string root_;
};

}  // namespace test
