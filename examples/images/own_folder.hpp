// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace images {

/// A new directory for temporary files. The destructor removes the directory and its contents.
class own_folder {
 public:
  /// Creates the directory, named `name`, a dash and six random characters. Throws
  /// std::runtime_error.
  explicit own_folder(const std::string& name) {
    std::string made = (std::filesystem::temp_directory_path() / (name + "-XXXXXX")).string();
    if (::mkdtemp(made.data()) == nullptr) throw std::runtime_error(made + ": can't be made");
    path_ = made;
  }
  own_folder(own_folder&&) = delete;
  ~own_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace images
