// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>  // required by jpeglib.h
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <jpeglib.h>

#include <penstock/order/random.hpp>
#include <penstock_ext/image/jpeg/jpeg.hpp>

#include "images/found_photographs.hpp"
#include "images/own_folder.hpp"

namespace images {

/// A folder of generated images, either random clouds of color with coarse and fine structures, or
/// parts of photographs. The images have 500 x 375 pixels, quality 90 and half the chroma
/// resolution, so that their size and decoding cost match the photographs of ImageNet. Equal seeds
/// and photographs give equal files. The destructor removes the folder.
class synthetic_photos {
 public:
  static constexpr std::size_t width = 500;
  static constexpr std::size_t height = 375;

  /// Writes 4 classes of 32 images. If `photographs` is not empty, the images are cut from the
  /// photographs at random positions. Each photograph must be at least as large as an image. Throws
  /// std::runtime_error. Propagates exceptions from the decoder.
  explicit synthetic_photos(std::uint64_t seed, const std::vector<photograph>& photographs = {})
      : folder_("penstock-photos") {
    penstock::jpeg_decoder decoder;
    for (std::uint64_t image = 0; image < 128; ++image) {
      const auto folder = folder_.path() / ("class" + std::to_string(image % 4));
      std::filesystem::create_directory(folder);
      penstock::sample_generator random{{.seed = seed}, image};
      write(folder / (std::to_string(1000 + image) + ".jpg"),
            photographs.empty() ? painted(random)
                                : cut(decoder, photographs[image % photographs.size()], random));
    }
  }

  [[nodiscard]] std::string path() const { return folder_.path().string(); }

 private:
  static std::vector<std::uint8_t> cut(penstock::jpeg_decoder& decoder, const photograph& from,
                                       penstock::sample_generator& random) {
    const std::size_t top = penstock::uniform(random, std::size_t{0}, from.size.height - height);
    const std::size_t left = penstock::uniform(random, std::size_t{0}, from.size.width - width);
    std::vector<std::uint8_t> pixels(width * height * 3);
    decoder.decode(from.bytes(), from.path, {left, top, {width, height}},
                   penstock::pixels{pixels.data(), {width, height}, 3, width * 3});
    return pixels;
  }

  // Adds interpolated random values on grids of 4, 8, ... 256 cells per side. Finer grids have less
  // weight.
  static std::vector<std::uint8_t> painted(penstock::sample_generator& random) {
    std::vector<float> sum(width * height * 3, 128.0F);
    float strength = 60;
    for (std::size_t cells = 4; cells <= 256; cells *= 2, strength *= 0.62F) {
      const std::size_t side = cells + 1;
      std::vector<float> grid(side * side * 3);
      for (float& value : grid) value = penstock::uniform(random, -strength, strength);
      for (std::size_t y = 0; y < height; ++y) {
        const float v = static_cast<float>(y * cells) / height;
        const auto row = static_cast<std::size_t>(v);
        const float down = v - static_cast<float>(row);
        for (std::size_t x = 0; x < width; ++x) {
          const float u = static_cast<float>(x * cells) / width;
          const auto column = static_cast<std::size_t>(u);
          const float right = u - static_cast<float>(column);
          for (std::size_t c = 0; c < 3; ++c) {
            const float* const at = &grid[(row * side + column) * 3 + c];
            const float above = at[0] + right * (at[3] - at[0]);
            const float below = at[side * 3] + right * (at[side * 3 + 3] - at[side * 3]);
            sum[(y * width + x) * 3 + c] += above + down * (below - above);
          }
        }
      }
    }
    std::vector<std::uint8_t> pixels(sum.size());
    for (std::size_t i = 0; i < sum.size(); ++i) {
      pixels[i] = static_cast<std::uint8_t>(std::fmin(255.0F, std::fmax(0.0F, sum[i])));
    }
    return pixels;
  }

  static void write(const std::filesystem::path& path, std::vector<std::uint8_t> pixels) {
    jpeg_compress_struct to{};
    jpeg_error_mgr errors{};
    // Terminates the program on an error, which is acceptable because no user input is encoded.
    to.err = jpeg_std_error(&errors);
    jpeg_create_compress(&to);
    unsigned char* bytes = nullptr;
    unsigned long count = 0;
    jpeg_mem_dest(&to, &bytes, &count);
    to.image_width = width;
    to.image_height = height;
    to.input_components = 3;
    to.in_color_space = JCS_RGB;
    jpeg_set_defaults(&to);
    jpeg_set_quality(&to, 90, TRUE);
    jpeg_start_compress(&to, TRUE);
    while (to.next_scanline < to.image_height) {
      JSAMPROW row = &pixels[to.next_scanline * width * 3];
      jpeg_write_scanlines(&to, &row, 1);
    }
    jpeg_finish_compress(&to);
    jpeg_destroy_compress(&to);
    std::ofstream file{path, std::ios::binary};
    file.write(reinterpret_cast<const char*>(bytes), static_cast<std::streamsize>(count));
    std::free(bytes);  // NOLINT: libjpeg takes it by malloc
    if (!file.flush()) throw std::runtime_error(path.string() + ": can't be written");
  }

  own_folder folder_;
};

}  // namespace images
