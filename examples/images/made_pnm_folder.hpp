// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <penstock/order/random.hpp>

#include "images/own_folder.hpp"

namespace images {

/// A folder of generated PGM and PPM files of different sizes in two classes, "dark" and "light".
/// Every 40th file is cut in half. The destructor removes the folder and its files.
class made_pnm_folder {
 public:
  /// Creates `count` files. Throws std::runtime_error.
  explicit made_pnm_folder(std::size_t count) : folder_("penstock-pnm") {
    for (const char* const tone : {"dark", "light"}) {
      std::filesystem::create_directory(folder_.path() / tone);
    }
    for (std::size_t file = 0; file < count; ++file) write(file);
  }

  [[nodiscard]] std::string path() const { return folder_.path().string(); }

 private:
  void write(std::size_t file) const {
    penstock::sample_generator random{{.seed = 1}, file};
    const bool is_light = file % 2 != 0;
    const bool is_grey = file % 3 == 0;
    const auto width = static_cast<std::size_t>(penstock::uniform(random, 24.0F, 80.0F));
    const auto height = static_cast<std::size_t>(penstock::uniform(random, 24.0F, 80.0F));
    std::string content = (is_grey ? "P5\n" : "P6\n") + std::to_string(width) + ' ' +
                          std::to_string(height) + "\n255\n";
    for (std::size_t value = 0; value < width * height * (is_grey ? 1 : 3); ++value) {
      content += static_cast<char>(static_cast<unsigned char>(
          penstock::uniform(random, 0.0F, 120.0F) + (is_light ? 130.0F : 0.0F)));
    }
    if (file % 40 == 39) content.resize(content.size() / 2);
    const auto path = folder_.path() / (is_light ? "light" : "dark") /
                      ("img_" + std::to_string(10000 + file) + (is_grey ? ".pgm" : ".ppm"));
    if (!(std::ofstream{path, std::ios::binary} << content).flush()) {
      throw std::runtime_error(path.string() + ": can't be written");
    }
  }

  own_folder folder_;
};

}  // namespace images
