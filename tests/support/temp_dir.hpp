// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace test {

using file_bytes = std::vector<std::uint8_t>;

/// A new directory for temporary files. The destructor removes the directory and its contents.
class temp_dir {
 public:
  temp_dir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "penstock-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp: " + pattern);
    path_ = pattern;
  }
  temp_dir(const temp_dir&) = delete;
  temp_dir& operator=(const temp_dir&) = delete;
  ~temp_dir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] std::string path(const std::string& name) const { return (path_ / name).string(); }

  /// Writes a file and returns its path.
  std::string write(const std::string& name, const file_bytes& bytes) const {
    std::ofstream file{path(name), std::ios::binary};
    for (const std::uint8_t byte : bytes) file.put(static_cast<char>(byte));
    if (!file.flush()) throw std::runtime_error("cannot write " + path(name));
    return path(name);
  }

 private:
  std::filesystem::path path_;
};

/// Returns the number of files and folders in a directory.
inline std::size_t files_in(const std::string& path) {
  const std::filesystem::directory_iterator all{path};
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}
inline std::size_t files_in(const temp_dir& dir) { return files_in(dir.path("")); }

/// Returns the contents of a file.
inline std::string content_of(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// Returns the contents of an IDX file with this element type, these dimensions and these elements.
inline file_bytes idx_bytes(std::uint8_t type, const std::vector<std::uint32_t>& lengths,
                            const file_bytes& elements) {
  file_bytes bytes{0, 0, type, static_cast<std::uint8_t>(lengths.size())};
  for (const std::uint32_t length : lengths) {
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
      bytes.push_back(static_cast<std::uint8_t>(length >> shift));
    }
  }
  bytes.insert(bytes.end(), elements.begin(), elements.end());
  return bytes;
}

}  // namespace test
