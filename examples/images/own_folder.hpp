// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace images {

/// A new folder below the system's for temporary files, removed at the end with all that is in it.
class own_folder {
 public:
  /// Makes it, called `name` and six characters more. Throws std::runtime_error.
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
