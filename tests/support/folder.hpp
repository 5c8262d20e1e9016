// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <stdexcept>
#include <string>
#include <string_view>

#include "support/temp_dir.hpp"

namespace test {

/// A folder of files. The destructor removes it with its contents.
class folder {
 public:
  /// Returns the path of the folder, or of the file `name` inside it.
  [[nodiscard]] std::string path() const { return dir_.path("photos"); }
  [[nodiscard]] std::string path(const std::string& name) const { return path() + '/' + name; }
  /// Returns the path of a file next to the folder.
  [[nodiscard]] std::string beside(const std::string& name) const { return dir_.path(name); }

  /// Writes a file and creates its parent folders.
  void add(const std::string& name, std::string_view content = "content") const {
    std::filesystem::create_directories(std::filesystem::path{path(name)}.parent_path());
    write(path(name), content);
  }
  void make(const std::string& name) const { std::filesystem::create_directories(path(name)); }
  /// Creates a symbolic link `name` with the literal text `target`.
  void link(const std::string& target, const std::string& name) const {
    std::filesystem::create_symlink(target, path(name));
  }

  static void write(const std::string& path, std::string_view content) {
    std::ofstream file{path, std::ios::binary};
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
  }
  [[nodiscard]] static std::string read(const std::string& path) { return content_of(path); }

  /// Sets the modification time of a folder, or of all folders, to a time in the past.
  void age(const std::string& name, std::int64_t seconds = 1'000'000'000,
           std::int64_t nanoseconds = 123) const {
    const ::timespec times[] = {{seconds, nanoseconds}, {seconds, nanoseconds}};
    if (::utimensat(AT_FDCWD, path(name).c_str(), times, 0) != 0) {
      throw std::runtime_error("utimensat " + path(name));
    }
  }
  void age() const {
    age("");
    for (const auto& entry : std::filesystem::recursive_directory_iterator{path()}) {
      if (entry.is_directory()) age(entry.path().lexically_relative(path()).string());
    }
  }

 private:
  temp_dir dir_;
};

}  // namespace test
