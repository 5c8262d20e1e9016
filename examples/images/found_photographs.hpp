// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/image/jpeg/jpeg.hpp>

namespace images {

/// A JPEG file in memory.
struct photograph {
  std::string path;
  std::vector<char> content;
  penstock::image_size size;

  [[nodiscard]] std::span<const std::byte> bytes() const {
    return std::as_bytes(std::span{content});
  }
};

/// Returns the folders in which Debian packages install photographs: wallpapers, and the example
/// data of python3-sklearn, python-matplotlib-data and python3-skimage.
inline std::vector<std::filesystem::path> folders_of_photographs() {
  return {"/usr/share/backgrounds",
          "/usr/share/wallpapers",
          "/usr/share/matplotlib/mpl-data/sample_data",
          "/usr/lib/python3/dist-packages/matplotlib/mpl-data/sample_data",
          "/usr/lib/python3/dist-packages/skimage/data",
          "/usr/lib/python3/dist-packages/sklearn/datasets/images"};
}

/// Returns the first eight JPEG files at any depth below `folders`, in path order. The files have
/// at most 16 MiB, and the images at least the size `min`. Skips files that cannot be decoded.
/// The result may be empty.
inline std::vector<photograph> found_photographs(
    const penstock::image_size& min,
    const std::vector<std::filesystem::path>& folders = folders_of_photographs()) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  for (const fs::path& folder : folders) {
    std::error_code problem;
    for (fs::recursive_directory_iterator at{folder, fs::directory_options::skip_permission_denied,
                                             problem};
         !problem && at != fs::recursive_directory_iterator{}; at.increment(problem)) {
      const fs::path ending = at->path().extension();
      std::error_code unknown;
      if ((ending == ".jpg" || ending == ".jpeg") && at->file_size(unknown) <= 16U << 20U) {
        files.push_back(at->path());
      }
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<photograph> found;
  penstock::jpeg_decoder decoder;
  for (const fs::path& file : files) {
    if (found.size() == 8) break;
    std::ifstream opened{file, std::ios::binary};
    photograph one{file.string(), {std::istreambuf_iterator<char>{opened}, {}}, {}};
    try {
      one.size = decoder.info(one.bytes(), one.path).size;
      if (one.size.width < min.width || one.size.height < min.height) continue;
      // Decodes the last pixel, which proves that everything before it is complete.
      std::uint8_t last[3];
      decoder.decode(one.bytes(), one.path, {one.size.width - 1, one.size.height - 1, {1, 1}},
                     penstock::pixels{last, {1, 1}, 3, 3});
    } catch (const penstock::error&) {
      continue;
    }
    found.push_back(std::move(one));
  }
  return found;
}

}  // namespace images
