// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "images/synthetic_photos.hpp"

namespace images {

/// A tar shard of synthetic photographs with labels. The destructor removes the shard.
class photo_shard {
 public:
  /// Writes the shard. Throws std::runtime_error.
  photo_shard() : photos_(1), path_(photos_.path() + "/shard.tar") {
    namespace fs = std::filesystem;
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator{photos_.path()}) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    std::ofstream tar{path_, std::ios::binary};
    for (const fs::path& file : files) {
      std::ifstream image{file, std::ios::binary};
      const std::string bytes{std::istreambuf_iterator<char>{image}, {}};
      const std::string key = file.stem().string();
      add(tar, key + ".jpg", bytes);
      // The digits after "class".
      add(tar, key + ".cls", file.parent_path().filename().string().substr(5));
    }
    tar << std::string(1024, '\0');
    if (!tar.flush()) throw std::runtime_error(path_ + ": can't be written");
  }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  // Writes a POSIX ustar header and the contents, in blocks of 512 bytes.
  static void add(std::ofstream& tar, std::string_view name, std::string_view content) {
    std::string block(512, '\0');
    name.copy(block.data(), 100);
    block.replace(100, 7, "0000644");
    char digits[16];
    std::snprintf(digits, sizeof digits, "%011zo", content.size());
    block.replace(124, 11, digits);
    block.replace(148, 8, 8, ' ');
    block[156] = '0';
    block.replace(257, 8, std::string_view{"ustar\00000", 8});
    unsigned sum = 0;
    for (const char c : block) sum += static_cast<unsigned char>(c);
    std::snprintf(digits, sizeof digits, "%06o", sum);
    block.replace(148, 7, digits, 7);
    tar << block << content << std::string((512 - content.size() % 512) % 512, '\0');
  }

  synthetic_photos photos_;
  std::string path_;
};

}  // namespace images
