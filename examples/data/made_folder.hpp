// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace data {

/// A folder for the files of an example. The destructor removes the folder and its files.
class made_folder {
 public:
  /// Creates the folder. Throws std::runtime_error if this fails.
  made_folder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "penstock-data-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error(pattern + ": mkdtemp");
    path_ = pattern;
  }
  made_folder(const made_folder&) = delete;
  made_folder& operator=(const made_folder&) = delete;
  ~made_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  /// Returns the path of `name` in the folder.
  [[nodiscard]] std::string path(const std::string& name) const { return (path_ / name).string(); }

  /// Writes a file, creates its parent folders, and returns its path. Throws std::runtime_error.
  std::string write(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories(std::filesystem::path{path(name)}.parent_path());
    std::ofstream file{path(name), std::ios::binary};
    file << bytes;
    if (!file.flush()) throw std::runtime_error(path(name) + ": can't be written");
    return path(name);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace data
